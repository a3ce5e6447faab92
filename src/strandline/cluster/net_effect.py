"""What several transactions changed together, for a listener that hears of them at once.

Knows paths and stats, not what nodes mean. Theory: for a node that was there before and is there
after, only the last state counts; but if it was deleted and made again, that is told too, since its
`created_zxid` is what distinguishes a restarted broker from one that never left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import assert_never

from strandline.cluster.store import (
    NO_ZXID,
    Changes,
    NodeChange,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    StoredNode,
)


@dataclass(frozen=True, slots=True)
class _Net:
    """One node: was it there before, is what is there now another node, and what is that?"""

    existed: bool
    is_another: bool
    now: StoredNode | None


class NetEffect:
    """Gathers `Changes` and gives their net effect. Its size is bounded by that of the trees."""

    def __init__(self) -> None:
        self._zxid = NO_ZXID
        self._nodes: dict[str, _Net] = {}

    def add(self, changes: Changes) -> None:
        """Take in the next transaction."""
        self._zxid = changes.zxid
        for change in changes.changes:
            net = self._nodes.get(change.path)
            match change:
                case NodeCreated(path, data, stat):
                    existed = net is not None and net.existed
                    self._nodes[path] = _Net(existed, True, StoredNode(path, data, stat))
                case NodeDataSet(path, data, stat):
                    node = StoredNode(path, data, stat)
                    self._nodes[path] = (
                        _Net(True, False, node)
                        if net is None
                        else _Net(net.existed, net.is_another, node)
                    )
                case NodeDeleted(path):
                    self._nodes[path] = _Net(net is None or net.existed, True, None)
                case _:
                    assert_never(change)

    def take(self) -> Changes | None:
        """The net effect of everything since the last call; None if there is none."""
        deleted: list[str] = []
        created: list[StoredNode] = []
        data_set: list[StoredNode] = []
        for path, net in self._nodes.items():
            if net.existed and net.is_another:
                deleted.append(path)
            if net.now is not None:
                (created if net.is_another else data_set).append(net.now)
        self._nodes = {}
        changes = in_order(deleted, created=created, data_set=data_set)
        return Changes(self._zxid, changes) if changes else None


def difference(
    told: MutableMapping[str, StoredNode], found: Mapping[str, StoredNode | None]
) -> tuple[NodeChange, ...]:
    """What to tell of nodes that were found to be so (None: gone), in the order for it.

    `told` is what the listener knows, and is brought up to date.
    """
    deleted: list[str] = []
    created: list[StoredNode] = []
    data_set: list[StoredNode] = []
    for path, node in found.items():
        before = told.get(path)
        is_another = not _is_same_node(before, node)
        if before is not None and is_another:
            deleted.append(path)
            del told[path]
        if node is None or node == before:
            continue
        told[path] = node
        (created if is_another else data_set).append(node)
    return in_order(deleted, created=created, data_set=data_set)


def in_order(
    deleted: Iterable[str], *, created: Iterable[StoredNode], data_set: Iterable[StoredNode]
) -> tuple[NodeChange, ...]:
    """These changes in an order in which a tree can follow them.

    Deletions come first, children before parents; then the rest, parents before children.
    """
    gone = sorted(deleted, key=lambda path: (-path.count("/"), path))
    put: list[NodeCreated | NodeDataSet] = [
        *(NodeCreated(node.path, node.data, node.stat) for node in created),
        *(NodeDataSet(node.path, node.data, node.stat) for node in data_set),
    ]
    put.sort(key=lambda change: (change.path.count("/"), change.path))
    return (*map(NodeDeleted, gone), *put)


def _is_same_node(before: StoredNode | None, now: StoredNode | None) -> bool:
    return (
        before is not None and now is not None and before.stat.created_zxid == now.stat.created_zxid
    )
