"""The page of a cluster that wants TLS and a login: what lets it in, and when that is away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.client.security.config import ClientConfig, is_about_security
from strandline.client.security.settings import Security
from strandline.client.settings import ClientSettings
from strandline.testing import Cluster
from strandline.ui import lag_sampler
from strandline.ui.request_cache import RequestCache
from strandline.ui.watcher import Watcher
from tests.ui.server import PATIENCE_S, Page


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=1, security="SASL_SSL") as running:
        running.create_topic("orders")
        yield running


@contextmanager
def page_by_file(settings: Mapping[str, str], path: Path) -> Iterator[Page]:
    """`strandline ui --client-config` with these settings."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ("ui", "--port", "0", "--edit", "--client-config", str(path))
    child = subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *words], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        yield Page(child.stdout.readline().strip())
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def security_of(cluster: Cluster, authority: Path) -> Security:
    """What lets clients in, with the authority's certificate at another place."""
    settings = cluster.client_config() | {"ssl.ca.location": str(authority)}
    given = {name: value for name, value in settings.items() if is_about_security(name)}
    return ClientConfig(given).security


def until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_all_that_the_page_asks_goes_by_the_file(secured: Cluster, tmp_path: Path) -> None:
    """Also where the brokers are: there is no `-b`."""
    with page_by_file(secured.client_config(), tmp_path / "client.properties") as page:
        with urllib.request.urlopen(f"{page.address}api/events", timeout=PATIENCE_S) as stream:
            picture = next(line for line in stream if line.startswith(b"data: {"))
        assert b'"orders"' in picture
        assert page.get("/api/why").json["brokers"].keys() == {"1"}
        done = page.post("/api/topics/orders/records", {"key": "k", "value": "v"}).json
        assert done == {"partition": 0, "offset": 0}
        [record] = page.get("/api/topics/orders/0/records", at="earliest").json["records"]
        assert record["value"]["text"] == "v"
        faults = page.get("/api/faults").json
        assert (faults["allowed"], "does not allow faults" in faults["how"]) == (False, True)


def test_a_certificate_that_is_away_for_a_moment_is_a_sentence_and_no_end(
    secured: Cluster, tmp_path: Path
) -> None:
    original = Path(secured.client_config()["ssl.ca.location"])
    authority = tmp_path / "authority.pem"
    authority.write_bytes(original.read_bytes())
    settings = secured.client_config() | {"ssl.ca.location": str(authority)}
    records = "/api/topics/orders/0/records"
    with page_by_file(settings, tmp_path / "client.properties") as page:
        assert page.get(records).status == 200
        os.rename(authority, tmp_path / "away")
        answer = page.get(records)
        assert (answer.status, "authority.pem cannot be read" in answer.json["error"]) == (
            502,
            True,
        )
        os.rename(tmp_path / "away", authority)
        assert page.get(records).status == 200


def test_the_watcher_goes_on_when_a_certificate_is_there(secured: Cluster, tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    watcher = Watcher(secured.bootstrap_servers, security_of(secured, authority))
    leave = watcher.watch(lambda: None)
    watcher.start()
    try:
        until(lambda: f"the file {authority} cannot be read" in str(watcher.trouble))
        original = Path(secured.client_config()["ssl.ca.location"])
        authority.write_bytes(original.read_bytes())
        until(lambda: watcher.latest is not None)
        assert watcher.trouble is None
    finally:
        leave()
        watcher.close()


def test_lags_are_asked_for_again_after_a_certificate_was_missing(
    secured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_sampler, "UNWATCHED_INTERVAL_S", 0.0)
    monkeypatch.setattr(lag_sampler, "_SHARE", 0)
    security = security_of(secured, tmp_path / "authority.pem")
    monkeypatch.setattr(Watcher, "has_seen_all", True)
    tries: list[bool] = []

    class Cache(RequestCache):
        async def ask(self, *asked: Any) -> Any:
            tries.append(True)
            return await super().ask(*asked)

    async def run() -> None:
        cache = Cache(secured.bootstrap_servers, ClientSettings(security=security))
        watcher = Watcher(secured.bootstrap_servers, security)
        sampling = asyncio.create_task(lag_sampler.sample_lags(watcher, cache))
        async with asyncio.timeout(PATIENCE_S):
            while len(tries) < 2:
                assert not sampling.done()
                await asyncio.sleep(0.01)
        sampling.cancel()
        cache.close()

    asyncio.run(run())
