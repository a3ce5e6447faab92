"""The transaction index: its bytes, its searches against a plain scan, and its damage."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvariantViolated
from strandline.storage.index_file import DamagedIndex
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.transaction_index import (
    ENTRIES_PER_READ,
    ENTRY,
    ENTRY_BYTES,
    VERSION,
    AbortedTransaction,
    TransactionIndex,
)
from strandline.storage.verify.indexes import checked_aborts
from strandline.types import Offset, ProducerId

PATH = "/d/00000000000000000000.txnindex"


def aborted(producer: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer), Offset(first), Offset(last), Offset(stable))


def index_of(*entries: AbortedTransaction, files: MemoryFiles | None = None) -> TransactionIndex:
    if files is None:
        files = MemoryFiles()
        files.make_directory("/d")
    index = TransactionIndex(files, PATH)
    for entry in entries:
        index.append(entry)
    return index


def disk() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/d")
    return files


THREE = (aborted(1, 0, 10, 5), aborted(2, 5, 20, 21), aborted(1, 30, 40, 41))


def test_the_file_appears_with_the_first_abort() -> None:
    files = disk()
    index = TransactionIndex(files, PATH)
    assert index.is_empty
    assert index.file is None
    assert index.collect_aborted(Offset(0), Offset(100)).transactions == []
    assert not files.exists(PATH)
    index.append(THREE[0])
    assert files.read_bytes(PATH) == bytes.fromhex(
        "0000 0000000000000001 0000000000000000 000000000000000a 0000000000000005"
    )
    assert not index.is_empty


def test_entries_are_found_again_and_appended_after() -> None:
    files = disk()
    index_of(*THREE[:2], files=files)
    again = TransactionIndex(files, PATH)
    with pytest.raises(InvariantViolated):
        again.append(aborted(9, 15, 20, 21))
    again.append(THREE[2])
    assert list(TransactionIndex(files, PATH).entries()) == list(THREE)


@pytest.mark.parametrize(
    ("fetch", "bound", "expected", "complete"),
    [
        (0, 5, [0], True),
        (0, 6, [0, 1], True),
        (11, 25, [1], True),
        (21, 30, [], True),
        (21, 100, [2], False),
        (41, 100, [], False),
    ],
)
def test_collect_aborted(fetch: int, bound: int, expected: list[int], complete: bool) -> None:
    found = index_of(*THREE).collect_aborted(Offset(fetch), Offset(bound))
    assert found.transactions == [THREE[i] for i in expected]
    assert found.complete is complete


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (10, 0), (11, 1), (20, 1), (40, 2), (41, 3)])
def test_truncation_goes_by_the_marker(offset: int, kept: int) -> None:
    files = disk()
    index = index_of(*THREE, files=files)
    index.truncate_to(Offset(offset))
    assert list(index.entries()) == list(THREE[:kept])
    assert files.size_of(PATH) == kept * ENTRY_BYTES
    index.append(aborted(5, 50, 60, 61))
    assert list(TransactionIndex(files, PATH).entries())[-1].producer_id == 5


def test_reset_takes_any_contents_away() -> None:
    files = disk()
    files.open(PATH, create=True).append(b"nonsense")
    index = TransactionIndex(files, PATH)
    with pytest.raises(DamagedIndex):
        index.append(THREE[0])
    index.reset()
    index.append(THREE[0])
    assert list(index.entries()) == [THREE[0]]


@pytest.mark.parametrize(
    "data",
    [b"\0" * (ENTRY_BYTES - 1), b"\0\1" + b"\0" * (ENTRY_BYTES - 2)],
    ids=["torn", "version"],
)
def test_damage_is_noticed(data: bytes) -> None:
    files = disk()
    files.open(PATH, create=True).append(data)
    with pytest.raises(DamagedIndex, match=PATH):
        list(checked_aborts(TransactionIndex(files, PATH), 0))


@pytest.mark.parametrize(
    ("entries", "base", "faults"),
    [
        (THREE, 10, [None, None, None]),
        (THREE, 11, ["below the base offset 11", None, None]),
        ([THREE[1], THREE[0]], 0, [None, "out of order"]),
        ([aborted(1, 9, 8, 9)], 0, ["out of order"]),
    ],
)
def test_the_place_of_each_entry_is_checked(
    entries: list[AbortedTransaction], base: int, faults: list[str | None]
) -> None:
    files = disk()
    data = b"".join(ENTRY.pack(VERSION, *each) for each in entries)
    files.open(PATH, create=True).append(data)
    found = list(checked_aborts(TransactionIndex(files, PATH), base))
    assert [entry for entry, _ in found] == list(entries)
    for (_, fault), expected in zip(found, faults, strict=True):
        if expected is None:
            assert fault is None
        else:
            assert fault is not None
            assert expected in fault.sentence


def test_an_index_larger_than_one_read_is_read_whole() -> None:
    entries = [aborted(i, i * 10, i * 10 + 5, i * 10 + 6) for i in range(ENTRIES_PER_READ + 3)]
    index = index_of(*entries)
    assert list(index.entries()) == entries
    index.truncate_to(entries[-1].last_offset)
    assert list(index.entries()) == entries[:-1]


def test_moving_and_removing() -> None:
    files = disk()
    index = index_of(*THREE[:1], files=files)
    files.rename(PATH, f"{PATH}.deleted")
    index.moved_to(f"{PATH}.deleted")
    index.append(THREE[1])
    assert index.remove()
    assert not files.exists(f"{PATH}.deleted")
    assert not index.remove()


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborted transactions as a log has them: overlapping, with true last stable offsets."""
    spans = draw(
        st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=12).map(
            lambda drawn: sorted({f + length: f for f, length in drawn}.items())
        )
    )
    return [
        aborted(
            i, first, last, min([f for later, f in spans if later > last and f < last] + [last + 1])
        )
        for i, (last, first) in enumerate(spans)
    ]


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_a_search_finds_what_a_plain_scan_finds(
    entries: list[AbortedTransaction], fetch: int, bound: int
) -> None:
    assert all(a.last_offset < b.last_offset for a, b in pairwise(entries))
    found = index_of(*entries).collect_aborted(Offset(fetch), Offset(bound))
    plain = [e for e in entries if e.last_offset >= fetch and e.first_offset < bound]
    assert found.transactions == plain
