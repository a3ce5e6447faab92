"""The bytes of the journal and the snapshot: round trips, torn ends, and every flipped bit."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from strandline.cluster.journal_format import (
    JOURNAL_HEADER,
    DamagedJournal,
    JournalContents,
    decode_journal,
    decode_snapshot,
    encode_frame,
    encode_snapshot,
)
from strandline.cluster.store import (
    Changes,
    Create,
    Delete,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeStat,
    Operation,
    SessionId,
    SetData,
    Zxid,
)
from strandline.cluster.tree import NodeTree
from strandline.errors import UnknownFormat

REFUSED = (DamagedJournal, UnknownFormat)
"""A flipped bit of the header's digit cannot be told from a newer format."""
PATHS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
DATA = st.binary(max_size=30)


@st.composite
def transactions(draw: st.DrawFn) -> list[Changes]:
    made = []
    for zxid in sorted(draw(st.sets(st.integers(1, 2**62), max_size=6))):
        first = NodeStat(Zxid(zxid), Zxid(zxid), 0)
        owned = st.builds(
            NodeStat, st.just(zxid), st.just(zxid), st.just(0), st.integers(0, 2**62).map(SessionId)
        )
        change = st.one_of(
            st.builds(NodeCreated, PATHS, DATA, owned),
            st.builds(NodeDataSet, PATHS, DATA, st.just(first)),
            st.builds(NodeDeleted, PATHS),
        )
        made.append(Changes(Zxid(zxid), tuple(draw(st.lists(change, max_size=3)))))
    return made


@given(transactions(), st.integers(0, 2**62))
def test_what_is_written_is_read(made: list[Changes], snapshot: int) -> None:
    """One frame each or all in one: the same transactions, without those of the snapshot."""
    single = JOURNAL_HEADER + b"".join(encode_frame([each]) for each in made)
    later = [each for each in made if each.zxid > snapshot]
    assert decode_journal(single, snapshot_zxid=Zxid(snapshot)) == (later, len(single))
    if made:
        together = JOURNAL_HEADER + encode_frame(made)
        assert decode_journal(together) == JournalContents(made, len(together))


def small_history() -> list[Changes]:
    tree = NodeTree()
    multis: list[list[Operation]] = [
        [Create("/a", b"one"), Create("/e", b"", ephemeral=True)],
        [SetData("/a", b"FRAM is no frame")],
        [Create("/a/s-", sequential=True), Delete("/e")],
    ]
    applied = [tree.multi(each, SessionId(5)).changes for each in multis]
    return [as_read(changes) for changes in applied if changes is not None]


def as_read(changes: Changes) -> Changes:
    """Versions are not written: replaying gives them again."""
    unversioned = NodeStat(changes.zxid, changes.zxid, 0)
    return Changes(
        changes.zxid,
        tuple(
            replace(change, stat=unversioned) if isinstance(change, NodeDataSet) else change
            for change in changes.changes
        ),
    )


FRAMES = [encode_frame([changes]) for changes in small_history()]
BORDERS = [len(JOURNAL_HEADER) + sum(map(len, FRAMES[:count])) for count in range(4)]
JOURNAL = JOURNAL_HEADER + b"".join(FRAMES)


def test_a_torn_end_is_left_out_whole() -> None:
    for size in range(len(JOURNAL) + 1):
        whole = sum(1 for border in BORDERS[1:] if border <= size)
        valid = BORDERS[whole] if size >= BORDERS[0] else 0
        assert decode_journal(JOURNAL[:size]) == (small_history()[:whole], valid)


def test_every_flipped_bit_ends_the_journal_or_is_damage() -> None:
    """In the last frame it is a torn write; before it, a disk that lost what it had promised."""
    for at in range(len(JOURNAL)):
        for bit in range(8):
            damaged = bytearray(JOURNAL)
            damaged[at] ^= 1 << bit
            if at < BORDERS[2]:
                with pytest.raises(REFUSED):
                    decode_journal(bytes(damaged))
            else:
                assert decode_journal(bytes(damaged)) == (small_history()[:2], BORDERS[2])


def test_old_frames_behind_a_cut_are_no_damage() -> None:
    """A crash while the journal was emptied for a snapshot leaves frames that the snapshot has."""
    torn = JOURNAL[: BORDERS[0]] + bytes(len(FRAMES[0])) + JOURNAL[BORDERS[1] :]
    contents = decode_journal(torn, snapshot_zxid=small_history()[-1].zxid)
    assert contents == ([], BORDERS[0])
    with pytest.raises(DamagedJournal):
        decode_journal(torn, snapshot_zxid=small_history()[0].zxid)


def frame(body: bytes) -> bytes:
    return struct.pack(">4sII", b"FRAM", len(body), crc32c(body)) + body


@pytest.mark.parametrize(
    "body",
    [
        b"\0" * 11,
        struct.pack(">qI", 1, 1),
        struct.pack(">qIBI", 1, 1, 9, 0),
        struct.pack(">qIBI", 1, 1, 3, 5) + b"/a",
        struct.pack(">qIBI", 1, 1, 3, 1) + b"\xff",
        struct.pack(">qIBI", 1, 1, 1, 0) + b"\0\0",
        struct.pack(">qI", 1, 2**32 - 1),
    ],
)
def test_a_sound_checksum_over_nonsense_is_damage(body: bytes) -> None:
    with pytest.raises(DamagedJournal):
        decode_journal(JOURNAL_HEADER + frame(body))


def test_a_tiny_frame_behind_a_torn_one_is_no_transaction() -> None:
    torn = JOURNAL + FRAMES[0][:9] + frame(b"x")
    assert decode_journal(torn) == (small_history(), len(JOURNAL))


def test_another_file_is_no_journal() -> None:
    with pytest.raises(DamagedJournal):
        decode_journal(b"KAFKARN2" + FRAMES[0])


def test_a_newer_journal_is_not_called_damaged() -> None:
    with pytest.raises(UnknownFormat, match="The metadata journal has format 2"):
        decode_journal(b"STRLJRN2" + FRAMES[0])


def tree() -> NodeTree:
    made = NodeTree()
    for changes in small_history():
        made.replay(changes)
    return made


def test_a_snapshot_has_everything() -> None:
    before, after = tree(), decode_snapshot(encode_snapshot(tree()))
    assert (after.zxid, list(after.walk())) == (before.zxid, list(before.walk()))
    again = [after.multi([Create("/a/s-", sequential=True)]).results for _ in range(2)]
    assert again == [before.multi([Create("/a/s-", sequential=True)]).results for _ in range(2)]


def test_every_cut_and_flipped_bit_of_a_snapshot_is_damage() -> None:
    whole = encode_snapshot(tree())
    for at in range(len(whole)):
        with pytest.raises(DamagedJournal):
            decode_snapshot(whole[:at])
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            with pytest.raises(REFUSED):
                decode_snapshot(bytes(damaged))
    with pytest.raises(DamagedJournal):
        decode_snapshot(whole + b"\0")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_journal_or_damage(data: bytes) -> None:
    journal = JOURNAL_HEADER + data
    try:
        contents = decode_journal(journal)
    except DamagedJournal:
        return
    assert contents.valid_bytes <= len(journal)
