"""Offsets of consumer groups: who may commit and read with which epoch, and how they end."""

from __future__ import annotations

from typing import Protocol

import pytest

from strandline.errors import ErrorCode
from strandline.groups.settings import GroupSettings
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from strandline.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.types import TopicPartition
from tests.groups.consumer.world import Client, Cluster, ConsumerWorld

DAY_MS = 24 * 3_600_000


class Commit(Protocol):
    """The error of a commit by a member: with its own epoch, unless told otherwise."""

    def __call__(
        self, member: Client, epoch: int | None = None, partition: int = 0, version: int = 9
    ) -> ErrorCode: ...


@pytest.fixture
def commit(world: ConsumerWorld, cluster: Cluster) -> Commit:
    """The error of a commit of partition 0 of `orders` by a member."""

    def commit(
        member: Client, epoch: int | None = None, partition: int = 0, version: int = 9
    ) -> ErrorCode:
        error = world.commit_error(
            (partition, 7),
            version=version,
            member_id=member.member_id,
            generation=member.epoch if epoch is None else epoch,
            topic_id=cluster.topics["orders"].topic_id,
        )
        return ErrorCode(error)

    return commit


def fetch(world: ConsumerWorld, member_id: str | None, epoch: int) -> int:
    group = OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch, topics=None
    )
    [found] = world.answer(OffsetFetchRequest(groups=[group])).groups
    code: int = found.error_code
    return code


def delete(world: ConsumerWorld) -> int:
    [result] = world.answer(DeleteGroupsRequest(groups_names=["g"])).results
    code: int = result.error_code
    return code


class TestCommits:
    def test_with_the_epoch_of_the_member(self, world: ConsumerWorld, commit: Commit) -> None:
        member = world.client()
        member.beat()
        assert commit(member) is ErrorCode.NONE
        assert world.offsets() == {TopicPartition("orders", 0): 7}

    def test_with_another_epoch(self, world: ConsumerWorld, commit: Commit) -> None:
        member = world.client()
        member.beat()
        assert commit(member, epoch=3) is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(member, epoch=1) is ErrorCode.STALE_MEMBER_EPOCH

    def test_with_an_older_epoch_for_what_the_member_has_had_since(
        self, world: ConsumerWorld, commit: Commit
    ) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        world.settle(second, first)
        assert first.epoch == 3
        kept = min(number for _, number in first.owned)
        lost = min(number for _, number in second.owned)
        assert commit(first, epoch=2, partition=kept) is ErrorCode.NONE
        assert commit(first, epoch=2, partition=lost) is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(second, epoch=2, partition=lost) is ErrorCode.STALE_MEMBER_EPOCH

    def test_of_what_is_being_given_up(self, world: ConsumerWorld, commit: Commit) -> None:
        first, second = world.client("a"), world.client("b")
        first.beat()
        second.beat()
        before = first.owned
        first.beat()
        [going, _] = sorted(number for _, number in before - first.owned)
        assert commit(first, partition=going) is ErrorCode.NONE

    def test_by_a_stranger(self, world: ConsumerWorld, commit: Commit) -> None:
        world.client().beat()
        stranger = world.client("stranger")
        assert commit(stranger, epoch=2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(stranger, epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_by_an_administrator_when_the_group_is_empty(
        self, world: ConsumerWorld, commit: Commit
    ) -> None:
        member = world.client()
        member.beat()
        member.leave()
        assert commit(world.client(""), epoch=-1) is ErrorCode.NONE

    def test_in_a_version_without_member_epochs(self, world: ConsumerWorld, commit: Commit) -> None:
        member = world.client()
        member.beat()
        assert commit(member, version=8) is ErrorCode.UNSUPPORTED_VERSION

    @pytest.mark.parametrize(
        ("member_id", "epoch", "error"),
        [
            ("m", 2, ErrorCode.NONE),
            ("m", 1, ErrorCode.ILLEGAL_GENERATION),
            ("m", 3, ErrorCode.ILLEGAL_GENERATION),
            ("other", 2, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", -1, ErrorCode.NONE),
        ],
    )
    def test_in_a_transaction(
        self, world: ConsumerWorld, member_id: str, epoch: int, error: ErrorCode
    ) -> None:
        world.client().beat()
        request = TxnOffsetCommitRequest(
            group_id="g",
            producer_id=1,
            member_id=member_id,
            generation_id=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="orders",
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
                    ],
                )
            ],
        )
        [topic] = world.answer(request).topics
        assert world.outcomes(topic) == [(0, error)]


