"""Faults from the page: what its server says, does and refuses, beside a real `serve --faults`."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.client.faults import Fault, cause
from strandline.client.settings import parse_addresses
from strandline.testing import Cluster
from tests.cli.conftest import Serving
from tests.ui.faulty import bootstrap, said, serving_in
from tests.ui.server import PATIENCE_S, Page, page_for

pytestmark = pytest.mark.xdist_group("ui-faults")
HOW = "This cluster does not allow faults: start it with `strandline serve --faults`."


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving_in(tmp_path_factory.mktemp("ui-faults")) as serving:
        yield serving


@pytest.fixture(scope="module")
def faulty(serving: Serving) -> Page:
    return Page(said(serving, "page"))


def ask(page: Page, fault: str, *brokers: int, **more: object) -> Any:
    answer = page.post("/api/faults", {"fault": fault, "brokers": brokers, **more})
    assert answer.status == 200, answer.text
    return answer.json


def broker(told: Any, broker_id: int) -> Any:
    (found,) = [each for each in told["brokers"] if each["id"] == broker_id]
    return found


def until(page: Page, holds: Callable[[Any], bool]) -> None:
    """Wait until a condition holds for what the page's server says of faults."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(told := page.get("/api/faults").json):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)  # between two looks


# -- What it does ------------------------------------------------------------------------------


def test_every_fault_shows_in_the_states(faulty: Page) -> None:
    told = faulty.get("/api/faults").json
    assert told["allowed"] is True
    assert [(each["id"], each["life"]) for each in told["brokers"]] == [
        (1, "running"),
        (2, "running"),
        (3, "running"),
    ]
    told = ask(faulty, "pause", 2)
    assert (told["done"], broker(told, 2)["life"]) == ("Paused broker 2.", "paused")
    assert broker(ask(faulty, "resume", 2), 2)["life"] == "running"
    assert broker(ask(faulty, "partition", 3), 3)["is_cut_off"] is True
    assert broker(ask(faulty, "slow-disk", 3, delay_ms=7), 3)["slow_ms"] == 7
    assert broker(ask(faulty, "heal", 3), 3) == {
        "id": 3,
        "life": "running",
        "is_cut_off": False,
        "slow_ms": None,
    }
    assert broker(ask(faulty, "kill", 3), 3)["life"] == "down"
    assert broker(ask(faulty, "restart", 3), 3)["life"] == "running"
    assert ask(faulty, "expire-session", 1)["done"].startswith("The metadata sessions of broker 1")


def test_the_page_works_on_when_all_brokers_are_paused_or_down(tmp_path: Path) -> None:
    with serving_in(tmp_path) as serving:
        page = Page(said(serving, "page"))
        for fault, life in (
            ("pause", "paused"),
            ("resume", "running"),
            ("kill", "down"),
            ("restart", "running"),
        ):
            told = ask(page, fault, 1, 2, 3)
            assert {each["life"] for each in told["brokers"]} == {life}


def test_the_page_finds_the_cluster_without_its_first_broker(faulty: Page) -> None:
    ask(faulty, "kill", 1)
    assert faulty.get("/api/ledger").status == 200
    ask(faulty, "restart", 1)


def test_what_the_command_does_shows_too(serving: Serving, faulty: Page) -> None:
    control = parse_addresses(said(serving, "faults"))[0]
    cause(control, Fault("pause", (2,)))
    until(faulty, lambda told: broker(told, 2)["life"] == "paused")
    cause(control, Fault("resume", (2,)))
    until(faulty, lambda told: broker(told, 2)["life"] == "running")


def test_a_page_of_its_own_asks_the_brokers_where(serving: Serving) -> None:
    """As `strandline ui` does it."""
    with page_for(bootstrap(serving)) as page:
        assert broker(ask(page, "slow-disk", 2, delay_ms=1), 2)["slow_ms"] == 1
        ask(page, "heal")


