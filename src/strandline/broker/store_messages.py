"""The frames between a broker and the metadata store of another process, and what they stand for.

    broker ── Hello ──▶ store        broker ◀── Welcome, Told ... ── store
    broker ── Multi, Bye ──▶         broker ◀── Told ..., Outcome ──
    broker ── Ping ──▶               broker ◀── Ping ──

A frame is a size, the kind of the message and the message (`protocol/messages/metadata_store`).
Here the store's own values become messages and come back. Whatever a frame says wrongly raises
`MalformedFrame`, which ends the connection. Knows no connection and no session.
"""

from __future__ import annotations

import struct
from asyncio import StreamReader
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, assert_never

from strandline.cluster.store import (
    NO_SESSION,
    BadVersion,
    Changes,
    Check,
    Checked,
    Create,
    Created,
    DataSet,
    Delete,
    Deleted,
    InvalidPath,
    MultiRefused,
    MultiResult,
    NoChildrenForEphemerals,
    NodeChange,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeExists,
    NodeStat,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    OutcomeUnknown,
    SessionId,
    SetData,
    StoreError,
    StoreUnavailable,
    StoreView,
    Zxid,
)
from strandline.errors import MalformedFrame
from strandline.protocol.framing import SIZE_BYTES, frame_size
from strandline.protocol.messages import metadata_store as wire
from strandline.protocol.schema import decode, encode

Message: TypeAlias = (
    wire.Hello | wire.Multi | wire.Ping | wire.Bye | wire.Welcome | wire.Told | wire.Outcome
)

REQUEST_BYTES_MAX: Final = 32 << 20
"""A larger frame of a broker ends its connection: what is announced is not allocated before."""
ANSWER_BYTES_MAX: Final = 256 << 20
"""What a multi of the largest size changed fits into this."""
VIEW_BYTES: Final = 1 << 20
"""The tree is told in frames of about this size."""

_VERSION: Final = 0
_HEAD: Final = struct.Struct(">ib")
_MESSAGES: Final[tuple[type[Message], ...]] = (
    wire.Hello,
    wire.Multi,
    wire.Ping,
    wire.Bye,
    wire.Welcome,
    wire.Told,
    wire.Outcome,
)
_KINDS: Final = {declared: kind for kind, declared in enumerate(_MESSAGES)}
_CREATE, _SET_DATA, _DELETE, _CHECK = range(4)
_REFUSALS: Final[Mapping[int, type[MultiRefused]]] = {
    1: NodeExists,
    2: NoNode,
    3: BadVersion,
    4: NotEmpty,
    5: NoChildrenForEphemerals,
    6: InvalidPath,
}
_REFUSAL_CODES: Final = {kind: code for code, kind in _REFUSALS.items()}
_UNAVAILABLE, _UNKNOWN = 20, 21
_NO_STAT: Final = wire.Stat()


def frame_of(message: Message) -> bytes:
    """The bytes to send."""
    body = encode(message, _VERSION)
    return _HEAD.pack(1 + len(body), _KINDS[type(message)]) + body


async def read_message(reader: StreamReader, frame_bytes_max: int) -> Message:
    """The next message. Raises `MalformedFrame`, and `asyncio.IncompleteReadError` at the end."""
    size = frame_size(await reader.readexactly(SIZE_BYTES), frame_bytes_max=frame_bytes_max)
    frame = await reader.readexactly(size)
    if not frame or frame[0] >= len(_MESSAGES):
        raise MalformedFrame(f"A message of the metadata store is of no known kind: {frame[:1]!r}.")
    return decode(_MESSAGES[frame[0]], _VERSION, frame, 1)


# -- Writes --------------------------------------------------------------------------------------


def message_of(number: int, operations: Sequence[Operation]) -> wire.Multi:
    """A multi to be sent. Raises `InvalidPath` for a path that has no bytes."""
    return wire.Multi(
        number=number,
        operations=[_operation(index, each) for index, each in enumerate(operations)],
    )


def operations_of(multi: wire.Multi) -> list[Operation]:
    """What a multi asks for."""
    return list(map(_read_operation, multi.operations))


def outcome(number: int, results: MultiResult) -> wire.Outcome:
    """A multi was done."""
    return wire.Outcome(number=number, results=list(map(_result, results)))


def failure(number: int, error: StoreError) -> wire.Outcome:
    """A multi was not done, or perhaps."""
    if isinstance(error, MultiRefused):
        code = _REFUSAL_CODES[type(error)]
        return wire.Outcome(number=number, error=code, index=error.index, path=error.path.encode())
    code = _UNAVAILABLE if error.definite else _UNKNOWN
    return wire.Outcome(number=number, error=code, text=str(error).encode())