class TestReading:
    def test_with_and_without_a_member(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        assert fetch(world, None, -1) == ErrorCode.NONE
        assert fetch(world, "m", 2) == ErrorCode.NONE
        assert fetch(world, "m", 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert fetch(world, "other", 2) == ErrorCode.UNKNOWN_MEMBER_ID


class TestEnds:
    def test_a_group_with_members_is_not_deleted(self, world: ConsumerWorld) -> None:
        member = world.client()
        member.beat()
        assert delete(world) == ErrorCode.NON_EMPTY_GROUP

    def test_a_group_goes_with_its_offsets(self, world: ConsumerWorld, commit: Commit) -> None:
        member = world.client()
        member.beat()
        commit(member)
        member.leave()
        assert delete(world) == ErrorCode.NONE
        assert delete(world) == ErrorCode.GROUP_ID_NOT_FOUND
        later = world.fail_over(2)
        assert later.offsets() == {}
        assert later.state() is None

    def test_a_deletion_that_is_refused(self, world: ConsumerWorld, commit: Commit) -> None:
        member = world.client()
        member.beat()
        commit(member)
        member.leave()
        world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        assert delete(world) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.states()[0] == "Empty"
        assert delete(world) == ErrorCode.NONE

    @pytest.mark.parametrize("refusal", [None, ErrorCode.NOT_ENOUGH_REPLICAS])
    def test_a_name_is_free_after_a_commit_beside_the_deletion(
        self, world: ConsumerWorld, refusal: ErrorCode | None
    ) -> None:
        """Members were told COORDINATOR_NOT_AVAILABLE for ever."""
        first = world.client()
        first.beat()
        first.leave()
        world.hold = True
        world.ask(DeleteGroupsRequest(groups_names=["g"]))
        world.commit((0, 5))
        world.release(1)
        early = world.client("early").beat()
        assert early.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.hold = False
        if refusal is None:
            world.release()
        else:
            world.refuse(refusal)
        assert world.client("later").beat().error_code == ErrorCode.NONE
        assert world.offsets() == ({TopicPartition("orders", 0): 5} if refusal is None else {})

    def test_offsets_outlive_a_group_that_could_not_be_stored(self, world: ConsumerWorld) -> None:
        """The group was kept for ever, and did not exist."""
        member = world.client()
        world.hold = True
        world.ask(member.request(topic_partitions=[], **member.first))
        world.commit((0, 5), member_id=member.member_id, generation=2)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.hold = False
        world.release()
        assert world.offsets() == {TopicPartition("orders", 0): 5}
        assert world.state() == "Empty"
        assert delete(world) == ErrorCode.NONE
        assert member.beat().error_code == ErrorCode.NONE

    def test_offsets_of_topics_that_members_read_do_not_expire(
        self, world: ConsumerWorld, commit: Commit, cluster: Cluster
    ) -> None:
        member = world.client()
        member.beat()
        commit(member)
        for _ in range(9 * 24):
            world.advance(40_000)
            member.beat()
            world.now = world.now._replace(wall_ms=world.now.wall_ms + 3_600_000)
        assert world.offsets() == {TopicPartition("orders", 0): 7}
        member.beat(subscribed_topic_names=["clicks"])
        for _ in range(16):
            world.advance(40_000)
            member.beat()
        assert world.offsets() == {}

    def test_an_empty_group_ends_with_its_last_offset(
        self, world: ConsumerWorld, commit: Commit
    ) -> None:
        member = world.client()
        member.beat()
        commit(member)
        member.leave()
        world.advance(6 * DAY_MS)
        assert world.states()[0] == "Empty"
        world.advance(2 * DAY_MS)
        assert world.fail_over(2).state() is None
        assert world.offsets() == {}

    @pytest.mark.parametrize("is_refused", [False, True])
    def test_tombstones_are_cut_into_appends(self, cluster: Cluster, is_refused: bool) -> None:
        """More offsets than a batch may delete would never expire. What remains when an append is
        refused, the first one here, expires next time."""
        settings = GroupSettings(offsets_retention_ms=1, append_bytes_max=100)
        world = ConsumerWorld(settings, cluster=cluster)
        member = world.client()
        member.beat()
        commits = [(partition, 1) for partition in range(20)]
        said = {"member_id": member.member_id, "generation": member.epoch}
        assert world.commit_error(*commits, **said) == ErrorCode.NONE
        member.leave()
        world.hold = True
        world.advance(settings.offsets_retention_check_interval_ms)
        assert len(world.held) > 3
        if is_refused:
            world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.release()
        assert 0 < len(world.offsets()) < 20 if is_refused else world.offsets() == {}
        world.hold = False
        world.advance(settings.offsets_retention_check_interval_ms)
        assert world.offsets() == {}
        assert world.fail_over(3).state() is None

    def test_offsets_are_deleted_of_topics_without_a_subscriber(
        self, world: ConsumerWorld, commit: Commit
    ) -> None:
        member = world.client(topics=["orders"])
        member.beat()
        commit(member)

        def ask() -> OffsetDeleteResponse:
            topic = OffsetDeleteRequestTopic(
                name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            answer: OffsetDeleteResponse
            answer = world.answer(OffsetDeleteRequest(group_id="g", topics=[topic]))
            return answer

        assert world.outcomes(ask().topics[0]) == [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]
        member.beat(subscribed_topic_names=["clicks"])
        assert world.outcomes(ask().topics[0]) == [(0, ErrorCode.NONE)]
        assert world.offsets() == {}
