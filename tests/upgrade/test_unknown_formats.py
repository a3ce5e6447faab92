"""A newer release wrote something that this one would misread: the start ends with a sentence, and
not a byte has changed, of no broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.cluster.store import Create
from strandline.cluster.znodes import FormatNode
from strandline.storage.real_files import RealFiles
from strandline.testing import Cluster
from tests.upgrade.directories import unpack_directory
from tests.upgrade.releases import RELEASES

RELEASE = next(iter(RELEASES))
SESSION_MS = 6000

Change = Callable[[Path], None]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    unpack_directory(RELEASE, "clean", tmp_path)
    return tmp_path / "data"


def _append(file: str, line: str) -> Change:
    def change(data: Path) -> None:
        with (data / file).open("a") as properties:
            properties.write(line)

    return change


def _replace(file: str, old: bytes, new: bytes) -> Change:
    def change(data: Path) -> None:
        content = (data / file).read_bytes()
        assert old in content
        (data / file).write_bytes(content.replace(old, new, 1))

    return change


CHANGES = {
    "a log directory": _append("broker-2/meta.properties", "strandline.format=7\n"),
    "meta.properties": _replace("broker-2/meta.properties", b"version=0", b"version=7"),
    "recovery points": _replace("broker-2/recovery-point-offset-checkpoint", b"0\n", b"7\n"),
    "high watermarks": _replace("broker-2/replication-offset-checkpoint", b"0\n", b"7\n"),
    "log starts": _replace("broker-2/log-start-offset-checkpoint", b"0\n", b"7\n"),
    "clean shutdown": _replace("broker-2/.kafka_cleanshutdown", b'"version":0', b'"version":7'),
    "metadata journal": _replace("metadata.journal", b"STRLJRN1", b"STRLJRN7"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_start_on_a_newer_format_changes_nothing(change: Change, data: Path) -> None:
    change(data)
    before = _files(data)
    command = [sys.executable, "-m", "strandline.cli", "serve", "--brokers", "3"]
    ended = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--data-dir", str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "has format 7; this release reads formats up to" in ended.stderr
    assert "start that one again" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert _files(data) == before


def _raise_metadata_format(data: Path, version: int) -> None:
    asyncio.run(_write_format(data, version))


async def _write_format(data: Path, version: int) -> None:
    store = EmbeddedStore(RealFiles(), str(data))
    client = EmbeddedClient(store, session_timeout_ms=SESSION_MS)
    await client.load(lambda _: None)
    await client.multi([Create(FormatNode.path, json.dumps({"version": version}).encode())])
    await client.close()
    await store.close()


def test_metadata_of_a_newer_format_ends_every_start(data: Path) -> None:
    _raise_metadata_format(data, FormatNode.known + 1)
    with pytest.raises(Exception, match=r"The cluster's metadata .* has format 2"):
        Cluster(brokers=3, data_dir=data).open()


def test_metadata_of_a_known_format_is_used(data: Path) -> None:
    _raise_metadata_format(data, FormatNode.known)
    with Cluster(brokers=3, data_dir=data) as cluster:
        cluster.wait_until_in_sync("behind")


def _files(directory: Path) -> dict[str, bytes]:
    """All but the locks, by their names."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in (".lock", "metadata.lock")
    }
