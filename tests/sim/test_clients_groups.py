"""Groups: how the simulator drives members, and what the watch finds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from strandline.protocol.messages.fetch import FetchResponse
from strandline.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from strandline.protocol.messages.heartbeat import HeartbeatResponse
from strandline.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from strandline.protocol.messages.leave_group import LeaveGroupResponse
from strandline.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.protocol.schema import encode_versioned
from strandline.sim.clients.group_member import GroupMember
from strandline.sim.clients.group_watch import GroupWatch
from strandline.sim.clients.make import Watches, make_client
from strandline.sim.clients.share_watch import ShareWatch
from strandline.sim.plan import ClientSpec
from strandline.sim.schedule import Schedule
from strandline.types import TopicPartition
from tests.sim.clients_stage import TOPIC_ID, Asked, Stage
from tests.sim.test_clients_consumer import batch, fetched, offsets_told

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


# -- one member ----------------------------------------------------------------------------------


class Coordinated:
    """A member on its stage, and the answers of its coordinator."""

    def __init__(self, **options: str) -> None:
        self.stage = Stage()
        self.stage.lead("t", 0, 1)
        self.stage.lead("t", 1, 1)
        self.watch = GroupWatch(self.stage.schedule)
        named = {key.replace("_", "-"): value for key, value in options.items()}
        spec = ClientSpec("group", "m", {"group": "g", "topic": "t", **named})
        member = make_client(self.stage, spec, Watches(self.watch, ShareWatch(self.stage)))
        assert isinstance(member, GroupMember)
        self.member = member
        member.start()

    def take(self, key: ApiKey) -> Asked:
        return self.stage.next_request(key)

    def find(self, broker: int = 2) -> None:
        coordinator = Coordinator(key="g", node_id=broker, host="sim", port=9092)
        self.take(ApiKey.FIND_COORDINATOR).answer(
            FindCoordinatorResponse(coordinators=[coordinator])
        )

    def join(self, generation: int, *, member: str = "m-1", leads: bool = True) -> Asked:
        asked = self.take(ApiKey.JOIN_GROUP)
        members = [JoinGroupResponseMember(member_id=member, metadata=subscription("t"))]
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_type="consumer",
            protocol_name="range",
            leader=member if leads else "somebody",
            member_id=member,
            members=members if leads else [],
        )
        asked.answer(answer)
        return asked

    def sync(self) -> None:
        """Give it what it has assigned to itself."""
        asked = self.take(ApiKey.SYNC_GROUP)
        (part,) = asked.body.assignments
        asked.answer(SyncGroupResponse(assignment=part.assignment))

    def offsets(self, *offsets: int) -> None:
        self._answer_offsets(self.take(ApiKey.OFFSET_FETCH), offsets)

    def quietly_offsets(self, *offsets: int) -> None:
        self._answer_offsets(self.quietly(ApiKey.OFFSET_FETCH), offsets)

    def _answer_offsets(self, asked: Asked, offsets: Sequence[int]) -> None:
        parts = [
            OffsetFetchResponsePartitions(partition_index=number, committed_offset=offset)
            for number, offset in enumerate(offsets)
        ]
        topic = OffsetFetchResponseTopics(name="t", topic_id=TOPIC_ID, partitions=parts)
        group = OffsetFetchResponseGroup(group_id="g", topics=[topic])
        asked.answer(OffsetFetchResponse(groups=[group]))

    def settle(self, *offsets: int) -> None:
        """All the way into the group."""
        self.find()
        self.join(1)
        self.stage.run(10)  # the leader asks for metadata, which the stage answers
        self.sync()
        self.offsets(*offsets)

    def quietly(self, until: ApiKey) -> Asked:
        """The next request of a kind. Of those before it, reads find nothing, and the others are
        left without an answer."""
        for _ in range(20_000):
            self.stage.run(1)
            while self.stage.requests:
                asked = self.stage.requests.popleft()
                if asked.key is until:
                    return asked
                if asked.key is ApiKey.FETCH:
                    asked.answer(FetchResponse())
                elif asked.key is ApiKey.LIST_OFFSETS:
                    offsets_told(asked, 0)
        raise AssertionError(f"no {until.name} came")


def committed(asked: Asked, code: ErrorCode = ErrorCode.NONE) -> None:
    parts = [
        OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
        for topic in asked.body.topics
        for part in topic.partitions
    ]
    topic = OffsetCommitResponseTopic(name="t", topic_id=TOPIC_ID, partitions=parts)
    asked.answer(OffsetCommitResponse(topics=[topic]))


def offsets_in(asked: Asked) -> dict[int, int]:
    return {
        part.partition_index: part.committed_offset
        for topic in asked.body.topics
        for part in topic.partitions
    }


def test_a_member_reads_on_from_what_was_committed_and_commits_what_it_has_read() -> None:
    group = Coordinated(by="id")
    group.watch.committing("g", AT, 5)
    group.watch.committing("g", OTHER, 8)
    group.settle(5, 8)
    asked = group.take(ApiKey.FETCH)
    starts = [part.fetch_offset for part in asked.body.topics[0].partitions]
    assert (asked.broker_id, starts) == (1, [5, 8])
    fetched(asked, batch(5, b"a", b"b"))
    asked = group.quietly(ApiKey.OFFSET_COMMIT)
    assert (asked.broker_id, offsets_in(asked)) == (2, {0: 7})
    committed(asked)
    group.stage.run(10)
    assert group.watch.floor("g", AT, 2) == 7
    assert group.watch.findings == []
    assert group.member.counters["commit acknowledged"] == 1


def test_a_rebalance_makes_a_member_commit_and_join_again() -> None:
    group = Coordinated(session="300ms", rebalance="300ms", by="id")
    group.settle(-1, -1)
    offsets_told(group.take(ApiKey.LIST_OFFSETS), 4)
    asked = group.quietly(ApiKey.HEARTBEAT)
    asked.answer(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    committed(group.quietly(ApiKey.OFFSET_COMMIT))
    joined = group.quietly(ApiKey.JOIN_GROUP)
    assert joined.body.member_id == "m-1"
    assert not group.member.positions


@pytest.mark.parametrize(("leader", "found"), [(2, []), (3, ["I-39"])])
def test_offsets_of_another_broker_prove_something_if_it_is_the_coordinator(
    leader: int, found: list[str]
) -> None:
    """The one that is asked is not that of the generation; it may have been deposed."""
    group = Coordinated(session="300ms")
    group.stage.lead(CONSUMER_OFFSETS, 0, leader)
    group.watch.committing("g", AT, 5)
    group.watch.committed("g", AT, 0, 5)
    group.find()
    group.join(1)
    group.stage.run(10)
    group.sync()
    asked = group.take(ApiKey.OFFSET_FETCH)
    asked.wire.reset()
    again = group.quietly(ApiKey.FIND_COORDINATOR)
    other = Coordinator(key="g", node_id=3, host="sim", port=9092)
    again.answer(FindCoordinatorResponse(coordinators=[other]))
    group.quietly_offsets(-1, -1)
    group.stage.run(10)
    assert set(group.member.positions) == {AT, OTHER}
    assert [each.invariant for each in group.watch.findings] == found


def test_a_member_that_rejoins_asks_each_coordinator_what_is_committed() -> None:
    group = Coordinated(session="300ms", rejoins="yes")
    group.settle(-1, -1)
    asked = group.quietly(ApiKey.HEARTBEAT)
    asked.answer(HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    again = group.quietly(ApiKey.FIND_COORDINATOR)
    found = Coordinator(key="g", node_id=3, host="sim", port=9092)
    again.answer(FindCoordinatorResponse(coordinators=[found]))
    assert group.quietly(ApiKey.JOIN_GROUP).body.reason == "the coordinator may be another one"


def test_offsets_of_the_generation_s_coordinator_must_be_there() -> None:
    group = Coordinated()
    group.watch.committing("g", AT, 5)
    group.watch.committed("g", AT, 0, 5)
    group.settle(-1, -1)
    group.stage.run(10)
    assert [finding.invariant for finding in group.watch.findings] == ["I-39"]


def test_finishing_commits_and_leaves() -> None:
    group = Coordinated()
    group.settle(-1, -1)
    group.quietly(ApiKey.LIST_OFFSETS)
    group.member.finish()
    asked = group.quietly(ApiKey.LEAVE_GROUP)
    assert asked.body.members[0].member_id == "m-1"
    asked.answer(LeaveGroupResponse())
    group.stage.run(50)
    assert group.member.is_done
    assert group.member.outstanding == 0


@pytest.mark.parametrize(("goes", "key"), [("leave", ApiKey.LEAVE_GROUP), ("vanish", None)])
def test_a_member_goes_and_comes_back(goes: str, key: ApiKey | None) -> None:
    group = Coordinated(stay="100ms", away="100ms", goes=goes)
    group.settle(-1, -1)
    seen: list[ApiKey] = []
    while ApiKey.JOIN_GROUP not in seen:
        group.stage.run(1)
        seen += [asked.key for asked in group.stage.requests]
        group.stage.requests.clear()
    assert (ApiKey.LEAVE_GROUP in seen) is (key is not None)


def test_a_static_member_of_any_version_says_its_name() -> None:
    group = Coordinated(static="yes", versions="drawn")
    asked = group.take(ApiKey.FIND_COORDINATOR)
    coordinator = Coordinator(key="g", node_id=2, host="sim", port=9092)
    answer = FindCoordinatorResponse(node_id=2, host="sim", port=9092)
    if asked.version >= 4:
        answer = FindCoordinatorResponse(coordinators=[coordinator])
    asked.answer(answer)
    asked = group.quietly(ApiKey.JOIN_GROUP)
    assert asked.body.group_instance_id == "m"


# -- the watch -----------------------------------------------------------------------------------


def watch() -> GroupWatch:
    return GroupWatch(Schedule())


def synced(
    of: GroupWatch,
    generation: int,
    member: str,
    *owned: TopicPartition,
    leader: str = "a",
    newest: int = -1,
) -> None:
    of.synced("g", generation, member=member, leader=leader, owned=owned, newest_before=newest)


def sentences(of: GroupWatch) -> Sequence[str]:
    assert all(finding.invariant == "I-39" for finding in of.findings)
    return [finding.what for finding in of.findings]


def test_good_generations_are_not_accused() -> None:
    good = watch()
    synced(good, 1, "a", AT, OTHER)
    synced(good, 2, "a", AT, newest=good.newest("g"))
    synced(good, 2, "b", OTHER, newest=1)
    synced(good, 2, "b", OTHER, newest=2)
    assert sentences(good) == []


def test_a_partition_has_one_owner_per_generation() -> None:
    bad = watch()
    synced(bad, 1, "a", AT)
    synced(bad, 1, "b", AT)
    assert sentences(bad) == ["In generation 1 of group g both a and b own the partition"]
    assert bad.findings[0].partition == "t-0"


def test_a_generation_is_not_used_twice() -> None:
    bad = watch()
    synced(bad, 1, "a", leader="a")
    synced(bad, 1, "b", leader="b")
    assert sentences(bad) == ["Generation 1 of group g is led by a and by b"]
    allowed = watch()
    allowed.has_static("g")
    synced(allowed, 1, "a", leader="a")
    synced(allowed, 1, "b", leader="b")
    assert sentences(allowed) == []


def test_generations_rise() -> None:
    bad = watch()
    synced(bad, 5, "a")
    synced(bad, 4, "a", newest=5)
    assert sentences(bad) == ["Group g began generation 4 although 5 had begun before"]


def test_an_acknowledged_commit_is_told_to_later_generations() -> None:
    of = watch()
    for offset in (3, 7):
        of.committing("g", AT, offset)
        of.committed("g", AT, 1, offset)
    assert [of.floor("g", AT, generation) for generation in (1, 2)] == [-1, 7]
    of.fetched("g", AT, 7, floor=7, generation=2)
    assert sentences(of) == []
    of.fetched("g", AT, 3, floor=7, generation=2)
    of.fetched("g", AT, -1, floor=7, generation=2)
    assert [what[:42] for what in sentences(of)] == [
        "Group g was told the committed offset 3 af",
        "Group g was told the committed offset -1 a",
    ]


def test_an_offset_that_was_told_is_told_to_later_generations() -> None:
    """Also if its commit was never acknowledged: the next coordinator must have it."""
    of = watch()
    of.committing("g", AT, 7)
    of.commit_unknown("g", AT, 1, 7)
    of.fetched("g", AT, 7, floor=of.floor("g", AT, 2), generation=2)
    assert of.floor("g", AT, 3) == 7
    of.fetched("g", AT, -1, floor=7, generation=3)
    assert [what[:42] for what in sentences(of)] == ["Group g was told the committed offset -1 a"]


def test_a_commit_whose_fate_is_unknown_may_come_late_but_only_in_its_generation() -> None:
    of = watch()
    of.committing("g", AT, 3)
    of.commit_unknown("g", AT, 1, 3)
    of.committing("g", AT, 7)
    of.committed("g", AT, 1, 7)
    assert of.floor("g", AT, 2) == 3
    of.committing("g", AT, 9)
    of.committed("g", AT, 2, 9)
    assert of.floor("g", AT, 3) == 9


def test_an_offset_that_was_never_committed_is_not_fetched() -> None:
    of = watch()
    of.fetched("g", AT, 4, floor=-1, generation=2)
    assert sentences(of) == ["Group g was told the offset 4, which no member committed"]


def test_a_reader_that_has_jumped_is_let_off() -> None:
    of = watch()
    of.committing("g", AT, 7)
    of.committed("g", AT, 1, 7)
    of.forget("g", AT)
    of.fetched("g", AT, 2, floor=7, generation=2)
    assert sentences(of) == []


def test_offsets_of_a_topic_that_may_be_deleted_prove_nothing() -> None:
    watch = GroupWatch(Schedule(None))
    at, other = TopicPartition("t", 0), TopicPartition("u", 0)
    for each in (at, other):
        watch.committing("g", each, 5)
        watch.committed("g", each, 1, 5)
    watch.forget_topic("t")
    watch.fetched("g", at, -1, floor=watch.floor("g", at, 2), generation=2)
    assert watch.findings == []
    watch.fetched("g", other, -1, floor=watch.floor("g", other, 2), generation=2)
    assert [finding.invariant for finding in watch.findings] == ["I-39"]