def results_of(answer: wire.Outcome) -> MultiResult | StoreError:
    """What a multi came to."""
    if not answer.error:
        return tuple(map(_read_result, answer.results))
    if (refusal := _REFUSALS.get(answer.error)) is not None:
        return refusal(_text(answer.path), answer.index)
    kind = StoreUnavailable if answer.error == _UNAVAILABLE else OutcomeUnknown
    return kind(_text(answer.text))


# -- What is told --------------------------------------------------------------------------------


def told(changes: Changes) -> wire.Told:
    """What a transaction changed."""
    return wire.Told(zxid=changes.zxid, changes=list(map(_change, changes.changes)))


def view_frames(view: StoreView) -> Iterator[bytes]:
    """The whole tree, in frames that say whether more follow."""
    changes: list[wire.Change] = []
    size = 0
    for node in view.nodes:
        changes.append(_change(NodeCreated(node.path, node.data, node.stat)))
        size += len(node.path) + len(node.data)
        if size > VIEW_BYTES:
            yield frame_of(wire.Told(zxid=view.zxid, is_more=True, changes=changes))
            changes, size = [], 0
    yield frame_of(wire.Told(zxid=view.zxid, changes=changes))


def changes_of(message: wire.Told) -> Changes:
    """What is told."""
    return Changes(Zxid(message.zxid), tuple(map(_read_change, message.changes)))


# -- Inside --------------------------------------------------------------------------------------


def _operation(index: int, operation: Operation) -> wire.Operation:
    try:
        path = operation.path.encode()
    except UnicodeEncodeError:
        raise InvalidPath(operation.path, index) from None
    match operation:
        case Create(_, data, ephemeral, sequential):
            return wire.Operation(
                kind=_CREATE,
                path=path,
                data=data,
                is_ephemeral=ephemeral,
                is_sequential=sequential,
            )
        case SetData(_, data, version):
            return wire.Operation(kind=_SET_DATA, path=path, data=data, version=version)
        case Delete(_, version):
            return wire.Operation(kind=_DELETE, path=path, version=version)
        case Check(_, version):
            return wire.Operation(kind=_CHECK, path=path, version=version)
        case _:
            assert_never(operation)


def _read_operation(told: wire.Operation) -> Operation:
    path = _text(told.path)
    match told.kind:
        case 0:
            return Create(path, told.data, told.is_ephemeral, told.is_sequential)
        case 1:
            return SetData(path, told.data, told.version)
        case 2:
            return Delete(path, told.version)
        case 3:
            return Check(path, told.version)
        case _:
            raise MalformedFrame(f"An operation of the metadata store is of kind {told.kind}.")


def _result(result: OperationResult) -> wire.Result:
    match result:
        case Created(path):
            return wire.Result(kind=_CREATE, path=path.encode(), stat=_NO_STAT)
        case DataSet(stat):
            return wire.Result(kind=_SET_DATA, stat=_stat(stat))
        case Deleted():
            return wire.Result(kind=_DELETE, stat=_NO_STAT)
        case Checked():
            return wire.Result(kind=_CHECK, stat=_NO_STAT)
        case _:
            assert_never(result)


def _read_result(told: wire.Result) -> OperationResult:
    match told.kind:
        case 0:
            return Created(_text(told.path))
        case 1:
            return DataSet(_read_stat(told.stat))
        case 2:
            return Deleted()
        case 3:
            return Checked()
        case _:
            raise MalformedFrame(f"A result of the metadata store is of kind {told.kind}.")


def _change(change: NodeChange) -> wire.Change:
    match change:
        case NodeCreated(path, data, stat):
            return wire.Change(kind=_CREATE, path=path.encode(), data=data, stat=_stat(stat))
        case NodeDataSet(path, data, stat):
            return wire.Change(kind=_SET_DATA, path=path.encode(), data=data, stat=_stat(stat))
        case NodeDeleted(path):
            return wire.Change(kind=_DELETE, path=path.encode(), stat=_NO_STAT)
        case _:
            assert_never(change)


def _read_change(told: wire.Change) -> NodeChange:
    path = _text(told.path)
    match told.kind:
        case 0:
            return NodeCreated(path, told.data, _read_stat(told.stat))
        case 1:
            return NodeDataSet(path, told.data, _read_stat(told.stat))
        case 2:
            return NodeDeleted(path)
        case _:
            raise MalformedFrame(f"A change of the metadata is of kind {told.kind}.")


def _stat(stat: NodeStat) -> wire.Stat:
    return wire.Stat(
        created_zxid=stat.created_zxid,
        modified_zxid=stat.modified_zxid,
        version=stat.version,
        owner=stat.owner,
    )


def _read_stat(told: wire.Stat) -> NodeStat:
    owner = SessionId(told.owner) if told.owner else NO_SESSION
    return NodeStat(Zxid(told.created_zxid), Zxid(told.modified_zxid), told.version, owner)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"A path of the metadata store is no text: {error}.") from error
