"""The tree of metadata nodes in memory: ZooKeeper's semantics and nothing else.

Knows versions, ephemeral owners, sequential names and how a multi is all-or-nothing. Does not know
where the tree is kept, who owns a session or when a session ends. The embedded store makes it
durable and the simulator makes it distributed; both drive this same code.

Theory: a multi is applied operation by operation to the live tree while the former state of every
touched node is remembered. A refused operation restores them, so that reading the tree during a
multi shows what the multi did so far, which is what ZooKeeper promises to later operations.
The remembered states leave as `Applied.undo`, with which a driver whose disk fails takes the
newest multis back, newest first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from strandline.cluster.store import (
    ANY_VERSION,
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
    SessionId,
    SetData,
    StoredNode,
    StoreView,
    Zxid,
)
from strandline.errors import InvariantViolated

ROOT = "/"
_SEQUENCE_DIGITS = 10

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node. `children_created` counts creates, never deletes: it numbers sequential names."""

    data: bytes
    stat: NodeStat
    children_created: int = 0


@dataclass(frozen=True, slots=True)
class Undo:
    """How to take one transaction back: the zxid before it, former nodes newest first."""

    zxid_before: Zxid
    zxid_after: Zxid
    former: tuple[tuple[str, TreeNode | None], ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """A multi that was done. `changes` is None when it only checked: it then used no zxid."""

    results: MultiResult
    changes: Changes | None
    undo: Undo


class NodeTree:
    """The nodes by path, with the root always there."""

    def __init__(self) -> None:
        self._nodes: dict[str, TreeNode] = {ROOT: _new_root()}
        self._children: dict[str, set[str]] = {}
        self._owned: dict[SessionId, set[str]] = {}
        self._zxid = Zxid(0)

    @property
    def zxid(self) -> Zxid:
        """The last transaction that changed something. Only grows, except by `take_back`."""
        return self._zxid

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, path: str) -> TreeNode | None:
        """The node, or None."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Names (not paths) of the node's children, sorted."""
        return sorted(self._children.get(path, ()))

    def has_children(self, path: str) -> bool:
        """Whether there is any node right below."""
        return path in self._children

    def owners(self) -> list[SessionId]:
        """Sessions that own ephemeral nodes, sorted."""
        return sorted(self._owned)

    def walk(self) -> Iterator[tuple[str, TreeNode]]:
        """Every node, parents before children, siblings sorted."""
        waiting = [ROOT]
        while waiting:
            path = waiting.pop()
            yield path, self._nodes[path]
            waiting.extend(child_path(path, name) for name in reversed(self.children(path)))

    def view(self) -> StoreView:
        """All nodes except the root, as a value that later changes do not touch."""
        nodes = (StoredNode(path, node.data, node.stat) for path, node in self.walk())
        return StoreView(self._zxid, tuple(node for node in nodes if node.path != ROOT))

    def multi(self, operations: Sequence[Operation], session: SessionId = NO_SESSION) -> Applied:
        """Do all operations, or raise `MultiRefused` and leave the tree as it was."""
        transaction = _Transaction(self, Zxid(self._zxid + 1), session)
        try:
            results = tuple(
                transaction.carry_out(index, operation)
                for index, operation in enumerate(operations)
            )
        except BaseException:
            self._restore(reversed(transaction.former))
            raise
        return self._finish(transaction, results)

    def expire_session(self, session: SessionId) -> Applied:
        """Delete everything that the session owns, in one transaction."""
        return self.multi([Delete(path) for path in sorted(self._owned.get(session, ()))])

    def replay(self, changes: Changes) -> None:
        """Apply a transaction that was decided before. It must be a later one and must fit.

        Versions and zxids follow from what the tree has; those in the changes are not read.
        """
        if changes.zxid <= self._zxid:
            raise InvariantViolated(f"Transaction {changes.zxid} follows {self._zxid}.")
        transaction = _Transaction(self, changes.zxid, NO_SESSION)
        for change in changes.changes:
            transaction.repeat(change)
        self._zxid = changes.zxid

    def take_back(self, undo: Undo) -> None:
        """Undo the newest transaction. Undoing any other would mix two histories."""
        if undo.zxid_after != self._zxid:
            raise InvariantViolated(f"Cannot undo {undo.zxid_after} at transaction {self._zxid}.")
        self._restore(undo.former)
        self._zxid = undo.zxid_before

    @classmethod
    def restored(cls, zxid: Zxid, nodes: Iterable[tuple[str, TreeNode]]) -> NodeTree:
        """The tree that `walk` showed when its last transaction was `zxid`."""
        tree = cls()
        for path, node in nodes:
            if path != ROOT and parent_path(path) not in tree._nodes:
                raise InvariantViolated(f"The node {path!r} comes before its parent.")
            tree._put(path, node)
        tree._zxid = zxid
        return tree

    def _finish(self, transaction: _Transaction, results: MultiResult) -> Applied:
        before = self._zxid
        changes = None
        if transaction.changes:
            changes = Changes(transaction.zxid, tuple(transaction.changes))
            self._zxid = transaction.zxid
        return Applied(results, changes, Undo(before, self._zxid, tuple(transaction.former[::-1])))

    def _restore(self, former: Iterable[tuple[str, TreeNode | None]]) -> None:
        for path, node in former:
            if node is None:
                self._remove(path)
            else:
                self._put(path, node)

    def _put(self, path: str, node: TreeNode) -> None:
        self._nodes[path] = node
        if path != ROOT:
            self._children.setdefault(parent_path(path), set()).add(name_of(path))
        if node.stat.is_ephemeral:
            self._owned.setdefault(node.stat.owner, set()).add(path)

    def _remove(self, path: str) -> None:
        node = self._nodes.pop(path)
        parent = parent_path(path)
        _discard(self._children, parent, name_of(path))
        if node.stat.is_ephemeral:
            _discard(self._owned, node.stat.owner, path)


