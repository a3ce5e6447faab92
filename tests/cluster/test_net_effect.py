"""The net effect of several transactions leads to the same tree as the transactions."""

from __future__ import annotations

from random import Random

import pytest

from strandline.cluster.net_effect import NetEffect
from strandline.cluster.store import (
    Changes,
    Create,
    Delete,
    MultiRefused,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    Operation,
    SetData,
    StoredNode,
)
from strandline.cluster.tree import NodeTree

Nodes = dict[str, StoredNode]


def state(tree: NodeTree) -> Nodes:
    return {node.path: node for node in tree.view().nodes}


def apply(nodes: Nodes, changes: Changes) -> None:
    """Apply as a strict listener does: each change must fit, parents and children included."""
    for change in changes.changes:
        parent = change.path.rpartition("/")[0]
        match change:
            case NodeCreated(path, data, stat):
                assert path not in nodes
                assert not parent or parent in nodes
                nodes[path] = StoredNode(path, data, stat)
            case NodeDataSet(path, data, stat):
                assert nodes[path].stat.created_zxid == stat.created_zxid
                assert nodes[path].stat.version < stat.version
                nodes[path] = StoredNode(path, data, stat)
            case NodeDeleted(path):
                assert not [other for other in nodes if other.startswith(f"{path}/")]
                del nodes[path]


def random_operation(random: Random) -> Operation:
    path = "/" + "/".join(random.choice("ab") for _ in range(random.randint(1, 3)))
    kinds: list[Operation] = [Create(path), SetData(path, random.randbytes(2)), Delete(path)]
    return random.choice(kinds)


@pytest.mark.parametrize("seed", range(50))
def test_the_net_effect_of_a_random_history(seed: int) -> None:
    random = Random(seed)
    tree = NodeTree()
    nodes: Nodes = {}
    net = NetEffect()
    for _ in range(30):
        before = state(tree)
        for _ in range(random.randrange(12)):
            try:
                changes = tree.multi([random_operation(random)]).changes
            except MultiRefused:
                continue
            assert changes is not None
            net.add(changes)
        told = net.take()
        if told is None:
            assert state(tree) == before
            continue
        assert told.zxid <= tree.zxid
        assert len({change.path for change in told.changes}) * 2 >= len(told.changes)
        apply(nodes, told)
        assert nodes == state(tree)


def test_what_comes_and_goes_between_is_not_told() -> None:
    tree = NodeTree()
    net = NetEffect()
    for operations in ([Create("/a")], [SetData("/a", b"1")], [Delete("/a")]):
        changes = tree.multi(operations).changes
        assert changes is not None
        net.add(changes)
    assert net.take() is None
    assert net.take() is None


def test_a_node_that_was_made_again_is_told_as_deleted_and_made() -> None:
    tree = NodeTree()
    tree.multi([Create("/a")])
    net = NetEffect()
    for operations in ([Delete("/a")], [Create("/a", b"2")], [SetData("/a", b"3")]):
        changes = tree.multi(operations).changes
        assert changes is not None
        net.add(changes)
    told = net.take()
    node = tree.get("/a")
    assert node is not None
    assert told == Changes(tree.zxid, (NodeDeleted("/a"), NodeCreated("/a", b"3", node.stat)))
