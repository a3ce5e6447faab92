"""One partition that is being fetched: what is asked for it, and what its answers do.

This file knows the order in which an answer changes the follower's replica (replication
specification 1.5): the records first, then the high watermark, then the log start; a log that has
diverged is cut, and nothing else of that answer is used. Whatever goes wrong concerns this
partition only. It must not know other partitions, requests or links.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, TypeAlias, assert_never

from strandline.errors import CorruptRecords, ErrorCode, StorageError
from strandline.node.ledger.keeping import Reason
from strandline.node.replica import Replica
from strandline.node.timers import Timer
from strandline.protocol.messages.fetch import PartitionData
from strandline.records.batch import parse_header
from strandline.replication.follower import (
    Action,
    Append,
    Asked,
    AskOffsets,
    BackOff,
    Continue,
    FetchAnswer,
    Followed,
    Ignore,
    Truncate,
    TruncateFully,
    Wait,
    judge,
    out_of_range_step,
    restart_offset,
)
from strandline.replication.policies import TruncateBy
from strandline.replication.truncation import EpochEnd, Target, first_truncation
from strandline.storage.files import NoRoom
from strandline.storage.log_appender import UnexpectedOffset
from strandline.types import NO_EPOCH, Instant, LeaderEpoch, Offset, TopicId

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[TopicId, int]
"""Topic id and partition: a topic that was created anew is another one."""


class Wanted(NamedTuple):
    """What a fetch request says about one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset


class LogEnds(NamedTuple):
    """Where the leader's log starts and ends."""

    start: Offset
    end: Offset


class Next(Enum):
    """How it goes on with a partition."""

    FETCH = auto()
    """From its log's end."""
    ASK_FOR_ENDS = auto()
    """The leader does not have the offset: first find out what it has."""
    BACK_OFF = auto()
    """Later."""
    GIVE_UP = auto()
    """Not before the metadata tells of another leader epoch."""
    NOTHING = auto()
    """As it would have gone on without the answer."""


