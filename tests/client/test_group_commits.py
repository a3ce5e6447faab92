"""Commits of members that are tried again: the newest one counts, and each of them ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import strandline
from strandline.client.group_member import GroupMember
from strandline.client.group_members import Member
from strandline.client.group_offsets import CommitResult, PendingCommit
from strandline.client.group_requests import Committed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.types import Offset, TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.consumer_group_stage import ConsumerStage
from tests.client.group_stage import LOST, GroupStage
from tests.client.test_api import settings, write

T0, T1 = (TopicPartition("t", number) for number in range(2))
LOADING, NONE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE
PATIENCE_MS = PATIENCE_S * 1000


class Commit:
    """A commit of these offsets by partition, `for_ms` long, and what is told of it."""

    def __init__(self, stage: GroupStage, offsets: dict[int, int], for_ms: int | None) -> None:
        self._told: list[CommitResult] = []
        deadline_ms = None if for_ms is None else stage.now_ms + for_ms
        self.pending: PendingCommit = stage.member.commit(
            {TopicPartition("t", at): Committed(Offset(each)) for at, each in offsets.items()},
            self._told.append,
            stage.now_ms,
            deadline_ms,
        )
        stage.step()

    @property
    def codes(self) -> list[ErrorCode]:
        return [each.code for each in self._told]


def answered(stage: GroupStage, code: ErrorCode) -> dict[int, int]:
    """Answer the next commit; what it was to store."""
    asked = stage.committed(code)
    return {
        each.partition_index: each.committed_offset
        for topic in asked.body.topics
        for each in topic.partitions
    }


# -- In which order ------------------------------------------------------------------------------


def test_a_commit_that_is_tried_again_does_not_undo_a_later_one() -> None:
    stage = GroupStage()
    stage.settle(0, 1)
    older = Commit(stage, {0: 5, 1: 1}, 5_000)
    assert answered(stage, LOADING) == {0: 5, 1: 1}
    newer = Commit(stage, {0: 9}, None)
    assert answered(stage, NONE) == {0: 9}
    stage.wait(500)
    assert answered(stage, NONE) == {1: 1}
    assert (older.codes, newer.codes) == ([NONE], [NONE])


def test_a_commit_whose_offsets_have_all_been_overtaken_is_done() -> None:
    stage = GroupStage()
    stage.settle(0)
    older = Commit(stage, {0: 5}, 5_000)
    answered(stage, LOADING)
    Commit(stage, {0: 9}, None)
    answered(stage, NONE)
    stage.step()
    assert older.codes == [NONE]
    assert not stage.requests


def test_a_commit_waits_for_a_later_one_and_goes_on_if_that_fails() -> None:
    stage = GroupStage()
    stage.settle(0)
    older = Commit(stage, {0: 5}, 5_000)
    answered(stage, LOADING)
    newer = Commit(stage, {0: 9}, None)
    stage.wait(500)
    assert len(stage.requests) == 1
    assert answered(stage, LOADING) == {0: 9}
    assert answered(stage, NONE) == {0: 5}
    assert (older.codes, newer.codes) == ([NONE], [LOADING])


def test_a_commit_whose_time_is_up_ends_also_while_it_waits_for_a_later_one() -> None:
    stage = GroupStage()
    stage.settle(0)
    older = Commit(stage, {0: 5}, 700)
    answered(stage, LOADING)
    Commit(stage, {0: 9}, 5_000)
    stage.wait(800)
    assert older.codes == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_commit_that_is_withdrawn_is_not_tried_again() -> None:
    stage = GroupStage()
    stage.settle(0)
    waiting = Commit(stage, {0: 5}, 5_000)
    answered(stage, LOADING)
    waiting.pending.withdraw()
    under_way = Commit(stage, {0: 6}, 5_000)
    under_way.pending.withdraw()
    answered(stage, LOADING)
    stage.wait(500)
    assert not stage.requests
    assert (len(waiting.codes), under_way.codes) == (1, [LOADING])


# -- Of a member that is out ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [GroupStage, ConsumerStage])
def test_a_commit_that_waits_ends_when_the_program_has_not_polled_for_too_long(
    make: Callable[[], GroupStage],
) -> None:
    stage = make()
    stage.settle(0)
    for _ in range(59):
        stage.wait(1_000, polls=False)
        stage.beat()
    stage.wait(960, polls=False)  # less than a pause before the time is up
    under_way = Commit(stage, {0: 5}, 30_000)
    asked = stage.requests.popleft()
    refused = Commit(stage, {0: 6}, 30_000)
    answered(stage, LOADING)
    stage.wait(1_000, polls=False)
    assert refused.codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    stage.requests.clear()
    stage.requests.append(asked)
    answered(stage, LOADING)
    stage.wait(1_000, polls=False)
    assert under_way.codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_that_waits_for_a_coordinator_ends_with_the_membership() -> None:
    stage = GroupStage()
    stage.settle(0)
    for _ in range(58):
        stage.wait(1_000, polls=False)
        stage.beat()
    stage.wait(1_000, polls=False)
    stage.take(ApiKey.HEARTBEAT).answer(LOST)
    waiting = Commit(stage, {0: 5}, 30_000)
    stage.wait(2_000, polls=False)
    assert waiting.codes == [ErrorCode.UNKNOWN_MEMBER_ID]


# -- At a broker ---------------------------------------------------------------------------------


def member(broker: BrokerThread, group: str) -> dict[str, object]:
    own = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": "false"}
    return settings(broker, **own)


def pending(member: Member) -> bool:
    """Whether a commit of the member is still to be tried again."""
    assert isinstance(member, GroupMember)
    return bool(member._offsets._pending)


def stored(broker: BrokerThread, group: str) -> dict[TopicPartition, int]:
    with strandline.Admin(settings(broker)) as admin:
        return dict(admin.group_offsets(group))


def test_a_commit_whose_task_is_cancelled_is_not_made_later(
    start_broker_at: Callable[..., BrokerThread],
) -> None:
    broker = start_broker_at()
    write(broker, "t", 2)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with strandline.AsyncConsumer(member(broker, "g")) as consumer:
            await consumer.subscribe(["t"])
            while len(consumer.assignment) < 2:
                await consumer.poll(100)
            await loop.run_in_executor(None, broker.stop)
            given_up = asyncio.create_task(consumer.commit({T0: 1}))
            await asyncio.wait({given_up}, timeout=0.3)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            await loop.run_in_executor(None, broker.start)
            await consumer.commit({T1: 1})
            assert consumer._member is not None
            assert consumer._member._task is not None
            while pending(consumer._member._task._member):
                await consumer.poll(10)

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work()

    asyncio.run(bounded())
    assert stored(broker, "g") == {T1: 1}


def test_a_commit_that_is_interrupted_is_not_made_later(
    start_broker_at: Callable[..., BrokerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker_at()
    write(broker, "t", 2)
    with strandline.Consumer(member(broker, "g")) as consumer:
        consumer.subscribe(["t"])
        while len(consumer.assignment) < 2:
            consumer.poll(100)
        broker.stop()

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(threading.Condition, "wait_for", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.commit({T0: 1})
        broker.start()
        consumer.commit({T1: 1})
        assert consumer._member is not None
        assert consumer._member._thread is not None
        while pending(consumer._member._thread._member):
            consumer.poll(10)
    assert stored(broker, "g") == {T1: 1}
