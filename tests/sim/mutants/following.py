"""Rules of followers: what to cut, what to append, what to believe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.node import fetch_reading, fetcher, fetcher_partition
from strandline.node.fetch_answer import PartitionAnswer
from strandline.node.fetch_reading import FollowerReader
from strandline.node.fetch_sessions import Fetched
from strandline.node.fetcher_partition import FetchedPartition, Next, Wanted
from strandline.node.fetchers import Fetchers
from strandline.node.follower_role import FollowerRole
from strandline.node.ledger.keeping import Reason
from strandline.node.replica import Replica
from strandline.protocol.messages.fetch import PartitionData
from strandline.records.batch import Buffer
from strandline.replication.follower import Asked
from strandline.replication.policies import Policies, TruncateBy
from strandline.replication.truncation import Target, first_truncation
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.log_appender import AppendResult, LogAppender
from strandline.types import NO_EPOCH, Instant, LeaderEpoch, Offset
from tests.sim.mutants.appending import in_any_order
from tests.sim.mutants.leading import policy
from tests.sim.mutants.mutant import Mutant, no, patch, together, yes

_true_follow = Fetchers.follow
_true_followed_to = FollowerRole.followed_to
_true_judge = FetchedPartition._judge
_true_read = FollowerReader.read
_true_take = FetchedPartition._take


class _AsksOnce(FetchedPartition):
    __slots__ = ("_has_truncated",)

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._has_truncated = False

    def want(self) -> Wanted:
        wanted = super().want()
        if self._has_truncated:
            wanted = self._wanted = wanted._replace(last_fetched_epoch=NO_EPOCH)
        return wanted

    def _truncate(self, target: Target, now: Instant, reason: Reason) -> Next:
        self._has_truncated = True
        return super()._truncate(target, now, reason)


def _counted_anyway(
    self: FollowerReader,
    replica: Replica,
    fetched: Fetched,
    answer: PartitionAnswer,
    limit: int,
    *,
    is_first: bool,
    now: Instant,
) -> None:
    _true_read(self, replica, fetched, answer, limit, is_first=is_first, now=now)
    if answer.diverging is not None:
        replica.check_leading().follower_fetched(
            self._replica_id,
            offset=Offset(fetched.fetch_offset),
            log_start_offset=Offset(fetched.log_start_offset),
            broker_epoch=self._broker_epoch,
            now=now,
        )


def _marks_first(self: FetchedPartition, data: PartitionData, now: Instant) -> Next:
    if data.diverging_epoch is not None and data.error_code == ErrorCode.NONE:
        self.replica.check_following().followed_to(data.high_watermark, 0, now)
    return _true_take(self, data, now)


def _unclamped(
    self: FollowerRole, high_watermark: int, log_start_offset: int, now: Instant
) -> None:
    _true_followed_to(self, high_watermark, log_start_offset, now)
    self._log.offsets.high_watermark = Offset(max(self._log.high_watermark, high_watermark))


def _as_if_asked_now(self: FetchedPartition, data: PartitionData) -> Any:
    self._asked = Asked(self.replica.log.log_end_offset, self.replica.leader_epoch)
    return _true_judge(self, data)


def _of_any_epoch(self: FollowerRole, records: Buffer, now: Instant) -> AppendResult:
    result = self._log.appender.append_as_follower(records, now.wall_ms)
    self._replica.note_flush()
    return result


def _start_stays(
    self: FollowerRole, high_watermark: int, log_start_offset: int, now: Instant
) -> None:
    del log_start_offset
    _true_followed_to(self, high_watermark, 0, now)


def _once_more(self: Fetchers, replica: Replica, leader: Any, now: Instant) -> None:
    self._placed.pop(replica, None)
    _true_follow(self, replica, leader, now)


def _epochs_aside(self: Fetchers, replica: Replica, leader: Any, now: Instant) -> None:
    placed = self._placed.get(replica)
    at = self._place(leader, replica.topic_partition)
    if placed is None or self._fetchers.get(at) is not placed.fetcher:
        _true_follow(self, replica, leader, now)


def _to_its_mark(
    latest: LeaderEpoch,
    *,
    high_watermark: Offset,
    log_end_offset: Offset,
    policies: Policies,
) -> Target | None:
    return first_truncation(
        latest,
        high_watermark=high_watermark,
        log_end_offset=log_end_offset,
        policies=replace(policies, truncate_by=TruncateBy.HIGH_WATERMARK),
    )


FOLLOWING: Final = (
    Mutant(
        "truncate-by-leader-epoch",
        "A follower truncates where the logs part, not to its high watermark (KIP-101).",
        ("I-23", "I-24", "I-28"),
        patch(
            fetcher_partition,
            first_truncation=_to_its_mark,
        ),
    ),
    Mutant(
        "compare-logs",
        "A leader says where the follower's log parts from its own (KIP-101, KIP-595).",
        ("I-14", "I-21", "I-22"),
        patch(fetch_reading, _has_diverged=no),
    ),
    Mutant(
        "ask-until-the-logs-agree",
        "A follower that has truncated compares again before it goes on (KIP-279).",
        ("I-14", "I-21", "I-22"),
        patch(fetcher, FetchedPartition=_AsksOnce),
    ),
    Mutant(
        "no-count-of-a-diverging-fetch",
        "A fetch that is answered with a divergence acknowledges nothing (KIP-595).",
        ("I-14", "I-15"),
        patch(FollowerReader, read=_counted_anyway),
    ),
    Mutant(
        "no-mark-from-a-diverging-answer",
        "The high watermark of an answer that says that logs diverge is not used (KAFKA-14704).",
        ("I-22", "I-24"),
        patch(FetchedPartition, _take=_marks_first),
    ),
    Mutant(
        "cut-empty-epochs",
        "Epochs that begin behind the log's end go with it, also empty ones (KAFKA-10706).",
        ("I-03", "I-21"),
        patch(LeaderEpochs, truncate_from_end=no),
    ),
    Mutant(
        "mark-within-the-log",
        "A follower calls nothing committed that it does not have (1.5).",
        ("I-01",),
        patch(FollowerRole, followed_to=_unclamped),
    ),
    Mutant(
        "answers-to-the-last-question",
        "An answer to a question that is not the last one is not used (F-28, KAFKA-6361).",
        ("I-49", "I-50"),
        patch(FetchedPartition, _judge=_as_if_asked_now, is_asked_by=yes),
    ),
    Mutant(
        "answers-that-fit",
        "What a follower appends is an answer to its last question, and continues its log (1.5).",
        ("I-02", "I-03", "I-21"),
        together(
            patch(FetchedPartition, _judge=_as_if_asked_now, is_asked_by=yes),
            patch(LogAppender, _checked=in_any_order),
        ),
    ),
    Mutant(
        "no-records-of-later-epochs",
        "A follower takes no records of a leader that it does not know yet (1.5).",
        (),
        patch(FollowerRole, append=_of_any_epoch),
        "a leader refuses fetches of another epoch before: see fence-by-leader-epoch",
    ),
    Mutant(
        "follow-the-log-start",
        "A follower deletes what its leader has deleted (1.5).",
        ("I-27", "I-49", "I-51"),
        patch(FollowerRole, followed_to=_start_stays),
    ),
    Mutant(
        "start-over-where-the-leader-starts",
        "A follower that is to go on where its leader's log starts, above its own high watermark, "
        "drops all that it has (note 0049).",
        ("I-28", "I-29"),
        policy(starts_over=False),
    ),
    Mutant(
        "one-fetcher",
        "A replica that follows another leader leaves the fetcher of the former one (I-09).",
        ("I-09",),
        patch(Fetchers, follow=_once_more),
    ),
    Mutant(
        "begin-anew-in-each-epoch",
        "A new leader epoch begins with a comparison, also under the same leader (KAFKA-7164).",
        ("I-09", "I-49"),
        patch(Fetchers, follow=_epochs_aside),
    ),
)
