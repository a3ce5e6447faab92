"""The store of cluster metadata: what can be asked of it, what it answers, what can go wrong.

The store is a tree of nodes in the manner of ZooKeeper: each node has data, a version that counts
its data changes, and the id (zxid) of the transaction that created it. A write is a *multi*, a
sequence of operations of which all happen or none; later operations see what earlier ones did.
Every multi that changed something is part of one `Changes`, and a listener that applies all of them
in order has the same tree. This file knows no driver: `tree.NodeTree` keeps the semantics in
memory, and drivers (embedded, ZooKeeper, simulated) implement `Store`.

    StoreError
    ├── MultiRefused          a definite no: nothing happened; `index` says which operation
    │   ├── NodeExists        create of a path that exists
    │   ├── NoNode            the node, or the parent of a create, does not exist
    │   ├── BadVersion        the expected version is not the node's version
    │   ├── NotEmpty          delete of a node that has children
    │   ├── NoChildrenForEphemerals
    │   └── InvalidPath
    ├── MultiTooLarge         nothing happened; the store never takes a multi of this size
    ├── StoreUnavailable      nothing happened, the store cannot write now; a retry may help
    ├── OutcomeUnknown        the write may or may not have happened (connection or disk lost)
    └── MalformedNode         the content of a node is not what its path promises
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol, TypeAlias

from strandline.errors import StrandlineError

Zxid = NewType("Zxid", int)
"""Number of a transaction; grows with every multi that changes something, never reused."""

SessionId = NewType("SessionId", int)
"""Owner of ephemeral nodes. `NO_SESSION` owns none."""

NO_ZXID: Final = Zxid(0)
"""The state of a store before its first transaction."""

NO_SESSION: Final = SessionId(0)
ANY_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. `sequential` appends ten digits that grow within the parent to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of a node whose version is `version` (or any)."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children whose version is `version` (or any)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but refuse the multi unless the node exists with that version (or any)."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class NodeStat:
    """What the store knows about a node beside its data."""

    created_zxid: Zxid
    modified_zxid: Zxid
    version: int
    owner: SessionId = NO_SESSION

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node goes away with its owner's session."""
        return self.owner != NO_SESSION


@dataclass(frozen=True, slots=True)
class Created:
    """A node was made at `path` (which a sequential create has completed)."""

    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    """A node's data was replaced. `created_zxid` of a broker's node is its broker epoch."""

    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Deleted:
    """A node was removed."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A node has the expected version."""


OperationResult: TypeAlias = Created | DataSet | Deleted | Checked
MultiResult: TypeAlias = tuple[OperationResult, ...]
"""One result per operation, in the order of the operations."""


@dataclass(frozen=True, slots=True)
class NodeCreated:
    """Change: the node is new."""

    path: str
    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class NodeDataSet:
    """Change: the node has new data and a new version."""

    path: str
    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """Change: the node is gone."""

    path: str


NodeChange: TypeAlias = NodeCreated | NodeDataSet | NodeDeleted


@dataclass(frozen=True, slots=True)
class Changes:
    """What one transaction changed, or several in a row, in an order in which it can be applied.

    A driver that saw only the outcome of several transactions tells their net effect: a node that
    was made and changed is `NodeCreated` with its last data, and a node that was deleted and made
    again is `NodeDeleted` and `NodeCreated`, so that no new `created_zxid` goes unnoticed.
    """

    zxid: Zxid
    """The last of the transactions; greater than that of every `Changes` told before."""
    changes: tuple[NodeChange, ...]


class StoreError(StrandlineError):
    """The root of the store's errors. `definite` tells whether nothing certainly happened."""

    definite = True


class MultiRefused(StoreError):
    """Operation number `index` of a multi could not be done, so none was."""

    reason = "was refused"

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(f"Operation {index} on {path!r} {self.reason}.")
        self.path = path
        self.index = index


class NodeExists(MultiRefused):
    """A create names a path that exists."""

    reason = "would create a node that exists"


class NoNode(MultiRefused):
    """The node, or the parent of a node to be created, does not exist."""

    reason = "needs a node that does not exist"


class BadVersion(MultiRefused):
    """Another client changed the node: read again, decide again."""

    reason = "expects another version of the node"


class NotEmpty(MultiRefused):
    """A node with children cannot be deleted."""

    reason = "would delete a node that has children"


class NoChildrenForEphemerals(MultiRefused):
    """An ephemeral node cannot have children."""

    reason = "would create a child of an ephemeral node"


class InvalidPath(MultiRefused):
    """The path is not one of ZooKeeper's, or an ephemeral create has no session."""

    reason = "has no usable path or session"


class MultiTooLarge(StoreError):
    """The multi has more bytes than the store takes at once; nothing was written."""

    def __init__(self, *, request_bytes: int, request_bytes_max: int) -> None:
        super().__init__(
            f"A metadata write of {request_bytes} bytes is larger than the {request_bytes_max} "
            "bytes that the metadata store takes at once."
        )


class StoreUnavailable(StoreError):
    """The store cannot write at the moment and has not written."""


class OutcomeUnknown(StoreError):
    """Whether the multi happened is not known. Read again before deciding anything."""

    definite = False


class MalformedNode(StoreError):
    """The data of a node does not follow the format of its path."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"The content of the metadata node {path!r} is unusable: {what}.")
        self.path = path
        self.what = what


@dataclass(frozen=True, slots=True)
class StoredNode:
    """One node of a store as it is at some moment."""

    path: str
    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class StoreView:
    """All nodes as of transaction `zxid`, parents before children."""

    zxid: Zxid
    nodes: tuple[StoredNode, ...]


class Store(Protocol):
    """One broker's access to the metadata, with the session that its ephemeral nodes belong to.

    The listener hears each `Changes` once, in the order of their zxids, on the event loop, and what
    a multi changed or was refused for before that multi returns to its caller.

    While the broker is cut off from the store, writes fail with `StoreUnavailable` and nothing is
    heard. When the store is back the listener hears everything that it missed, at once, and only
    then writes are taken again; a multi that was under way ends with `OutcomeUnknown`, after that
    if the store is back soon. If the session has expired meanwhile there is a new one, nothing is
    left of what the old one owned, and the deletions are part of what the listener hears: the
    owner of an ephemeral node makes it again when it sees the node gone.
    """

    @property
    def session(self) -> SessionId:
        """The present session: the owner of ephemeral nodes made now. `NO_SESSION` before `load`.

        When a session has been replaced this is the new one by the time the listener hears it.
        """

    async def load(self, listener: Callable[[Changes], None]) -> StoreView:
        """Connect, open the session and return the present nodes; from then on the listener hears
        every change after them. To be called once. Raises `StoreUnavailable`."""

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none. Raises a `StoreError`."""

    async def close(self) -> None:
        """End the session, so that its ephemeral nodes go, and let everything go."""
