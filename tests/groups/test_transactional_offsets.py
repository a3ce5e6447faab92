"""TxnOffsetCommit and the markers that decide about its offsets (KIP-98, 447)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.groups.effects import AppendMarker, AppendRecords, Effect
from strandline.groups.settings import GroupSettings
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.types import LeaderEpoch, ProducerId, TopicPartition
from tests.groups.world import World

ORDERS_0 = TopicPartition("orders", 0)
PRODUCER = ProducerId(77)


def pending_commit(
    world: World,
    offset: int,
    *,
    producer: int = PRODUCER,
    partition: int = 0,
    metadata: str = "",
    group: str = "g",
    **fields: Any,
) -> int | None:
    """The error of an offset that a producer commits in its transaction; None: no answer yet."""
    item = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[item])],
        **fields,
    )
    token = world.ask(request)
    response = world.replies.get(token)
    return None if response is None else response.topics[0].partitions[0].error_code


def end(world: World, *, commits: bool, producer: int = PRODUCER) -> int | None:
    """Write a marker; its error, or None while it is not durable."""
    marker = WritableTxnMarker(
        producer_id=producer, producer_epoch=0, transaction_result=commits, coordinator_epoch=3
    )
    token = world.token()
    world.run(world.coordinator.write_marker(token, 0, marker, world.now))
    response = world.replies.get(token)
    return None if response is None else response.error_code


def stable(world: World, partition: int = 0) -> tuple[int, int]:
    """(offset, error) as a reader of stable offsets is told."""
    wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=[partition])
    group = OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    response = world.answer(OffsetFetchRequest(groups=[group], require_stable=True))
    item = response.groups[0].topics[0].partitions[0]
    return item.committed_offset, item.error_code


def test_offsets_count_when_the_transaction_commits(world: World) -> None:
    world.commit_error((0, 1))
    assert pending_commit(world, 5) == ErrorCode.NONE
    assert world.offsets() == {ORDERS_0: 1}
    assert stable(world) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert end(world, commits=True) == ErrorCode.NONE
    assert world.offsets() == {ORDERS_0: 5}
    assert stable(world) == (5, ErrorCode.NONE)


def test_an_abort_leaves_what_was_there(world: World) -> None:
    world.commit_error((0, 1))
    pending_commit(world, 5)
    end(world, commits=False)
    assert world.offsets() == {ORDERS_0: 1}
    assert stable(world) == (1, ErrorCode.NONE)


def test_an_aborted_group_that_never_was_is_forgotten(world: World) -> None:
    pending_commit(world, 5)
    assert world.state() == "Empty"
    end(world, commits=False)
    # Its record is in the log, so that the group is there until it expires, as after a load.
    assert world.offsets() == {}


def test_a_marker_ends_the_transaction_of_its_producer_only(world: World) -> None:
    pending_commit(world, 5)
    pending_commit(world, 6, producer=78, partition=1)
    end(world, commits=True)
    assert world.offsets() == {ORDERS_0: 5}
    assert stable(world, 1) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_a_marker_counts_when_it_is_durable(world: World) -> None:
    pending_commit(world, 5)
    world.hold = True
    assert end(world, commits=True) is None
    assert world.offsets() == {}
    world.release()
    assert world.offsets() == {ORDERS_0: 5}


def test_a_refused_marker_changes_nothing_and_its_error_is_told(world: World) -> None:
    pending_commit(world, 5)
    world.fail_with = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(world, commits=True) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert stable(world) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_a_refused_commit_is_not_pending(world: World) -> None:
    world.fail_with = ErrorCode.INVALID_TXN_STATE
    assert pending_commit(world, 5) == ErrorCode.INVALID_TXN_STATE
    end(world, commits=True)
    assert world.offsets() == {}


@pytest.mark.parametrize("commits", [True, False])
def test_a_refused_commit_leaves_the_one_before_it_pending(world: World, commits: bool) -> None:
    """It is in the log, and the next coordinator would have it."""
    world.commit_error((0, 1))
    pending_commit(world, 5)
    world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert pending_commit(world, 10) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stable(world) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(world, commits=commits)
    assert world.offsets() == {ORDERS_0: 5 if commits else 1}


def test_of_several_commits_that_are_refused_none_comes_back(world: World) -> None:
    pending_commit(world, 5)
    world.hold = True
    for offset in (6, 7):
        assert pending_commit(world, offset) is None
    for _ in range(2):
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.hold = False
    end(world, commits=True)
    assert world.offsets() == {ORDERS_0: 5}


def test_a_refused_commit_does_not_bring_back_what_was_overtaken(world: World) -> None:
    pending_commit(world, 5)
    world.hold = True
    world.commit((0, 9))
    assert pending_commit(world, 10) is None
    world.release(1)
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.hold = False
    assert stable(world) == (9, ErrorCode.NONE)
    end(world, commits=True)
    assert world.offsets() == {ORDERS_0: 9}


def test_what_is_written_later_counts(world: World) -> None:
    pending_commit(world, 5)
    assert world.commit_error((0, 9)) == ErrorCode.NONE
    end(world, commits=True)
    assert world.offsets() == {ORDERS_0: 9}


@pytest.mark.parametrize("ends_first", [1, 2])
def test_of_two_transactions_the_offset_counts_that_is_later_in_the_log(
    world: World, ends_first: int
) -> None:
    pending_commit(world, 5, producer=1)
    pending_commit(world, 6, producer=2)
    end(world, commits=True, producer=ends_first)
    end(world, commits=True, producer=3 - ends_first)
    assert stable(world) == (6, ErrorCode.NONE)


def test_an_offset_that_was_not_committed_overtakes_none(world: World) -> None:
    pending_commit(world, 5, producer=1)
    pending_commit(world, 6, producer=2)
    end(world, commits=False, producer=2)
    assert stable(world) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(world, commits=True, producer=1)
    assert stable(world) == (5, ErrorCode.NONE)


def test_a_deleted_group_does_not_come_back(world: World) -> None:
    world.commit_error((0, 1))
    pending_commit(world, 5)
    [deleted] = world.answer(DeleteGroupsRequest(groups_names=["g"])).results
    assert deleted.error_code == ErrorCode.NONE
    end(world, commits=True)
    assert world.offsets() == {}


def test_a_pending_offset_keeps_the_one_before_from_expiring(world_type: type[World]) -> None:
    world = world_type(GroupSettings(offsets_retention_ms=1000))
    world.commit_error((0, 1))
    pending_commit(world, 5)
    world.advance(GroupSettings().offsets_retention_check_interval_ms + 2000)
    assert world.offsets() == {ORDERS_0: 1}


def test_members_are_fenced_and_others_taken_at_their_word(world: World) -> None:
    [member], generation = world.stable_group()
    good: dict[str, Any] = {"generation_id": generation, "member_id": member}
    assert pending_commit(world, 5, **good) == ErrorCode.NONE
    assert pending_commit(world, 5) == ErrorCode.NONE
    wrong = good | {"generation_id": 99}
    assert pending_commit(world, 5, **wrong) == ErrorCode.ILLEGAL_GENERATION
    stranger = good | {"member_id": "stranger"}
    assert pending_commit(world, 5, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("name", [{"group_instance_id": "i"}, {"member_id": "m"}])
def test_a_consumer_that_manages_its_partitions_itself_may_have_a_name(
    world: World, name: dict[str, Any]
) -> None:
    for offset in (5, 6):
        assert pending_commit(world, offset, **name) == ErrorCode.NONE
    end(world, commits=True)
    assert world.offsets() == {ORDERS_0: 6}
    world.stable_group()
    assert pending_commit(world, 7, **name) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_of_an_unknown_group_is_refused(world: World) -> None:
    error = pending_commit(world, 5, generation_id=3, member_id="m")
    assert error == ErrorCode.ILLEGAL_GENERATION


def test_any_producer_id_means_a_transaction(world: World) -> None:
    """Also -1, which the node lets through to no coordinator."""
    assert pending_commit(world, 5, producer=-1) == ErrorCode.NONE
    assert world.offsets() == {}
    end(world, commits=True, producer=-1)
    assert stable(world) == (5, ErrorCode.NONE)


def test_a_note_that_is_too_long_is_refused_by_itself(world: World) -> None:
    error = pending_commit(world, 5, metadata="x" * 5000)
    assert error == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert stable(world) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("commits", [True, False])
def test_the_next_coordinator_knows_what_is_pending(world: World, commits: bool) -> None:
    world.commit_error((0, 1))
    plain = list(world.log[0])
    pending_commit(world, 5)
    records: list[CoordinatorRecord | OpenRecord] = [
        *plain,
        *(OpenRecord(PRODUCER, each) for each in world.log[0][len(plain) :]),
    ]
    world.coordinator.unload_partition(0, LeaderEpoch(2), world.now)
    world.load(0, LeaderEpoch(2), records)
    assert stable(world) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(world, commits=commits)
    assert world.offsets() == {ORDERS_0: 5 if commits else 1}


def test_a_coordinator_that_is_not_ready_is_asked_again(world: World) -> None:
    world.coordinator.unload_partition(0, LeaderEpoch(2), world.now)
    assert end(world, commits=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.coordinator.start_loading(0, LeaderEpoch(3), world.now)
    assert end(world, commits=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_log_is_told_whose_transaction_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects: list[Effect] = []
    run = world.run

    def heard(given: Iterable[Effect]) -> None:
        effects.extend(given)
        run(given)

    monkeypatch.setattr(world, "run", heard)
    pending_commit(world, 5)
    end(world, commits=False)
    [append] = [each for each in effects if isinstance(each, AppendRecords)]
    [marker] = [each for each in effects if isinstance(each, AppendMarker)]
    assert append.producer is not None
    assert (append.producer.producer_id, append.producer.producer_epoch) == (PRODUCER, 0)
    assert (marker.marker.producer_id, marker.marker.transaction_result) == (PRODUCER, False)
