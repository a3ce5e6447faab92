"""The bytes of the embedded store's two files: a journal of transactions, and a snapshot.

The journal is a header and frames. A frame is what one disk write makes durable: one transaction
or several that were waiting together. A new frame is only begun when the one before is durable, so
after a crash nothing but the last frame can be damaged; damage before it means that the disk lost
what it had promised, and reading says so. Integers are big endian, texts UTF-8.

    journal  ┌────────────────┬───────┬───────┬───
             │ "STRLJRN1"  8 B│ frame │ frame │ ...
             └────────────────┴───────┴───────┴───
    frame    ┌─────────────┬───────────────┬────────────────────┬────────────────────────────┐
             │ "FRAM"   4 B│ body length u32│ CRC-32C of body u32│ body: transactions         │
             └─────────────┴───────────────┴────────────────────┴────────────────────────────┘
    trans-   ┌──────────┬──────────────────┬─────────────────────────────────────────────────┐
    action   │ zxid  i64│ change count  u32│ changes                                         │
             └──────────┴──────────────────┴─────────────────────────────────────────────────┘
    change   ┌─────────┬────────────────┬──────┬─ create ───────────┐┌─ create and set ──────┐
             │ kind  u8│ path length u32│ path │ owner session   i64││ data length u32│ data │
             └─────────┴────────────────┴──────┴────────────────────┘└───────────────────────┘
             kind 1 create, 2 set data, 3 delete

    snapshot ┌────────────────┬───────────────────┬──────────┬────────────────┬──────────────┐
             │ "STRLSNP1"  8 B│ CRC of the rest u32│ zxid  i64│ node count  u32│ nodes        │
             └────────────────┴───────────────────┴──────────┴────────────────┴──────────────┘
    node     ┌────────────────┬──────┬────────────────┬──────┬───────────────────────────────┐
             │ path length u32│ path │ data length u32│ data │ created, modified  zxid i64 x2│
             └────────────────┴──────┴────────────────┴──────┼───────────────────────────────┤
                                                             │ version u32, owner session i64│
                                                             │ children created           u32│
                                                             └───────────────────────────────┘

Versions and zxids of a journaled change are not written: replaying gives them again.
This file knows no disk. Unreadable bytes raise `DamagedJournal`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, assert_never

from crc32c import crc32c

from strandline.cluster.store import (
    NO_ZXID,
    Changes,
    NodeChange,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeStat,
    SessionId,
    Zxid,
)
from strandline.cluster.tree import NodeTree, TreeNode
from strandline.errors import InvariantViolated, StorageError, UnknownFormat

JOURNAL_HEADER: Final = b"STRLJRN1"
SNAPSHOT_HEADER: Final = b"STRLSNP1"
_FRAME_MARK: Final = b"FRAM"
_FRAME: Final = struct.Struct(">4sII")
_CRC: Final = struct.Struct(">I")
_TRANSACTION: Final = struct.Struct(">qI")
_CHANGE: Final = struct.Struct(">B")
_LENGTH: Final = struct.Struct(">I")
_OWNER: Final = struct.Struct(">q")
_STAT: Final = struct.Struct(">qqIqI")
_CREATE, _SET_DATA, _DELETE = 1, 2, 3


class DamagedJournal(StorageError):
    """The files of the metadata store cannot be trusted; a person has to decide what to do."""


class JournalContents(NamedTuple):
    """What a journal says. Bytes from `valid_bytes` on are the torn end of the last write."""

    transactions: list[Changes]
    valid_bytes: int


def encode_frame(transactions: Iterable[Changes]) -> bytes:
    """One frame with these transactions."""
    body = b"".join(_encode_transaction(changes) for changes in transactions)
    return _FRAME.pack(_FRAME_MARK, len(body), crc32c(body)) + body


def decode_journal(journal: bytes, *, snapshot_zxid: Zxid = NO_ZXID) -> JournalContents:
    """The transactions after the snapshot, up to the torn end if there is one.

    Raises `DamagedJournal` if a whole frame with unknown transactions follows a damaged one: that
    damage is no torn write. A whole frame that the snapshot has already is what a crash left of a
    journal that was being emptied.
    """
    if not journal.startswith(JOURNAL_HEADER):
        if len(journal) <= len(JOURNAL_HEADER):
            # The header was being written, and no frame is written before it is durable.
            return JournalContents([], 0)
        _expect_known_format("journal", journal, JOURNAL_HEADER)
        raise DamagedJournal("The metadata journal does not begin with its header.")
    transactions: list[Changes] = []
    position = len(JOURNAL_HEADER)
    while (end := _frame_end(journal, position)) is not None:
        transactions += _decode_transactions(journal[position + _FRAME.size : end])
        position = end
    known = max([snapshot_zxid, *(changes.zxid for changes in transactions)])
    _expect_nothing_new(journal, position, known)
    return JournalContents([c for c in transactions if c.zxid > snapshot_zxid], position)


def encode_snapshot(tree: NodeTree) -> bytes:
    """The whole tree."""
    nodes = b"".join(_encode_node(path, node) for path, node in tree.walk())
    rest = _TRANSACTION.pack(tree.zxid, len(tree)) + nodes
    return SNAPSHOT_HEADER + _CRC.pack(crc32c(rest)) + rest


def decode_snapshot(snapshot: bytes) -> NodeTree:
    """The tree that was encoded. Raises `DamagedJournal`."""
    reader = _Reader(snapshot)
    if reader.take(len(SNAPSHOT_HEADER)) != SNAPSHOT_HEADER:
        _expect_known_format("snapshot", snapshot, SNAPSHOT_HEADER)
        raise DamagedJournal("The metadata snapshot does not begin with its header.")
    (checksum,) = reader.unpack(_CRC)
    if checksum != crc32c(snapshot[reader.position :]):
        raise DamagedJournal("The checksum of the metadata snapshot is wrong.")
    zxid, count = reader.unpack(_TRANSACTION)
    try:
        tree = NodeTree.restored(Zxid(zxid), [_decode_node(reader) for _ in range(count)])
    except InvariantViolated as error:
        raise DamagedJournal(f"The metadata snapshot makes no tree: {error}") from error
    reader.expect_end()
    return tree


def _expect_known_format(what: str, data: bytes, header: bytes) -> None:
    """Raise `UnknownFormat` if a newer release wrote it: another digit ends our header."""
    found, known = data[: len(header)], header[-1:]
    if found[:-1] == header[:-1] and found[-1:].isdigit() and found[-1:] > known:
        raise UnknownFormat(f"The metadata {what}", int(found[-1:]), int(known))


def _frame_end(journal: bytes, position: int) -> int | None:
    """Where the frame at `position` ends, or None if there is no whole and sound frame."""
    body = position + _FRAME.size
    if body > len(journal):
        return None
    mark, length, checksum = _FRAME.unpack_from(journal, position)
    end: int = body + length
    if mark != _FRAME_MARK or not length or end > len(journal):
        return None
    if crc32c(journal[body:end]) != checksum:
        return None
    return end


def _expect_nothing_new(journal: bytes, position: int, known: Zxid) -> None:
    later = journal.find(_FRAME_MARK, position + 1)
    while later >= 0:
        end = _frame_end(journal, later)
        if end is not None and end - later >= _FRAME.size + _TRANSACTION.size:
            (zxid, _) = _TRANSACTION.unpack_from(journal, later + _FRAME.size)
            if zxid > known:
                raise DamagedJournal(
                    f"The metadata journal is damaged at byte {position}, "
                    f"although a later write at byte {later} is whole."
                )
        later = journal.find(_FRAME_MARK, later + 1)


def _encode_transaction(changes: Changes) -> bytes:
    encoded = (_encode_change(change) for change in changes.changes)
    return _TRANSACTION.pack(changes.zxid, len(changes.changes)) + b"".join(encoded)


def _decode_transactions(body: bytes) -> Iterator[Changes]:
    reader = _Reader(body)
    while not reader.is_at_end:
        zxid, count = reader.unpack(_TRANSACTION)
        yield Changes(Zxid(zxid), tuple(_decode_change(reader, Zxid(zxid)) for _ in range(count)))


def _encode_change(change: NodeChange) -> bytes:
    match change:
        case NodeCreated(path, data, stat):
            parts = [_CHANGE.pack(_CREATE), _sized(path.encode()), _OWNER.pack(stat.owner)]
            return b"".join([*parts, _sized(data)])
        case NodeDataSet(path, data, _):
            return _CHANGE.pack(_SET_DATA) + _sized(path.encode()) + _sized(data)
        case NodeDeleted(path):
            return _CHANGE.pack(_DELETE) + _sized(path.encode())
        case _:
            assert_never(change)


def _decode_change(reader: _Reader, zxid: Zxid) -> NodeChange:
    (kind,) = reader.unpack(_CHANGE)
    path = reader.text()
    if kind == _CREATE:
        (owner,) = reader.unpack(_OWNER)
        return NodeCreated(path, reader.sized(), NodeStat(zxid, zxid, 0, SessionId(owner)))
    if kind == _SET_DATA:
        return NodeDataSet(path, reader.sized(), NodeStat(zxid, zxid, 0))
    if kind == _DELETE:
        return NodeDeleted(path)
    raise DamagedJournal(f"The metadata journal has a change of unknown kind {kind}.")


def _encode_node(path: str, node: TreeNode) -> bytes:
    stat = node.stat
    numbers = _STAT.pack(
        stat.created_zxid, stat.modified_zxid, stat.version, stat.owner, node.children_created
    )
    return _sized(path.encode()) + _sized(node.data) + numbers


def _decode_node(reader: _Reader) -> tuple[str, TreeNode]:
    path, data = reader.text(), reader.sized()
    created, modified, version, owner, children = reader.unpack(_STAT)
    stat = NodeStat(Zxid(created), Zxid(modified), version, SessionId(owner))
    return path, TreeNode(data, stat, children)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


class _Reader:
    """A position in bytes whose checksum was right: running out of them means other damage."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        return self.position == len(self._data)

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise DamagedJournal("The metadata store's files end in the middle of a value.")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def unpack(self, layout: struct.Struct) -> Sequence[int]:
        return layout.unpack(self.take(layout.size))

    def sized(self) -> bytes:
        (length,) = self.unpack(_LENGTH)
        return self.take(length)

    def text(self) -> str:
        try:
            return self.sized().decode()
        except UnicodeDecodeError as error:
            raise DamagedJournal("A path in the metadata store's files is no text.") from error

    def expect_end(self) -> None:
        if not self.is_at_end:
            raise DamagedJournal("The metadata snapshot is longer than it says.")
