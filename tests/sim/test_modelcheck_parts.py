"""What the small core repeats of the broker, compared with the broker: logs, epochs, reigns."""

from __future__ import annotations

from random import Random

import pytest

from strandline.config.topic import TopicConfig
from strandline.errors import CorruptRecords, ErrorCode
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.replication.policies import Policies
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import LeaderEpoch, Offset, TopicPartition
from tests.sim.modelcheck.following import Answer, Following, truncated, written
from tests.sim.modelcheck.leading import Leading
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.values import JOINING, LEAVING, MEMBER, OUT, OWN, Reign, Replica, View

NEW = Replica(
    log=(),
    entries=(),
    mark=0,
    compares=True,
    is_up=True,
    is_registered=True,
    life=1,
    unbroken_since=1,
    epoch=0,
    reign=(),
    is_in_sync=True,
    is_eligible=False,
    was_complete=False,
    recorded=1,
)


def real_log() -> Log:
    files = MemoryFiles()
    files.make_directory("/data")
    return Log.create(
        files,
        "/data/t-0",
        TopicPartition("t", 0),
        TopicConfig(),
        now_ms=1,
        random=Random(1),
    )


def batch(offset: int, epoch: int) -> bytearray:
    return bytearray(
        build_batch(
            [Record(timestamp=1, value=b"x")],
            base_offset=Offset(offset),
            leader_epoch=LeaderEpoch(epoch),
        )
    )


def append_as_follower(log: Log, record: int, *, epoch: int) -> None:
    try:
        log.appender.append_as_follower(
            batch(log.log_end_offset, record), 1, leader_epoch=LeaderEpoch(epoch)
        )
    except CorruptRecords:
        return  # the follower backs off


@pytest.mark.parametrize("seed", range(30))
def test_logs_are_those_of_the_broker(seed: int) -> None:
    random = Random(seed)
    log, replica = real_log(), NEW
    following = Following(Rules(policies=Policies()))
    for _ in range(60):
        kind = random.randrange(4)
        if kind == 0:
            epoch = max(replica.epoch, replica.log[-1] if replica.log else 0)
            epoch += random.randrange(2)
            replica = written(replica._replace(epoch=epoch))
            log.appender.append_as_leader(batch(0, 0), leader_epoch=LeaderEpoch(epoch), now_ms=1)
        elif kind == 1:
            record = random.randrange(max(0, replica.epoch - 1), replica.epoch + 3)
            answer = Answer(ErrorCode.NONE, 0, 0, None, record)
            replica = following.takes(replica, answer)
            append_as_follower(log, record, epoch=replica.epoch)
        elif kind == 2:
            offset = random.randrange(max(0, len(replica.log) - 3), len(replica.log) + 2)
            replica = truncated(replica, offset)
            log.truncation.truncate_to(Offset(offset), 1)
        else:
            following_epoch = replica.epoch + random.randrange(2)
            replica = following.begins(replica, following_epoch)
        assert log.log_end_offset == len(replica.log)
        assert tuple(map(tuple, log.leader_epochs.entries)) == replica.entries
        assert list(replica.log) == [
            log.leader_epochs.epoch_for_offset(Offset(at)) for at in range(len(replica.log))
        ]


@pytest.mark.parametrize(
    "views",
    [
        (OWN, View(2, 1, MEMBER), View(1, 1, OUT)),
        (OWN, View(2, 1, MEMBER), View(1, 2, JOINING, 1)),
        (OWN, View(-1, -1, MEMBER), View(0, 1, LEAVING)),
        (OWN, View(-1, -1, LEAVING), View(0, 1, LEAVING)),
    ],
)
@pytest.mark.parametrize("is_current", [True, False])
def test_a_reign_survives_being_a_leader(views: tuple[View, ...], is_current: bool) -> None:
    """A question that changes nothing gives the same reign back."""
    lag = ChosenLag()
    leading = Leading(Bounds(), Rules(policies=Policies(lag=lag)), lag)
    reign = Reign(1, is_current, views)
    replica = NEW._replace(log=(0, 0), entries=((0, 0),), epoch=0, reign=(reign,))
    led = leading.appended(0, replica)
    assert led.reign == reign
    assert led.mark in (0, 1, 2)


def test_who_lags_is_a_choice() -> None:
    lag = ChosenLag()
    leading = Leading(Bounds(), Rules(policies=Policies(lag=lag)), lag)
    views = (OWN, View(0, 1, MEMBER), View(1, 1, MEMBER))
    replica = NEW._replace(log=(0,), entries=((0, 0),), reign=(Reign(0, True, views),))

    def memberships(*leaving: int) -> list[int] | None:
        led = leading.shrinks(0, replica, frozenset(leaving))
        return None if led is None else [view.membership for view in led.reign.views]

    assert memberships(1) == [MEMBER, LEAVING, MEMBER]
    assert memberships(1, 2) == [MEMBER, LEAVING, MEMBER]  # 2 is at the end (KAFKA-7152)
    assert memberships(2) is None