class FetchedPartition:
    """A replica that follows in one leader epoch. Another epoch is another object (KAFKA-7164).

    `pause` is the timer that ends a pause, `failures` counts those since the last good answer.
    """

    __slots__ = (
        "_asked",
        "_asked_in",
        "_compares_epochs",
        "_policies",
        "_wanted",
        "failures",
        "is_in_sync",
        "key",
        "pause",
        "replica",
    )

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.key = key_of(replica)
        self.pause: Timer | None = None
        self.failures = 0
        self.is_in_sync = False
        self._wanted: Wanted | None = None
        self._asked: Asked | None = None
        self._asked_in = 0
        """The number of the last request that named the partition. Only what is named is told anew:
        an answer to an earlier request that said the same must be taken."""
        self._policies = replica.host.policies
        self._compares_epochs = self._policies.truncate_by is not TruncateBy.HIGH_WATERMARK
        """Whether requests say what was fetched last, so that the leader finds a divergence."""

    # -- Asking ------------------------------------------------------------------------------

    def want(self) -> Wanted:
        """What to ask for with the next request: what follows the log's end."""
        replica = self.replica
        log = replica.log
        wanted = self._wanted = Wanted(
            log.log_end_offset,
            replica.leader_epoch,
            log.leader_epochs.latest if self._compares_epochs else NO_EPOCH,
            log.offsets.log_start_saved,
        )
        return wanted

    def note_asked(self, number: int) -> None:
        """The request of that number names the partition, with what the last `want` returned."""
        if self._wanted is not None:
            self._asked = Asked(self._wanted.offset, self._wanted.leader_epoch)
            self._asked_in = number

    def is_asked_by(self, number: int) -> bool:
        """Whether the answer to that request is about what was asked last (it may be late)."""
        return self._asked is not None and self._asked_in <= number

    # -- Events ------------------------------------------------------------------------------

    def begin(self, now: Instant) -> Next:
        """Cut what cannot be compared with the leader's log, before the first fetch."""
        return self._guarded(lambda: self._begin(now))

    def take(self, data: PartitionData, now: Instant) -> Next:
        """An answer has come."""
        return self._guarded(lambda: self._take(data, now))

    def take_ends(self, ends: LogEnds, now: Instant) -> Next:
        """The leader's log, which does not have the offset asked for, starts and ends there."""
        return self._guarded(lambda: self._take_ends(ends, now))

    def _guarded(self, step: Callable[[], Next]) -> Next:
        at = self.replica.topic_partition
        try:
            return step()
        except CorruptRecords as error:
            # KAFKA-4384: perhaps the leader's log was just being cut; the others go on anyway.
            log.error("What was fetched for %s cannot be used: %s", at, error)
            return Next.BACK_OFF
        except NoRoom as error:
            log.error("%s cannot follow for now: %s", at, error)
            if self.replica.log.failure is None:
                return Next.BACK_OFF
            self.replica.fail(error)
        except StorageError as error:
            log.error("%s cannot follow any more: %s", at, error)
            self.replica.fail(error)
        except Exception:
            log.exception("Following %s failed", at)
        return Next.GIVE_UP

    # -- What is done to the replica ---------------------------------------------------------

    def _begin(self, now: Instant) -> Next:
        replica = self.replica
        target = first_truncation(
            replica.log.leader_epochs.latest,
            high_watermark=replica.log.high_watermark,
            log_end_offset=replica.log.log_end_offset,
            policies=self._policies,
        )
        if target is not None:
            replica.check_following().truncate_to(target.offset, now, Reason.UNCOMPARABLE)
        return Next.FETCH

    def _take(self, data: PartitionData, now: Instant) -> Next:
        action = self._judge(data)
        match action:
            case Append():
                replica = self.replica
                records = data.records
                if isinstance(records, memoryview) and records:
                    self._append(records, action.log_start_offset, now)
                replica.check_following().followed_to(
                    action.high_watermark, action.log_start_offset, now
                )
                self.is_in_sync = replica.log.log_end_offset >= action.high_watermark
                self.failures = 0
                return Next.FETCH
            case Truncate():
                if self._policies.truncate_by is TruncateBy.LEADER_EPOCH_ONCE:
                    self._compares_epochs = False
                return self._truncate(action.target, now, Reason.DIVERGED)
            case TruncateFully():
                self._start_over(action.start_offset, now)
                return Next.FETCH
            case AskOffsets():
                return Next.ASK_FOR_ENDS
            case BackOff():
                log.info(
                    "The leader of %s answers %s",
                    self.replica.topic_partition,
                    action.error_code.name,
                )
                return Next.BACK_OFF
            case Wait():
                log.info("%s waits for its new leader epoch", self.replica.topic_partition)
                return Next.GIVE_UP
            case Ignore() | None:
                return Next.NOTHING
            case _:
                assert_never(action)

    def _append(self, records: memoryview, leader_start_offset: Offset, now: Instant) -> None:
        replica = self.replica
        try:
            replica.check_following().append(records, now)
        except UnexpectedOffset:
            # Perhaps the leader's log starts inside this batch, and so must this one (KAFKA-6975).
            header = parse_header(records)
            offset = restart_offset(
                header.base_offset,
                header.last_offset,
                log_start_offset=replica.log.log_start_offset,
                log_end_offset=replica.log.log_end_offset,
                leader_start_offset=leader_start_offset,
            )
            if offset is None:
                raise
            replica.check_following().start_inside_batch(records, offset, now)

    def _judge(self, data: PartitionData) -> Action | None:
        if self._asked is None:
            return None
        replica = self.replica
        log = replica.log
        diverging = data.diverging_epoch
        answer = FetchAnswer(
            ErrorCode(data.error_code),
            Offset(data.high_watermark),
            Offset(data.log_start_offset),
            None
            if diverging is None
            else EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
            bool(data.records),
        )
        followed = Followed(
            replica.leader_epoch,
            log.leader_epochs.latest,
            log.log_end_offset,
            log.high_watermark,
            log.reader,
        )
        return judge(answer, self._asked, followed, policies=self._policies)

    def _truncate(self, target: Target, now: Instant, reason: Reason) -> Next:
        replica = self.replica
        before = (replica.log.log_end_offset, replica.log.leader_epochs.latest)
        replica.check_following().truncate_to(target.offset, now, reason)
        after = (replica.log.log_end_offset, replica.log.leader_epochs.latest)
        log.info(
            "%s was truncated from %d to %d to agree with its leader",
            replica.topic_partition,
            before[0],
            after[0],
        )
        # I-20: every round takes something away. If one does not, asking again at once is no use.
        return Next.FETCH if after < before else Next.BACK_OFF

    def _take_ends(self, ends: LogEnds, now: Instant) -> Next:
        replica = self.replica
        step = out_of_range_step(ends.end, ends.start, replica.log.log_end_offset)
        match step:
            case Truncate():
                self._truncate(step.target, now, Reason.BEYOND_LEADER)
            case TruncateFully():
                self._start_over(step.start_offset, now)
            case Continue():
                pass
            case _:
                assert_never(step)
        return Next.FETCH

    def _start_over(self, start_offset: Offset, now: Instant) -> None:
        log.warning(
            "%s has nothing up to %d that its leader, whose log starts at %d, could compare: "
            "it begins again there",
            self.replica.topic_partition,
            self.replica.log.log_end_offset,
            start_offset,
        )
        self.replica.check_following().truncate_fully_to(start_offset, now)


def key_of(replica: Replica) -> Key:
    """What a replica's partition is called in fetch requests."""
    return replica.topic_id, replica.topic_partition.partition