# -- What it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"fault": "explode", "brokers": [1]}, 400, "There is no fault 'explode'; there are pause"),
        ({"brokers": [1]}, 400, "There is no fault None; there are pause"),
        ({"fault": "kill"}, 400, "'brokers' is a list of broker ids."),
        ({"fault": "kill", "brokers": ["1"]}, 400, "'brokers' is a list of broker ids."),
        ({"fault": "kill", "brokers": [True]}, 400, "'brokers' is a list of broker ids."),
        ({"fault": "kill", "brokers": [1], "now": True}, 400, "A fault is asked for with"),
        ([], 400, "A fault is asked for with"),
        ({"fault": "slow-disk", "brokers": [1], "delay_ms": 0}, 400, "from 1 to 60000"),
        ({"fault": "slow-disk", "brokers": [1], "delay_ms": None}, 400, "from 1 to 60000"),
        ({"fault": "kill", "brokers": []}, 409, "Say which brokers 'kill' is for."),
        ({"fault": "kill", "brokers": [9]}, 409, "There is no broker 9; the brokers are 1, 2, 3."),
        ({"fault": "resume", "brokers": [1]}, 409, "Broker 1 is not paused."),
        ({"fault": "kill", "brokers": [1] * 2000}, 413, "at most 4096 bytes"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    faulty: Page, body: object, status: int, sentence: str
) -> None:
    answer = faulty.post("/api/faults", body)
    assert (answer.status, sentence in answer.json["error"]) == (status, True), answer.text


KILL = {"fault": "kill", "brokers": [1]}


def test_only_the_page_itself_may_ask(faulty: Page) -> None:
    """Pages of others: by a form, a script, or a name of theirs that leads here."""
    assert faulty.post("/api/faults", KILL, Origin="http://evil.example").status == 403
    assert faulty.post("/api/faults", KILL, Origin="null").status == 403
    assert faulty.post("/api/faults", KILL, Origin="").status == 403
    evil = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert faulty.post("/api/faults", KILL, **evil).status == 421
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert faulty.post("/api/faults", KILL, Content_Type=kind).status == 415
    assert faulty.get("/api/faults", headers={"Host": "evil.example"}).status == 421
    told = faulty.get("/api/faults").json
    assert {each["life"] for each in told["brokers"]} == {"running"}


def status_of(page: Page, path: str, body: bytes | Iterator[bytes]) -> int:
    """For a body that is sent as it is; an iterator is sent in chunks, without its length."""
    connection = http.client.HTTPConnection(page.host, timeout=PATIENCE_S)
    headers = {"Origin": f"http://{page.host}", "Content-Type": "application/json"}
    connection.request("POST", path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"[" * 4000, 400), (b"", 400), (b"\xff", 400), (b"{", 400), (b"9" * 4096, 400),
     (b" " * 4097, 413), (b" " * 70_000, 413), (iter([b"{}"]), 411)],
    ids=["deep", "empty", "no text", "cut", "long number", "large", "larger", "endless"],
)  # fmt: skip
def test_what_is_no_request_is_refused(
    faulty: Page, body: bytes | Iterator[bytes], status: int
) -> None:
    assert status_of(faulty, "/api/faults", body) == status


def test_a_script_that_is_no_request_is_refused(faulty: Page) -> None:
    assert status_of(faulty, "/api/scenarios", b"[" * 60_000) == 400


def test_without_the_flag_there_are_no_faults(page: Page, cluster: Cluster) -> None:
    assert page.get("/api/faults").json == {"allowed": False, "how": HOW}
    answer = page.post("/api/faults", KILL)
    assert (answer.status, answer.json) == (403, {"error": HOW})
    assert {each.state for each in cluster.brokers} == {"running"}


def test_a_page_that_others_can_open_causes_none_for_those_who_look(serving: Serving) -> None:
    """It listens on all addresses; loopback is one of them."""
    words = ("ui", "--host", "0.0.0.0", "--port", "0", "-b", serving.address)
    child = subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *words], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        address, _, token = child.stdout.readline().split()[0].partition("?token=")
        page = Page(address.replace("0.0.0.0", "127.0.0.1"))
        look = {"Authorization": f"Bearer {token}"}
        assert page.get("/api/faults").status == 401
        assert page.get("/api/faults", look).json["allowed"] is True
        assert page.post("/api/faults", KILL, **look).status == 403
        child.send_signal(signal.SIGTERM)
        child.wait(PATIENCE_S)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
