"""ZooKeeper's requests as this project makes them: multis, batched reads and the recursive watch.

The classes follow the shape of kazoo's own requests (`type`, `serialize`, `deserialize`), so that
its connection sends them. Three of them are not in kazoo: reading many nodes with one request and
watching a whole subtree (both ZooKeeper 3.6), and a multi whose answer keeps the place of each
operation. Integers are big endian; a text or buffer is its length (int) and its bytes.

    multi request  ┌─────────────────────────────────┬────────────────────────┬─────┬────────────┐
    and answer     │ type i32, done u8, error i32     │ operation or result    │ ... │ -1, 1, -1  │
                   └─────────────────────────────────┴────────────────────────┴─────┴────────────┘
                   an answer of type -1 is an error: error i32

Knows bytes and error codes; no connection, no state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, assert_never

from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from strandline.cluster.store import (
    BadVersion,
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
    MultiTooLarge,
    NoChildrenForEphemerals,
    NodeExists,
    NodeStat,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SessionId,
    SetData,
    StoreUnavailable,
    Zxid,
)
from strandline.cluster.tree import is_valid_path
from strandline.errors import InvariantViolated

REQUEST_BYTES_MAX: Final = 0xFFFFF
"""What a server takes unless its `jute.maxbuffer` says otherwise; beyond, it hangs up."""

_FRAME_BYTES: Final = 8
_CREATE, _DELETE, _EXISTS, _GET, _SET, _LIST, _CHECK, _ERROR = 1, 2, 3, 4, 5, 8, 13, -1
_EPHEMERAL, _SEQUENTIAL = 1, 2
_ROLLED_BACK, _NOT_TRIED = 0, -2
_NO_NODE: Final = -101
_NO_AUTH: Final = -102
Acls: TypeAlias = "Callable[[str], list[Any]]"
_REFUSALS: Final[dict[int, type[MultiRefused]]] = {
    -8: InvalidPath,
    _NO_NODE: NoNode,
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
}


def _open(path: str) -> list[Any]:
    """The ACL of a node that is open: every client may do everything."""
    del path
    return list(OPEN_ACL_UNSAFE)


class Multi:
    """All operations or none. Raises `InvalidPath` and `MultiTooLarge` when it is made."""

    type: ClassVar[int] = 14

    def __init__(
        self,
        operations: Sequence[Operation],
        *,
        chroot: str = "",
        request_bytes_max: int = REQUEST_BYTES_MAX,
        acls: Acls = _open,
    ) -> None:
        """`acls` says who may do what with a node that is made, by its path without chroot."""
        self._operations = tuple(operations)
        self._acls = acls
        self._payload = self._encoded(chroot)
        size = len(self._payload) + _FRAME_BYTES
        if size > request_bytes_max:
            raise MultiTooLarge(request_bytes=size, request_bytes_max=request_bytes_max)

    def serialize(self) -> bytes:
        """The request without its header."""
        return self._payload

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[object]:
        """One result per operation: a path, a `NodeStat`, None, or the number of an error.

        It is a list of texts and others because kazoo takes the chroot off the texts in it.
        """
        results: list[object] = []
        kind, offset = _header(answer, offset)
        while kind is not None:
            match kind:
                case 1:
                    path, offset = wire.read_string(answer, offset)
                    results.append(path)
                case 5:
                    stat, _, offset = _stat(answer, offset)
                    results.append(stat)
                case -1:
                    code, offset = _integer(answer, offset)
                    results.append(code)
                case _:
                    results.append(None)
            kind, offset = _header(answer, offset)
        return results

    def outcome(self, results: Sequence[object]) -> MultiResult:
        """What the answer means. Raises `MultiRefused` or `StoreUnavailable`."""
        for index, result in enumerate(results):
            if isinstance(result, int) and result not in (_ROLLED_BACK, _NOT_TRIED):
                raise self._refusal(index, result)
        if len(results) != len(self._operations):
            raise InvariantViolated(
                f"ZooKeeper answered {len(self._operations)} operations with {results!r}."
            )
        return tuple(
            _result(operation, result)
            for operation, result in zip(self._operations, results, strict=True)
        )

    def _refusal(self, index: int, code: int) -> MultiRefused | StoreUnavailable:
        path = self._operations[index].path
        if code == _NO_AUTH:
            return StoreUnavailable(
                f"ZooKeeper does not let this broker change {path!r}: its node belongs to another "
                "login (strandline.zookeeper.digest)."
            )
        refusal = _REFUSALS.get(code)
        if refusal is not None:
            return refusal(path, index)
        return StoreUnavailable(
            f"ZooKeeper refused operation {index} on {path!r} with its error {code}."
        )

    def _encoded(self, chroot: str) -> bytes:
        parts = bytearray()
        for index, operation in enumerate(self._operations):
            path = operation.path
            is_prefix = isinstance(operation, Create) and operation.sequential
            if not is_valid_path(path + "0" if is_prefix else path):
                raise InvalidPath(path, index)
            request = _request(operation, chroot + path, self._acls)
            parts += wire.MultiHeader(request.type, False, -1).serialize() + request.serialize()
        return bytes(parts + wire.MultiHeader(_ERROR, True, -1).serialize())


class Read(NamedTuple):
    """What to read of a node: its data and stat, or the names of its children."""

    path: str
    children: bool = False


@dataclass(frozen=True, slots=True)
class NodeRead:
    """A node as it is. `children` counts them."""

    data: bytes
    stat: NodeStat
    children: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The server does not show the node, by its error `code`."""

    code: int