class _Transaction:
    """One multi on its way. `former` is what each step replaced, oldest first."""

    def __init__(self, tree: NodeTree, zxid: Zxid, session: SessionId) -> None:
        self._tree = tree
        self._session = session
        self.zxid = zxid
        self.changes: list[NodeChange] = []
        self.former: list[tuple[str, TreeNode | None]] = []

    def carry_out(self, index: int, operation: Operation) -> OperationResult:
        """Do one operation or raise, with its index, what refuses it."""
        match operation:
            case Create():
                return Created(self._create(index, operation))
            case SetData(path, data, version):
                node = self._expect(index, path, version)
                return DataSet(self._set_data(path, node, data))
            case Delete(path, version):
                self._expect(index, path, version)
                if path == ROOT or self._tree.has_children(path):
                    raise NotEmpty(path, index)
                self._delete(path)
                return Deleted()
            case Check(path, version):
                self._expect(index, path, version)
                return Checked()
            case _:
                assert_never(operation)

    def repeat(self, change: NodeChange) -> None:
        """Do a change that was decided before."""
        match change:
            case NodeCreated(path, data, stat):
                if path in self._tree or parent_path(path) not in self._tree:
                    raise InvariantViolated(f"Transaction {self.zxid} cannot create {path!r}.")
                self._add(path, TreeNode(data, NodeStat(self.zxid, self.zxid, 0, stat.owner)))
            case NodeDataSet(path, data, _):
                node = self._tree.get(path)
                if node is None:
                    raise InvariantViolated(f"Transaction {self.zxid} cannot change {path!r}.")
                self._set_data(path, node, data)
            case NodeDeleted(path):
                if path not in self._tree or self._tree.has_children(path):
                    raise InvariantViolated(f"Transaction {self.zxid} cannot delete {path!r}.")
                self._delete(path)
            case _:
                assert_never(change)

    def _create(self, index: int, operation: Create) -> str:
        path = operation.path
        needs_name = not operation.sequential
        if not is_valid_path(path if needs_name else path + "0" * _SEQUENCE_DIGITS):
            raise InvalidPath(path, index)
        if operation.ephemeral and self._session == NO_SESSION:
            raise InvalidPath(path, index)
        parent = self._tree.get(parent_path(path))
        if parent is None:
            raise NoNode(path, index)
        if operation.sequential:
            path = f"{path}{parent.children_created:0{_SEQUENCE_DIGITS}d}"
        if path in self._tree:
            raise NodeExists(path, index)
        if parent.stat.is_ephemeral:
            raise NoChildrenForEphemerals(path, index)
        owner = self._session if operation.ephemeral else NO_SESSION
        stat = NodeStat(self.zxid, self.zxid, version=0, owner=owner)
        self._add(path, TreeNode(operation.data, stat))
        return path

    def _expect(self, index: int, path: str, version: int) -> TreeNode:
        node = self._tree.get(path)
        if node is None:
            raise NoNode(path, index) if is_valid_path(path) else InvalidPath(path, index)
        if version not in (ANY_VERSION, node.stat.version):
            raise BadVersion(path, index)
        return node

    def _add(self, path: str, node: TreeNode) -> None:
        parent = parent_path(path)
        above = self._tree._nodes[parent]
        self._replace(parent, replace(above, children_created=above.children_created + 1))
        self._replace(path, node)
        self.changes.append(NodeCreated(path, node.data, node.stat))

    def _set_data(self, path: str, node: TreeNode, data: bytes) -> NodeStat:
        stat = replace(node.stat, modified_zxid=self.zxid, version=node.stat.version + 1)
        self._replace(path, replace(node, data=data, stat=stat))
        self.changes.append(NodeDataSet(path, data, stat))
        return stat

    def _delete(self, path: str) -> None:
        self.former.append((path, self._tree.get(path)))
        self._tree._remove(path)
        self.changes.append(NodeDeleted(path))

    def _replace(self, path: str, node: TreeNode) -> None:
        self.former.append((path, self._tree.get(path)))
        self._tree._put(path, node)


def is_valid_path(path: str) -> bool:
    """ZooKeeper's rules: absolute, no empty, `.` or `..` component, no NUL or surrogate."""
    if path == ROOT:
        return True
    if not path.startswith(ROOT):
        return False
    parts = path[1:].split("/")
    return all(part not in ("", ".", "..") for part in parts) and not any(
        character == "\0" or "\ud800" <= character <= "\udfff" for character in path
    )


def parent_path(path: str) -> str:
    """The path of the node above. The root is its own parent."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """The last component of a path."""
    return path.rpartition("/")[2]


def child_path(parent: str, name: str) -> str:
    """The path of the child `name` of `parent`."""
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"


def _new_root() -> TreeNode:
    return TreeNode(b"", NodeStat(Zxid(0), Zxid(0), version=0))


def _discard(sets: dict[_Key, set[str]], key: _Key, member: str) -> None:
    members = sets[key]
    members.discard(member)
    if not members:
        del sets[key]
