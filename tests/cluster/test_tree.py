"""The node tree: ZooKeeper's rules one by one, and a random history against a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    MultiRefused,
    NoChildrenForEphemerals,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeExists,
    NodeStat,
    NoNode,
    NotEmpty,
    Operation,
    SessionId,
    SetData,
    Zxid,
)
from strandline.cluster.tree import NodeTree, is_valid_path
from strandline.errors import InvariantViolated

SESSION = SessionId(7)


def contents(tree: NodeTree) -> list[object]:
    return [tree.zxid, tree.owners(), *tree.walk()]


def test_a_multi_counts_versions_and_names_its_transaction() -> None:
    tree = NodeTree()
    first = tree.multi([Create("/a", b"1"), SetData("/a", b"2", 0), Check("/a", 1)])
    stat = NodeStat(Zxid(1), Zxid(1), version=1)
    assert first.results == (Created("/a"), DataSet(stat), Checked())
    assert first.changes == Changes(
        Zxid(1),
        (
            NodeCreated("/a", b"1", NodeStat(Zxid(1), Zxid(1), version=0)),
            NodeDataSet("/a", b"2", stat),
        ),
    )
    second = tree.multi([SetData("/a", b"3")])
    assert second.results == (DataSet(NodeStat(Zxid(1), Zxid(2), version=2)),)
    third = tree.multi([Delete("/a", 2)])
    assert third.results == (Deleted(),)
    assert third.changes == Changes(Zxid(3), (NodeDeleted("/a"),))
    assert len(tree) == 1


def test_a_created_again_node_starts_over_under_a_new_zxid() -> None:
    tree = NodeTree()
    tree.multi([Create("/a"), SetData("/a", b"x")])
    tree.multi([Delete("/a"), Create("/a")])
    node = tree.get("/a")
    assert node is not None
    assert node.stat == NodeStat(Zxid(2), Zxid(2), version=0)


def test_checking_alone_uses_no_transaction() -> None:
    tree = NodeTree()
    applied = tree.multi([Check("/", ANY_VERSION)])
    assert applied.changes is None
    assert tree.zxid == 0


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/x/y"), NoNode),
        (Create("/e/child"), NoChildrenForEphemerals),
        (Create("relative"), InvalidPath),
        (Create("/a/"), InvalidPath),
        (Create("/a//b"), InvalidPath),
        (Create("/a/../b"), InvalidPath),
        (Create("/nul\0"), InvalidPath),
        (Create("/"), NodeExists),
        (SetData("/x", b""), NoNode),
        (SetData("/a", b"", 1), BadVersion),
        (Delete("/x"), NoNode),
        (Delete("/a"), NotEmpty),
        (Delete("/"), NotEmpty),
        (Delete("/a/b", 3), BadVersion),
        (Check("/x"), NoNode),
        (Check("/a", 9), BadVersion),
        (Check("a"), InvalidPath),
    ],
)
def test_a_refused_operation_undoes_the_ones_before_it(
    operation: Operation, error: type[MultiRefused]
) -> None:
    tree = NodeTree()
    tree.multi([Create("/a"), Create("/a/b"), Create("/e", ephemeral=True)], SESSION)
    before = deepcopy(contents(tree))
    earlier: list[Operation] = [
        Create("/new"),
        SetData("/a/b", b"changed"),
        Delete("/e"),
        Create("/e", b"again", ephemeral=True),
        Create("/new/s-", sequential=True),
    ]
    with pytest.raises(error) as caught:
        tree.multi([*earlier, operation], SESSION)
    assert caught.value.index == len(earlier)
    assert caught.value.path == operation.path
    assert contents(tree) == before


def test_an_ephemeral_node_needs_a_session() -> None:
    with pytest.raises(InvalidPath):
        NodeTree().multi([Create("/e", ephemeral=True)])


def test_the_end_of_a_session_deletes_what_it_owns_in_one_transaction() -> None:
    tree = NodeTree()
    tree.multi([Create("/b", ephemeral=True), Create("/a", ephemeral=True)], SESSION)
    tree.multi([Create("/c", ephemeral=True), Delete("/b")], SessionId(8))
    assert tree.owners() == [7, 8]
    assert tree.expire_session(SESSION).changes == Changes(Zxid(3), (NodeDeleted("/a"),))
    assert tree.owners() == [8]
    assert tree.expire_session(SESSION).changes is None


def test_sequential_names_count_creates_and_never_come_again() -> None:
    tree = NodeTree()
    tree.multi([Create("/q"), Create("/q/other")])
    names = tree.multi([Create("/q/n-", sequential=True)] * 2).results
    assert names == (Created("/q/n-0000000001"), Created("/q/n-0000000002"))
    tree.multi([Delete("/q/n-0000000002")])
    again = tree.multi([Create("/q/", sequential=True)]).results
    assert again == (Created("/q/0000000003"),)


def test_a_transaction_is_taken_back_only_when_it_is_the_newest() -> None:
    tree = NodeTree()
    tree.multi([Create("/a")])
    before = deepcopy(contents(tree))
    first = tree.multi([Create("/a/b", b"x", ephemeral=True), SetData("/a", b"y")], SESSION)
    second = tree.multi([Delete("/a/b")])
    with pytest.raises(InvariantViolated):
        tree.take_back(first.undo)
    tree.take_back(second.undo)
    tree.take_back(first.undo)
    assert contents(tree) == before


@pytest.mark.parametrize(
    "changes",
    [
        Changes(Zxid(1), (NodeDeleted("/a"),)),
        Changes(Zxid(2), (NodeDeleted("/missing"),)),
        Changes(Zxid(2), (NodeDeleted("/a"),)),
        Changes(Zxid(2), (NodeCreated("/a", b"", NodeStat(Zxid(2), Zxid(2), 0)),)),
        Changes(Zxid(2), (NodeCreated("/x/y", b"", NodeStat(Zxid(2), Zxid(2), 0)),)),
        Changes(Zxid(2), (NodeDataSet("/x", b"", NodeStat(Zxid(2), Zxid(2), 1)),)),
    ],
)
def test_replaying_what_does_not_fit_is_an_error(changes: Changes) -> None:
    tree = NodeTree()
    tree.multi([Create("/a"), Create("/a/b")])
    with pytest.raises(InvariantViolated):
        tree.replay(changes)


def test_nodes_are_restored_parents_first_or_not_at_all() -> None:
    tree = NodeTree()
    tree.multi([Create("/a"), Create("/a/b")])
    with pytest.raises(InvariantViolated):
        NodeTree.restored(tree.zxid, reversed(list(tree.walk())))


def test_paths_follow_the_rules() -> None:
    assert is_valid_path("/")
    assert is_valid_path("/a.b/..c/ü")
    assert not is_valid_path("")
    assert not is_valid_path("/a/.")
    assert not is_valid_path("/\ud800")


# A model that copies everything and looks everything up the slow way.


@dataclass
class ModelNode:
    data: bytes
    created: int
    modified: int
    version: int
    owner: int
    creates: int = 0


class Model:
    def __init__(self) -> None:
        self.zxid = 0
        self.nodes = {"/": ModelNode(b"", 0, 0, 0, 0)}

    def multi(self, operations: Sequence[Operation], session: int) -> bool:
        nodes = deepcopy(self.nodes)
        changed = False
        for operation in operations:
            if not self._apply(nodes, operation, session):
                return False
            changed |= not isinstance(operation, Check)
        self.zxid += changed
        self.nodes = nodes
        return True

    def _apply(self, nodes: dict[str, ModelNode], operation: Operation, session: int) -> bool:
        path, zxid = operation.path, self.zxid + 1
        if isinstance(operation, Create):
            parent = nodes.get(path[: path.rindex("/")] or "/")
            if parent is None or parent.owner:
                return False
            if operation.sequential:
                path += f"{parent.creates:010d}"
            if path in nodes:
                return False
            parent.creates += 1
            owner = session if operation.ephemeral else 0
            nodes[path] = ModelNode(operation.data, zxid, zxid, 0, owner)
            return True
        if path not in nodes or operation.version not in (-1, nodes[path].version):
            return False
        if isinstance(operation, Delete):
            if path == "/" or any(other.startswith(path + "/") for other in nodes):
                return False
            del nodes[path]
        elif isinstance(operation, SetData):
            nodes[path].data = operation.data
            nodes[path].version += 1
            nodes[path].modified = zxid
        return True


PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a"])
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
MULTIS = st.tuples(st.lists(OPERATIONS, max_size=4), st.sampled_from([SessionId(1), SessionId(2)]))


@given(st.lists(MULTIS, max_size=25), st.data())
def test_the_tree_behaves_like_the_naive_model(
    multis: list[tuple[list[Operation], SessionId]], data: st.DataObject
) -> None:
    tree, replica, model = NodeTree(), NodeTree(), Model()
    for operations, session in multis:
        before = deepcopy(contents(tree))
        try:
            applied = tree.multi(operations, session)
        except MultiRefused:
            assert not model.multi(operations, session)
            assert contents(tree) == before
            continue
        if data.draw(st.booleans(), label="take back"):
            tree.take_back(applied.undo)
            assert contents(tree) == before
            continue
        assert model.multi(operations, session)
        if applied.changes is not None:
            replica.replay(applied.changes)
    assert tree.zxid == model.zxid
    assert {path: (n.data, *_stat(n.stat), n.children_created) for path, n in tree.walk()} == {
        path: (n.data, n.created, n.modified, n.version, n.owner, n.creates)
        for path, n in model.nodes.items()
    }
    assert contents(replica) == contents(tree)
    assert contents(NodeTree.restored(tree.zxid, tree.walk())) == contents(tree)
    assert tree.owners() == sorted({n.owner for n in model.nodes.values()} - {NO_SESSION})
    assert [node.path for node in tree.view().nodes] == [path for path, _ in tree.walk()][1:]


def _stat(stat: NodeStat) -> tuple[int, int, int, int]:
    return stat.created_zxid, stat.modified_zxid, stat.version, stat.owner