ReadAnswer: TypeAlias = NodeRead | list[str] | Unreadable | None
"""A node, the names of children, a refusal, or None: there is no such node."""


class ReadMany:
    """Many reads in one request, each answered for itself."""

    type: ClassVar[int] = 22

    def __init__(self, reads: Sequence[Read], *, chroot: str = "") -> None:
        self.reads = tuple(reads)
        self._chroot = chroot

    def serialize(self) -> bytes:
        """The request without its header."""
        parts = bytearray()
        for path, children in self.reads:
            kind = _LIST if children else _GET
            parts += wire.MultiHeader(kind, False, -1).serialize()
            parts += wire.write_string(chrooted(self._chroot, path)) + b"\0"
        return bytes(parts + wire.MultiHeader(_ERROR, True, -1).serialize())

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[ReadAnswer]:
        """One answer per read."""
        answers: list[ReadAnswer] = []
        kind, offset = _header(answer, offset)
        while kind is not None:
            if kind == _ERROR:
                code, offset = _integer(answer, offset)
                answers.append(None if code == _NO_NODE else Unreadable(code))
            elif kind == _GET:
                data, offset = wire.read_buffer(answer, offset)
                stat, children, offset = _stat(answer, offset)
                answers.append(NodeRead(bytes(data or b""), stat, children))
            else:
                count, offset = _integer(answer, offset)
                names: list[str] = []
                for _ in range(count):
                    name, offset = wire.read_string(answer, offset)
                    names.append(name)
                answers.append(names)
            kind, offset = _header(answer, offset)
        return answers


class WatchRecursively:
    """Tell this connection of every change at or below a path, whether it exists or not."""

    type: ClassVar[int] = 106
    _MODE: ClassVar[int] = 1

    def __init__(self, path: str, *, chroot: str = "") -> None:
        self._path = chrooted(chroot, path)

    def serialize(self) -> bytes:
        """The request without its header."""
        return bytes(wire.write_string(self._path) + wire.int_struct.pack(self._MODE))

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> None:
        """The answer says nothing beyond the error in its header."""


class Sync:
    """Have the server catch up with its leader before it answers what is asked next."""

    type: ClassVar[int] = 9

    def __init__(self, path: str = "/", *, chroot: str = "") -> None:
        self._path = chrooted(chroot, path)

    def serialize(self) -> bytes:
        """The request without its header."""
        return bytes(wire.write_string(self._path))

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> None:
        """The answer repeats the path."""


def chrooted(chroot: str, path: str) -> str:
    """The path as the server knows it."""
    return (chroot or "/") if path == "/" else chroot + path


def with_parents(path: str) -> list[str]:
    """Every node on the way to the path, the path included; none for the root."""
    names = path.split("/")[1:]
    return ["/" + "/".join(names[: end + 1]) for end in range(len(names))]


def _request(operation: Operation, path: str, acls: Acls) -> wire.Create:
    match operation:
        case Create():
            flags = operation.ephemeral * _EPHEMERAL | operation.sequential * _SEQUENTIAL
            return wire.Create(path, operation.data, acls(operation.path), flags)
        case SetData():
            return wire.SetData(path, operation.data, operation.version)
        case Delete():
            return wire.Delete(path, operation.version)
        case Check():
            return wire.CheckVersion(path, operation.version)
        case _:
            assert_never(operation)


def _result(operation: Operation, result: object) -> OperationResult:
    match operation, result:
        case Create(), str(path):
            return Created(path)
        case SetData(), NodeStat() as stat:
            return DataSet(stat)
        case Delete(), None:
            return Deleted()
        case Check(), None:
            return Checked()
        case _:
            raise InvariantViolated(f"ZooKeeper answered {operation!r} with {result!r}.")


def _header(answer: bytes, offset: int) -> tuple[int | None, int]:
    """The kind of what follows, or None at the end."""
    kind, done, _ = wire.multiheader_struct.unpack_from(answer, offset)
    return (None if done else int(kind)), offset + wire.multiheader_struct.size


def _integer(answer: bytes, offset: int) -> tuple[int, int]:
    (number,) = wire.int_struct.unpack_from(answer, offset)
    return int(number), offset + 4


def _stat(answer: bytes, offset: int) -> tuple[NodeStat, int, int]:
    """The stat of a node, how many children it has, and where the stat ends."""
    created, modified, _, _, version, _, _, owner, _, children, _ = wire.stat_struct.unpack_from(
        answer, offset
    )
    stat = NodeStat(Zxid(created), Zxid(modified), version, SessionId(owner))
    return stat, children, offset + wire.stat_struct.size
