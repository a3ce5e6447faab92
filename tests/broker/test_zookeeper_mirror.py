"""The mirror against a model of a server: every cut is a state that existed, and none goes back."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from strandline.broker.zookeeper_mirror import ROUNDS_MAX, Mirror
from strandline.broker.zookeeper_requests import NodeRead, Read, ReadAnswer, Unreadable
from strandline.cluster.store import (
    Changes,
    Create,
    Delete,
    MultiRefused,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeStat,
    Operation,
    SessionId,
    SetData,
    StoredNode,
    Zxid,
)
from strandline.cluster.tree import ROOT, NodeTree

State = dict[str, StoredNode]
Wire = str | tuple[list[Read], list[ReadAnswer], Zxid, State]


class Server:
    """A tree, the requests of one connection, and what is on the wire back, in its order."""

    def __init__(self) -> None:
        self.tree = NodeTree()
        self.requests: deque[list[Read]] = deque()
        self.wire: deque[Wire] = deque()
        self.is_watched = False

    def commit(self, operations: list[Operation]) -> bool:
        try:
            changes = self.tree.multi(operations, SessionId(1)).changes
        except MultiRefused:
            return False
        if changes is not None and self.is_watched:
            self.wire.extend(change.path for change in changes.changes)
        return True

    def state(self) -> State:
        return {node.path: node for node in self.tree.view().nodes}

    def serve(self) -> None:
        reads = self.requests.popleft()
        answers = [self._answer(read) for read in reads]
        self.wire.append((reads, answers, self.tree.zxid, self.state()))

    def _answer(self, read: Read) -> ReadAnswer:
        node = self.tree.get(read.path)
        if node is None:
            return None
        children = self.tree.children(read.path)
        return children if read.children else NodeRead(node.data, node.stat, len(children))


class Reader:
    """A mirror and its listener, driven as the store drives them."""

    def __init__(self, server: Server, roots: tuple[str, ...] = (ROOT,)) -> None:
        self.roots = [root.rstrip("/") for root in roots]
        self.mirror = Mirror(roots)
        self.server = server
        self.told: State = {}
        self.told_round = 0
        self.zxid = Zxid(0)
        self.whole_cuts = 0
        self.tired_cuts = 0

    def connect(self) -> None:
        self.server.is_watched = True
        self.mirror.survey()
        self._ask()

    def disconnect(self) -> None:
        self.server.is_watched = False
        self.server.requests.clear()
        self.server.wire.clear()
        self.mirror.abort()

    def receive(self) -> None:
        match self.server.wire.popleft():
            case str(path):
                self.mirror.changed(path)
            case reads, answers, zxid, state:
                self.mirror.answered(reads, answers)
                if self.mirror.may_publish:
                    self._tell(zxid, state)
        self._ask()

    def settle(self) -> None:
        while self.server.requests or self.server.wire:
            if self.server.wire:
                self.receive()
            else:
                self.server.serve()

    def _ask(self) -> None:
        reads = self.mirror.next_round()
        half = len(reads) // 2
        self.server.requests.extend(part for part in (reads[:half], reads[half:]) if part)

    def _tell(self, zxid: Zxid, state: State) -> None:
        is_whole = self.mirror.is_settled
        changes = self.mirror.publish(zxid)
        self.told_round = self.mirror.round
        if changes is not None:
            self._apply(changes)
        if is_whole:
            self.whole_cuts += 1
            assert self.told == {path: state[path] for path in state if self._sees(path)}
        else:
            self.tired_cuts += 1

    def _sees(self, path: str) -> bool:
        is_own = path.startswith("/zookeeper")
        return not is_own and any(f"{path}/".startswith(f"{root}/") for root in self.roots)

    def _apply(self, changes: Changes) -> None:
        assert changes.zxid > self.zxid
        self.zxid = changes.zxid
        for change in changes.changes:
            before = self.told.pop(change.path, None)
            match change:
                case NodeCreated(path, data, stat):
                    assert before is None
                    self.told[path] = StoredNode(path, data, stat)
                case NodeDataSet(path, data, stat):
                    assert before is not None
                    assert before.stat.created_zxid == stat.created_zxid
                    assert before.stat.modified_zxid < stat.modified_zxid
                    self.told[path] = StoredNode(path, data, stat)
                case NodeDeleted():
                    assert before is not None


def random_multi(random: Random) -> list[Operation]:
    def path() -> str:
        return "/" + "/".join(random.choice("ab") for _ in range(random.randint(1, 3)))

    def operation() -> Operation:
        match random.randrange(5):
            case 0 | 1:
                return Create(path(), random.randbytes(2), ephemeral=random.random() < 0.2)
            case 2:
                return SetData(path(), random.randbytes(2))
            case _:
                return Delete(path())

    return [operation() for _ in range(random.choice([1, 1, 1, 2, 3]))]


@pytest.mark.parametrize("seed", range(60))
def test_every_whole_cut_is_a_state_that_existed(seed: int) -> None:
    random = Random(seed)
    server = Server()
    reader = Reader(server)
    for _ in range(20):
        server.commit(random_multi(random))
    reader.connect()
    for _ in range(1500):
        action = random.random()
        if action < 0.3:
            server.commit(random_multi(random))
        elif action < 0.6 and server.requests:
            server.serve()
        elif action < 0.995 and server.wire:
            reader.receive()
        elif action > 0.997:
            reader.disconnect()
            for _ in range(random.randrange(5)):
                server.commit(random_multi(random))
            reader.connect()
    reader.settle()
    assert reader.told == server.state()
    assert reader.mirror.is_settled
    assert reader.whole_cuts > 1


def test_under_changes_without_end_the_mirror_tells_what_it_has() -> None:
    server = Server()
    reader = Reader(server)
    server.commit([Create("/a"), Create("/b")])
    reader.connect()
    reader.settle()
    waited_for = None
    for number in range(40):
        # The answer to each read finds that the node was set again.
        server.commit([SetData("/a", str(number).encode())])
        if number == 3:
            server.commit([SetData("/b", b"mine")])
        if number == 4:
            waited_for = reader.mirror.settled_with
        if server.requests:
            server.serve()
            server.commit([SetData("/a", b"")])
        while server.wire:
            reader.receive()
        if waited_for is not None and reader.told_round >= waited_for:
            break
    assert waited_for is not None
    assert reader.told_round >= waited_for
    assert reader.told["/b"].data == b"mine"
    assert reader.tired_cuts >= 1
    assert number < 4 + 2 * ROUNDS_MAX + 2
    reader.settle()
    assert reader.told == server.state()


def test_what_a_survey_must_discover_is_not_cut_short() -> None:
    server = Server()
    server.commit([Create("/a"), Create("/a/b"), Create("/a/b/c"), Create("/z")])
    reader = Reader(server)
    reader.connect()
    for _ in range(100):
        server.commit([SetData("/z", b"")])
        if server.requests:
            server.serve()
            server.commit([SetData("/z", b"")])
        while server.wire:
            reader.receive()
        if reader.told:
            break
    assert set(reader.told) == {"/a", "/a/b", "/a/b/c", "/z"}


def test_only_the_roots_are_read_and_never_zookeepers_own_nodes() -> None:
    server = Server()
    server.commit([Create("/zookeeper"), Create("/zookeeper/quota"), Create("/other")])
    server.commit([Create("/brokers"), Create("/brokers/ids")])
    reader = Reader(server, ("/brokers", "/controller"))
    reader.connect()
    reader.settle()
    assert set(reader.told) == {"/brokers", "/brokers/ids"}
    whole = Reader(server)
    whole.connect()
    assert server.commit([SetData("/zookeeper/quota", b"1"), SetData("/other", b"2")])
    whole.settle()
    assert set(whole.told) == {"/brokers", "/brokers/ids", "/other"}


def test_a_node_that_was_made_again_between_two_surveys_is_told_as_another() -> None:
    server = Server()
    server.commit([Create("/ids"), Create("/ids/1", b"x", ephemeral=True)])
    reader = Reader(server)
    reader.connect()
    reader.settle()
    before = reader.told["/ids/1"]
    reader.disconnect()
    server.commit([Delete("/ids/1")])
    server.commit([Create("/ids/1", b"x", ephemeral=True)])
    reader.connect()
    reader.settle()
    assert reader.told["/ids/1"].stat.created_zxid > before.stat.created_zxid


def test_the_owner_of_what_was_found_is_known_until_the_cut_ends() -> None:
    mirror = Mirror(("/a",))
    mirror.survey()
    reads = mirror.next_round()
    owned = NodeStat(Zxid(1), Zxid(1), 0, owner=SessionId(7))
    mirror.answered(reads, [NodeRead(b"", owned, 0)])
    assert mirror.owned_by([SessionId(6)]) == []
    assert mirror.owned_by([SessionId(6), SessionId(7)]) == ["/a"]
    mirror.publish(Zxid(1))
    assert mirror.owned_by([SessionId(7)]) == []


def test_a_server_behind_what_was_told_is_recognised() -> None:
    server = Server()
    server.commit([Create("/a")])
    server.commit([Create("/b")])
    reader = Reader(server)
    reader.connect()
    reader.settle()
    assert reader.mirror.is_older_than_published(Zxid(1))
    assert not reader.mirror.is_older_than_published(Zxid(2))


def test_what_may_not_be_read_is_named() -> None:
    mirror = Mirror(("/a",))
    mirror.survey()
    mirror.answered(mirror.next_round(), [Unreadable(-102)])
    assert mirror.may_publish
    assert mirror.unreadable == {"/a": Unreadable(-102)}
    mirror.survey()
    assert not mirror.unreadable
