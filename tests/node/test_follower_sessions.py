"""Fetch sessions of followers visit only partitions with news, and answer as full fetches do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import ErrorCode
from strandline.node.effects import Chunk
from strandline.node.fetch_reading import FollowerReader
from strandline.node.fetch_sessions import EVICTION_AFTER_MS
from strandline.node.follower_sessions import Followed
from strandline.protocol.messages.fetch import FetchRequest
from strandline.replication.policies import Policies, RecordLag, TimeLag
from strandline.replication.progress import Progress
from strandline.storage.log_reader import LogSlice
from strandline.types import BrokerId, Offset
from tests.node.followers import FETCH_VERSION, B, C, Cluster
from tests.node.messages import fetch, fetched, values
from tests.node.world import Client, World

MakeCluster: TypeAlias = Callable[..., Cluster]


@dataclass
class Follower:
    """A broker that follows several topics over one session, as real ones do."""

    cluster: Cluster
    broker_id: BrokerId
    topics: tuple[str, ...]
    offsets: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    told: dict[str, dict[str, int]] = field(default_factory=dict)
    session: tuple[int, int] = (0, 0)

    def request(self, *, max_wait_ms: int = 0) -> FetchRequest:
        """All partitions at first, then those of which there is something new to say."""
        request = None
        for topic in self.topics:
            asked = {
                "fetch_offset": self.offsets.get(topic, 0),
                "log_start_offset": self.starts.get(topic, 0),
                "leader_epoch": self.cluster.state(topic).leader_epoch,
            }
            if self.session[1] and self.told.get(topic) == asked:
                continue
            self.told[topic] = asked
            single = self.cluster.fetch_request(
                self.broker_id,
                asked["fetch_offset"],
                topic,
                log_start_offset=asked["log_start_offset"],
                max_wait_ms=max_wait_ms,
                session=self.session,
            )
            if request is None:
                request = single
            else:
                request.topics += single.topics
        if request is None:
            topic = self.topics[0]
            request = self.cluster.fetch_request(
                self.broker_id, 0, topic, max_wait_ms=max_wait_ms, session=self.session
            )
            request.topics = []
        return request

    def fetch(self, *, max_wait_ms: int = 0) -> dict[str, Any]:
        """One round; what the partitions in the answer say, by topic."""
        client = self.cluster.client_of(self.broker_id)
        before = len(client.answers)
        client.send(self.request(max_wait_ms=max_wait_ms), FETCH_VERSION)
        self.cluster.world.turn()
        if len(client.answers) == before:
            self.cluster.world.advance(max_wait_ms)
        return self.take(client.answers[before])

    def take(self, answer: Any) -> dict[str, Any]:
        assert answer.error_code == 0, answer
        self.session = (answer.session_id, self.session[1] + 1)
        names = {topic.topic_id: topic for topic in answer.responses}
        found: dict[str, Any] = {}
        for topic in self.topics:
            topic_id = self.cluster.world.node.metadata.image.topics[topic].topic_id
            if topic_id not in names:
                continue
            (partition,) = names[topic_id].partitions
            found[topic] = partition
            if partition.error_code:
                continue
            self.starts[topic] = max(self.starts.get(topic, 0), partition.log_start_offset)
            if partition.records:
                log = self.cluster.replica(topic).log
                self.offsets[topic] = log.log_end_offset
        return found


@pytest.fixture
def pair(make_cluster: MakeCluster) -> Cluster:
    """Two topics on brokers 1 and 2, with a short lag."""
    cluster = make_cluster("replica.lag.time.max.ms=1000")
    for topic in ("busy", "quiet"):
        cluster.create_topic(topic, replicas=(1, 2))
    return cluster


def follower_of(cluster: Cluster) -> Follower:
    """Broker 2, after its session has settled."""
    follower = Follower(cluster, B, ("busy", "quiet"))
    for _ in range(3):
        follower.fetch()
    assert follower.fetch() == {}
    return follower


def test_quiet_partitions_are_not_looked_at(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = follower_of(pair)
    looked_at: list[str] = []
    read = FollowerReader.read

    def spy(self: FollowerReader, replica: Any, *args: Any, **more: Any) -> None:
        looked_at.append(replica.topic_partition.topic)
        read(self, replica, *args, **more)

    monkeypatch.setattr(FollowerReader, "read", spy)
    follower.fetch()
    assert looked_at == []
    pair.produce(b"m", topic="busy")
    assert set(follower.fetch()) == {"busy"}
    follower.fetch()
    assert set(looked_at) == {"busy"}


def test_what_was_quiet_wakes_a_parked_fetch(pair: Cluster) -> None:
    follower = follower_of(pair)
    client = pair.client_of(B)
    client.send(follower.request(max_wait_ms=500), FETCH_VERSION)
    pair.world.turn()
    before = len(client.answers)
    pair.produce(b"m", topic="quiet")
    assert values(client.answers[before]) == [b"m"]


def test_a_long_quiet_time_is_no_lag(pair: Cluster) -> None:
    """The follower had everything at its last fetch, although that did not name the partition."""
    follower = follower_of(pair)
    for _ in range(20):
        pair.world.advance(490)
        assert follower.fetch() == {}
    pair.produce(b"m", topic="quiet")
    pair.world.advance(600)  # there is a check in between; the last fetch is 600 ms ago
    assert pair.recorder.sets == []
    pair.world.advance(1_000)
    assert pair.recorder.sets == [{1}]


def test_a_moved_high_watermark_is_told_with_the_next_answer(pair: Cluster) -> None:
    follower = follower_of(pair)
    pair.produce(b"m", topic="quiet")
    follower.fetch()
    (partition,) = follower.fetch().values()
    assert partition.high_watermark == 1
    assert follower.fetch() == {}
    pair.replica("quiet").log.retention.delete_records_to(Offset(1))
    pair.replica("quiet").changed()
    (partition,) = follower.fetch().values()
    assert partition.log_start_offset == 1


def test_r31_the_leader_epoch_of_a_session_follows_the_client(pair: Cluster) -> None:
    """KAFKA-9338: a cached epoch that stayed behind would fence the follower for ever."""
    follower = follower_of(pair)
    pair.set_state("quiet")
    told, follower.told = follower.told, {"busy": follower.told["busy"], "quiet": {}}
    follower.told["quiet"] = {**told["quiet"], "leader_epoch": 1}  # it has not heard of it yet
    (partition,) = follower.fetch().values()
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    (partition,) = follower.fetch().values()
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    follower.told["quiet"] = {}
    (partition,) = follower.fetch().values()
    assert partition.error_code == 0
    assert follower.fetch() == {}


def test_lost_leadership_and_deletion_are_told(pair: Cluster) -> None:
    follower = follower_of(pair)
    pair.set_state("quiet", leader=2)
    client = pair.client_of(B)
    request = follower.request(max_wait_ms=500)
    client.send(request, FETCH_VERSION)
    pair.world.turn()
    (partition,) = follower.take(client.answers[-1]).values()
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    topic_id = pair.world.node.metadata.image.topics["busy"].topic_id
    pair.world.delete_topic("busy")
    request = FetchRequest(
        replica_state=request.replica_state,
        max_bytes=1000,
        session_id=follower.session[0],
        session_epoch=follower.session[1],
    )
    answer = client.ask(request, FETCH_VERSION)
    assert fetched(answer)[topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_forgotten_partition_is_not_listened_to(pair: Cluster) -> None:
    follower = follower_of(pair)
    quiet = pair.replica("quiet")
    assert len(quiet.listeners) == 1
    request = follower.request()
    request.forgotten_topics_data = fetch(forgotten=((quiet.topic_id, 0),)).forgotten_topics_data
    pair.client_of(B).ask(request, FETCH_VERSION)
    assert quiet.listeners == []
    assert len(pair.replica("busy").listeners) == 1


def test_a_session_that_is_left_behind_ends(pair: Cluster) -> None:
    """A follower whose connection broke begins a new one, and says nothing of the old."""
    first = follower_of(pair)
    pair.client_of(B).close()
    second = follower_of(pair)
    assert second.session[0] != first.session[0]
    assert len(pair.replica("quiet").listeners) == 1
    request = first.request()
    answer = pair.client_of(B).ask(request, FETCH_VERSION)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # Another fetcher of the same broker, for other partitions, has its own.
    pair.create_topic("more", replicas=(1, 2))
    third = Follower(pair, B, ("more",))
    third.fetch()
    assert second.fetch() == {}


def test_what_a_session_remembers_does_not_undo_what_another_fetch_told(pair: Cluster) -> None:
    """Here the follower has lost a record, and says so without the session."""
    follower = follower_of(pair)
    pair.produce(b"m", topic="busy")
    for _ in range(4):
        follower.fetch()
    assert pair.remote("busy") == {2: 1}
    pair.fetch(B, 0, "busy")
    pair.produce(b"m", topic="busy")
    assert pair.remote("busy") == {2: 0}


def test_a_follower_that_asks_again_is_told_again(pair: Cluster) -> None:
    """It takes no partition from an answer that was on its way when it asked anew."""
    pair.set_state("busy", isr=(1,))
    follower = follower_of(pair)
    client = pair.client_of(B)
    client.send(follower.request(max_wait_ms=500), FETCH_VERSION)
    pair.produce(b"m", topic="busy")
    follower.take(client.answers[-1])
    answers = []
    for _ in range(2):
        before = len(client.answers)
        follower.told = {}
        client.send(follower.request(max_wait_ms=500), FETCH_VERSION)
        pair.world.turn()
        answers += client.answers[before:]
        follower.session = (follower.session[0], follower.session[1] + 1)
    assert len(answers) == 1
    pair.world.advance(500)
    answers.append(client.answers[-1])
    topic_id = pair.replica("busy").topic_id
    assert [fetched(answer)[topic_id, 0].high_watermark for answer in answers] == [1, 1]


@pytest.mark.parametrize("short", [False, True], ids=["general", "short"])
def test_a_request_does_not_wait_for_the_one_before(pair: Cluster, short: bool) -> None:
    follower = follower_of(pair)
    client = pair.client_of(B)
    for _ in range(2):
        before = len(client.answers)
        follower.told.pop("busy")
        if not short:
            client.connection.fast_path = None
        client.send(follower.request(max_wait_ms=500), FETCH_VERSION)
        follower.session = (follower.session[0], follower.session[1] + 1)
    pair.world.turn()
    assert len(client.answers) == before + 1
    pair.world.advance(500)
    assert len(client.answers) == before + 2


def test_under_another_rule_of_lag_every_fetch_counts(pair: Cluster) -> None:
    """What `TimeLag` does not ask of a quiet partition, another rule may."""
    pair.world.node.replicas.host.policies = Policies(lag=RecordLag(5))
    for topic in ("busy", "quiet"):
        pair.set_state(topic)
    follower = follower_of(pair)
    for _ in range(10):
        pair.world.advance(490)
        follower.fetch()
    assert pair.recorder.sets == []
    pair.world.advance(2_000)
    assert pair.recorder.sets == [{1}, {1}]


def test_a_replica_whose_joining_was_refused_tries_again(pair: Cluster) -> None:
    pair.set_state("quiet", isr=(1,))
    follower = follower_of(pair)
    proposals = len(pair.recorder.sets)
    assert proposals
    pair.replica("quiet").in_sync_refused(ErrorCode.INELIGIBLE_REPLICA, pair.world.now)
    assert follower.fetch() == {}
    assert pair.recorder.sets[proposals:] == [{1, 2}]


def test_another_registration_counts_for_quiet_partitions_too(pair: Cluster) -> None:
    """The session of a broker outlives its registration with the metadata store (KIP-903)."""
    follower = follower_of(pair)
    pair.register(B)
    follower.fetch()
    for topic in ("busy", "quiet"):
        leader = pair.replica(topic).leader
        assert leader is not None
        assert leader.progress[B].broker_epoch == pair.epoch_of(B)


def test_a_former_life_is_refused_quiet_partitions_too(pair: Cluster) -> None:
    follower = follower_of(pair)
    request = follower.request()
    pair.register(B)
    for topic in ("busy", "quiet"):
        pair.set_state(topic, isr=(1, 2), new_epoch=False)
    follower.fetch()
    answer = pair.client_of(B).ask(
        FetchRequest(
            replica_state=request.replica_state,
            max_bytes=1000,
            session_id=follower.session[0],
            session_epoch=follower.session[1],
        ),
        FETCH_VERSION,
    )
    codes = [partition.error_code for partition in fetched(answer).values()]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_r31_followers_are_never_refused_a_session_for_consumers(
    make_cluster: MakeCluster,
) -> None:
    """KAFKA-9137: who has just been used stays, unless a follower needs the room."""
    cluster = make_cluster("max.incremental.fetch.session.cache.slots=2")
    for topic in ("busy", "quiet"):
        cluster.create_topic(topic, replicas=(1, 2, 3))
    client = cluster.world.connect()

    def open_one() -> int:
        wanted = ("busy", 0, 0), ("quiet", 0, 0)
        return int(client.ask(fetch(*wanted, session=(0, 0)), 11).session_id)

    def is_there(session_id: int) -> bool:
        answer = client.ask(fetch(session=(session_id, 1)), 11)
        return int(answer.error_code) == 0

    first, second = open_one(), open_one()
    assert first
    assert second
    assert open_one() == 0
    followers = [Follower(cluster, broker, ("busy",)) for broker in (B, C)]
    for follower in followers:
        follower.fetch()
        assert follower.session[0] > 0
    assert not is_there(first)
    assert not is_there(second)
    # A consumer does not push a follower out, however old its session is, if it is in use.
    for _ in range(3):
        cluster.world.advance(EVICTION_AFTER_MS // 2)
        for follower in followers:
            follower.fetch()
    assert open_one() == 0


# -- The same as looking at everything -------------------------------------------------------


class EagerTimeLag:
    """`TimeLag` under another name: sessions that do not know it look at everything."""

    def is_caught_up(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> bool:
        return TimeLag().is_caught_up(progress, log_end_offset, now_ms, lag_max_ms)

    def lapses_at_ms(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> int | None:
        return TimeLag().lapses_at_ms(progress, log_end_offset, now_ms, lag_max_ms)


TOPICS = ("x", "y", "z")
ACTIONS = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from(TOPICS)),
    st.tuples(st.just("fetch"), st.sampled_from([B, C])),
    st.tuples(st.just("fetch"), st.sampled_from([B, C])),
    st.tuples(st.just("wait"), st.sampled_from([B, C])),
    st.tuples(st.just("advance"), st.sampled_from([1, 100, 450, 700, 2_000])),
    st.tuples(st.just("elect"), st.sampled_from(TOPICS)),
    st.tuples(st.just("commit"), st.sampled_from(TOPICS)),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
    st.tuples(st.just("remove"), st.sampled_from(TOPICS)),
    st.tuples(st.just("register"), st.sampled_from([B, C])),
)


class Play:
    """One cluster with two followers; their fetches may be barred from the fast path."""

    def __init__(self, policies: Policies, *, short: bool = True) -> None:
        self.short = short
        self.cluster = Cluster("replica.lag.time.max.ms=1000")
        self.cluster.world.node.replicas.host.policies = policies
        for topic in TOPICS:
            self.cluster.create_topic(topic)
        self.followers = {broker: Follower(self.cluster, broker, TOPICS) for broker in (B, C)}

    def do(self, action: str, what: Any) -> Any:
        """Everything that a client can see of an action."""
        cluster = self.cluster
        seen: Any = None
        match action:
            case "produce":
                cluster.produce(b"m", topic=what)
            case "fetch" | "wait":
                if not self.short:
                    cluster.client_of(what).connection.fast_path = None
                seen = self.followers[what].fetch(max_wait_ms=50 if action == "wait" else 0)
            case "advance":
                cluster.world.advance(what)
            case "elect":
                cluster.set_state(what)
            case "commit":
                leader = cluster.replica(what).leader
                assert leader is not None
                members = tuple(sorted(leader.in_sync.proposed))
                cluster.set_state(what, isr=members, new_epoch=False)
            case "delete":
                log = cluster.replica(what).log
                log.retention.delete_records_to(log.high_watermark)
                cluster.replica(what).changed()
            case "remove":
                cluster.set_state(what, isr=(1,), new_epoch=False)
            case "register":
                cluster.register(what)
        cluster.world.turn()
        state = [
            (cluster.offsets(topic), cluster.remote(topic), self._in_sync(topic))
            for topic in TOPICS
        ]
        return seen, state, cluster.recorder.sets

    def _in_sync(self, topic: str) -> Any:
        leader = self.cluster.replica(topic).leader
        assert leader is not None
        return leader.in_sync


@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(ACTIONS, min_size=5, max_size=40))
def test_looking_at_the_news_is_as_good_as_looking_at_everything(
    actions: list[tuple[str, Any]],
) -> None:
    news, everything = Play(Policies()), Play(Policies(lag=EagerTimeLag()))
    general = Play(Policies(), short=False)
    for action, what in actions:
        expected = everything.do(action, what)
        assert news.do(action, what) == expected, (action, what)
        assert general.do(action, what) == expected, (action, what)
    for play in (news, everything, general):
        play.cluster.world.check()


# -- The fast path ---------------------------------------------------------------------------


class RawClient(Client):
    """Keeps bytes instead of reading them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.received = bytearray()

    def take(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                self.received += chunk.file.read_at(chunk.position, chunk.length)
            else:
                self.received += chunk


class Side:
    """One node whose follower's requests come as bytes."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.cluster = Cluster()
        self.cluster.create_topic("busy", replicas=(1, 2))
        self.follower = Follower(self.cluster, B, ("busy",))
        self.follower.fetch()
        self.raw = self._connect()

    def _connect(self) -> RawClient:
        world = self.cluster.world
        client = RawClient(world)
        world.clients[client.connection.id] = client
        # The first request on a connection teaches it the fast path.
        other = fetch(session=(0, -1))
        other.replica_state = self.cluster.fetch_request(B, 0, "busy").replica_state
        client.send_frame(client.frame(other, FETCH_VERSION)[0])
        world.turn()
        client.received.clear()
        return client

    def frame(self) -> bytearray:
        """What the follower would send next."""
        log = self.cluster.replica("busy").log
        request = self.cluster.fetch_request(
            B, log.log_end_offset - 1, "busy", session=self.session()
        )
        return self.raw.frame(request, FETCH_VERSION)[0]

    def session(self) -> tuple[int, int]:
        """The follower's session and its next epoch; a new one if it is gone."""
        if not self.cluster.replica("busy").listeners:
            self.follower.session, self.follower.told = (0, 0), {}
            self.follower.fetch()
        (entry,) = self.cluster.replica("busy").listeners
        assert isinstance(entry, Followed)
        assert entry.session is not None
        return entry.session.id, entry.session.epoch

    def send(self, frame: bytes) -> Any:
        """Everything that a client can see of it."""
        if not self.short:
            self.raw.connection.fast_path = None
        self.raw.send_frame(frame)
        self.cluster.world.turn()
        self.cluster.world.advance(1)
        received, self.raw.received = bytes(self.raw.received), bytearray()
        closed = self.raw.closed
        if closed is not None:
            self.raw = self._connect()
        return received, closed, self.cluster.offsets("busy"), self.cluster.remote("busy")


def test_the_fast_path_of_a_fetch_is_taken_at_all() -> None:
    side = Side(short=True)
    side.cluster.produce(b"m", topic="busy")
    side.cluster.produce(b"m", topic="busy")
    frame = side.frame()
    path = side.raw.connection.fast_path
    assert path is not None
    assert path.maybe_handle(memoryview(bytearray(frame)), side.cluster.world.now)
    assert side.cluster.offsets("busy") == (2, 1)
    side.cluster.world.turn()
    # Its epoch has passed: that is for the general way to refuse.
    assert not path.maybe_handle(memoryview(bytearray(frame)), side.cluster.world.now)


@pytest.mark.parametrize("mask", [1, 0x80, 0xFF])
def test_a_damaged_fetch_is_the_same_both_ways(mask: int) -> None:
    """Each byte of the request in turn, with an intact request between."""
    short, general = Side(short=True), Side(short=False)
    size = len(short.frame())
    assert len(general.frame()) == size
    for at in range(size):
        for side in (short, general):
            side.cluster.produce(b"m", topic="busy")
        for damage in (mask, 0):
            frames = [side.frame() for side in (short, general)]
            assert frames[0] == frames[1]
            frames[0][at] ^= damage
            answers = [side.send(bytes(frames[0])) for side in (short, general)]
            assert answers[0] == answers[1], (at, damage)
