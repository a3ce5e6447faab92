"""`meta.properties` and the properties format: whose directory is it?"""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.storage.kafka_uuid import format_uuid
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.meta_properties import (
    ForeignDirectory,
    MetaProperties,
    check_directory_ids,
    claim_directory,
    read_meta_properties,
)
from strandline.types import BrokerId

DIRECTORY = "/data"
PATH = "/data/meta.properties"
US = (BrokerId(3), "cluster-A")
DIRECTORY_ID = UUID("b7bc6b44-0ef1-48bc-8a8d-b7c5a979e452")


def disk(data: bytes | None = None) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    if data is not None:
        files.write_atomically(PATH, data)
    return files


def test_an_unclaimed_directory_becomes_ours() -> None:
    files = disk()
    assert read_meta_properties(files, DIRECTORY) is None
    claimed = claim_directory(files, DIRECTORY, *US)
    assert claimed == MetaProperties(BrokerId(3), "cluster-A")
    assert files.read_bytes(PATH) == b"version=0\nbroker.id=3\ncluster.id=cluster-A\n"
    assert read_meta_properties(files.crash_clone(Random(0)), DIRECTORY) == claimed


def test_our_directory_is_left_as_it_is() -> None:
    files = disk(
        b"#\n#Sat Nov 21 02:10:00 UTC 2026\nversion=0\nbroker.id=3\ncluster.id=cluster-A\n"
    )
    before = files.read_bytes(PATH)
    claim_directory(files, DIRECTORY, *US)
    assert files.read_bytes(PATH) == before


def test_a_directory_of_kraft_opens_and_stays_one() -> None:
    text = f"version=1\nnode.id=3\ncluster.id=cluster-A\ndirectory.id={format_uuid(DIRECTORY_ID)}\n"
    files = disk(text.encode())
    claimed = claim_directory(files, DIRECTORY, *US)
    assert claimed == MetaProperties(BrokerId(3), "cluster-A", DIRECTORY_ID, 1)
    assert files.read_bytes(PATH) == text.encode()


def test_what_version_zero_left_out_is_filled_in() -> None:
    files = disk(f"broker.id=3\ndirectory.id={format_uuid(DIRECTORY_ID)}\n".encode())
    claimed = claim_directory(files, DIRECTORY, *US)
    assert claimed == MetaProperties(BrokerId(3), "cluster-A", DIRECTORY_ID)
    assert read_meta_properties(files, DIRECTORY) == claimed


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"version=0\nbroker.id=4\ncluster.id=cluster-A\n", ["broker 4", "broker 3"]),
        (b"version=1\nnode.id=4\ncluster.id=cluster-A\n", ["broker 4", "broker 3"]),
        (b"broker.id=3\ncluster.id=other\n", ["'other'", "'cluster-A'"]),
        (b"version=2\nbroker.id=3\n", ["version is 2"]),
        (b"version=one\n", ["'one'"]),
        (b"version=1\ncluster.id=cluster-A\n", ["node.id"]),
        (b"version=1\nnode.id=3\n", ["cluster.id"]),
        (b"broker.id=three\n", ["'three'"]),
        (b"broker.id=3\ndirectory.id=AAAA\n", ["UUID"]),
        (b"broker.id=\\u00zz\n", ["u00zz"]),
    ],
)
def test_another_brokers_directory_is_refused_with_a_reason(data: bytes, named: list[str]) -> None:
    files = disk(data)
    with pytest.raises(ForeignDirectory) as caught:
        claim_directory(files, DIRECTORY, *US)
    for words in (*named, DIRECTORY):
        assert words in str(caught.value)
    assert files.read_bytes(PATH) == data


def test_directory_ids_must_differ() -> None:
    mine = MetaProperties(BrokerId(3), "c", DIRECTORY_ID)
    check_directory_ids({"/a": mine, "/b": MetaProperties(BrokerId(3), "c")})
    with pytest.raises(ForeignDirectory, match="/a and /b"):
        check_directory_ids({"/a": mine, "/b": mine})
    with pytest.raises(ForeignDirectory, match="reserved"):
        check_directory_ids({"/a": MetaProperties(BrokerId(3), "c", UUID(int=99))})


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_cluster_id_is_read_back(cluster_id: str) -> None:
    files = disk()
    claimed = claim_directory(files, DIRECTORY, BrokerId(3), cluster_id)
    assert read_meta_properties(files, DIRECTORY) == claimed
    assert claimed.cluster_id == cluster_id
    assert files.read_bytes(PATH).isascii()
