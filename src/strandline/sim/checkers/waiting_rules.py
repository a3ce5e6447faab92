"""Who fetches, who waits, and whether somebody waits in vain: I-09, I-40, I-42.

Whether a parked fetch could be answered is worked out from the model of the log, not by asking the
fetch. Everything here holds between two events: at the end of a turn nobody is left who should have
been woken, and a fetch session has nothing to tell that is not on its list of news.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from strandline.node.follower_sessions import Followed, FollowerSession
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.node_internals import (
    ParkedFetch,
    commits_of,
    fetchers_of,
    fetches,
    first_required,
    has_failed_commits,
    is_to_be_woken,
    parked,
    parked_deletion,
    parked_fetch,
    place_of,
    sessions_of,
)
from strandline.sim.checkers.violations import Findings
from strandline.types import NO_EPOCH, BrokerId

if TYPE_CHECKING:
    from strandline.node.fetch_sessions import Fetched, FetchKey
    from strandline.node.node import Node
    from strandline.node.purgatory import ParkedEntry
    from strandline.node.replica import Replica


class WaitingRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._epochs: dict[tuple[int, int], tuple[int, int]] = {}
        self._passed_over: dict[BrokerId, set[ParkedEntry]] = {}
        """Fetches that could be answered only since a log was compacted."""

    # -- Fetchers ----------------------------------------------------------------------------

    def check_role(self, node: Node, model: LogModel) -> None:
        """I-09: a replica leads, or is fetched from its leader, or has none."""
        replica = model.replica
        if replica is None or replica.is_retired:
            return
        place = place_of(node.fetchers, replica)
        count = sum(fetches(fetcher, replica) for fetcher in fetchers_of(node.fetchers))
        if replica.is_leading or replica.leader_id < 0:
            if place is None and not count:
                return
            problem = f"is fetched by {count} fetchers"
        elif place is None or count != 1:
            problem = f"follows broker {replica.leader_id}, but {count} fetchers fetch it"
        elif (
            place.fetcher.source != replica.leader_id or place.leader_epoch != replica.leader_epoch
        ):
            problem = (
                f"follows broker {replica.leader_id} in epoch {replica.leader_epoch}, but is "
                f"fetched from {place.fetcher.source} in epoch {place.leader_epoch}"
            )
        else:
            return
        role = "leads and " if replica.is_leading else ""
        self._findings.add("I-09", f"{model} {role}{problem}", model.at)

    # -- The purgatory -----------------------------------------------------------------------

    def check_commits(self, node: Node, model: LogModel) -> None:
        """I-40 for appends that wait for the high watermark."""
        replica = model.replica
        commits = None if replica is None else commits_of(replica)
        if replica is None or commits is None or is_to_be_woken(node.purgatory, replica):
            return
        required = first_required(commits)
        if has_failed_commits(commits) or (
            required is not None and required <= replica.log.high_watermark
        ):
            self._findings.add(
                "I-40",
                f"{model} has the high watermark {replica.log.high_watermark}, but somebody "
                f"still waits for {required}",
                model.at,
            )

    def check_parked(self, node: Node, models: Mapping[FetchKey, LogModel]) -> None:
        """I-40 for parked requests, after a turn; `models` by what requests call them."""
        alarm_ms = node.next_deadline_ms()
        for entry in parked(node.purgatory):
            connection = entry.operation.connection
            if (
                entry not in connection.parked
                or any(entry not in watched.waiters for watched in entry.watched)
                or alarm_ms is None
                or alarm_ms > entry.timer.at_ms
            ):
                self._findings.add("I-40", f"A parked request of {connection.client_host} is lost")
            fetch = parked_fetch(entry.operation)
            deletion = None if fetch is not None else parked_deletion(entry.operation)
            if fetch is not None:
                what, reason = "fetch", _reason_to_answer(fetch, models)
                if reason is not None and entry in self._passed_over.get(node.broker_id, ()):
                    continue
            elif deletion is not None:
                what, reason = "deletion", _reason_to_tell(deletion)
            else:
                continue
            if reason is not None:
                self._findings.add(
                    "I-40",
                    f"A {what} of {connection.client_host} at broker {node.broker_id} is parked, "
                    f"but {reason}",
                )

    def note_compacted(self, node: Node, models: Mapping[FetchKey, LogModel]) -> None:
        """A log was compacted. Where a batch is gone or smaller, one more may fit into the limits
        of a fetch. As in Kafka nobody looks: the next append is soon enough, or its own time."""
        before = self._passed_over.get(node.broker_id, ())
        self._passed_over[node.broker_id] = {
            entry
            for entry in parked(node.purgatory)
            if entry in before
            or (
                (fetch := parked_fetch(entry.operation)) is not None
                and _reason_to_answer(fetch, models) is not None
            )
        }

    # -- Sessions ----------------------------------------------------------------------------

    def check_sessions(self, node: Node, life: int) -> None:
        """I-42: epochs go up, and a quiet partition of a follower has nothing to tell."""
        for session in sessions_of(node):
            at = (node.broker_id, session.id)
            known = self._epochs.get(at)
            if known is not None and known[0] == life and session.epoch < known[1]:
                self._findings.add(
                    "I-42",
                    f"The epoch of fetch session {session.id} at broker {node.broker_id} fell from "
                    f"{known[1]} to {session.epoch}",
                )
            self._epochs[at] = (life, session.epoch)
            if isinstance(session, FollowerSession):
                for fetched in session.partitions.values():
                    if isinstance(fetched, Followed) and not fetched.is_news:
                        self._check_quiet(node, session, fetched)

    def _check_quiet(self, node: Node, session: FollowerSession, fetched: Followed) -> None:
        replica = fetched.replica
        if replica is None or replica.is_retired or not replica.is_leading:
            return
        log = replica.log
        told = (fetched.fetch_offset, fetched.told_high_watermark, fetched.told_log_start_offset)
        if told != (log.log_end_offset, log.high_watermark, log.log_start_offset):
            self._findings.add(
                "I-42",
                f"{replica.topic_partition}: broker {node.broker_id} has end, high watermark and "
                f"start ({log.log_end_offset}, {log.high_watermark}, {log.log_start_offset}), but "
                f"told broker {session.identity.broker_id} {told} and does not look at it again",
                replica.topic_partition,
            )


def _reason_to_answer(fetch: ParkedFetch, models: Mapping[FetchKey, LogModel]) -> str | None:
    """Why the fetch should have been answered; None if it waits rightly."""
    session = fetch.session
    partitions: Iterable[Fetched] = fetch.partitions
    if isinstance(session, FollowerSession):
        partitions = session.partitions.values()
    total = 0
    for fetched in partitions:
        model = models.get(fetched.key)
        if model is None:
            continue
        reason = _error(model, fetched, fetch)
        if reason is not None:
            return reason
        if not _is_held_back(model, session):
            total += _available(model, fetched, fetch, total)
    if total and total >= fetch.bytes_min:
        return f"{total} bytes are there of the {fetch.bytes_min} that it wants"
    return None


def _reason_to_tell(deletion: list[tuple[Replica, int]]) -> str | None:
    """Why a DeleteRecords should have been answered: all of its partitions are decided."""
    for replica, target in deletion:
        leading = replica.leading
        if leading is not None and not replica.is_retired and leading.low_watermark < target:
            return None
    ends = [(str(replica.topic_partition), target) for replica, target in deletion]
    return f"every live replica of {ends} starts there"


def _error(model: LogModel, fetched: Fetched, fetch: ParkedFetch) -> str | None:
    """What the client should be told at once."""
    replica, log = model.replica, model.log
    if replica is None or replica.is_retired:
        return f"{model} is gone"
    if not replica.is_leading and not (fetch.is_consumer and fetch.may_follow):
        return f"{model} does not lead any more"
    if fetched.current_leader_epoch not in (NO_EPOCH, replica.leader_epoch):
        return f"{model} is in epoch {replica.leader_epoch}, not {fetched.current_leader_epoch}"
    if not log.log_start_offset <= fetched.fetch_offset <= log.log_end_offset:
        return f"{model} does not have offset {fetched.fetch_offset}"
    return None


def _is_held_back(model: LogModel, session: object) -> bool:
    """Whether a throttle may keep records from a follower (KIP-73)."""
    return isinstance(session, FollowerSession) and bool(
        model.log.config.leader_replication_throttled_replicas
    )


def _available(model: LogModel, fetched: Fetched, fetch: ParkedFetch, total: int) -> int:
    """The bytes of whole batches that the fetch may be sent, behind `total` of other partitions.

    The first batch of an answer is sent whatever its size. An answer comes from one segment; but if
    there is more in the next one it is sent without waiting, so it does not matter here.
    """
    log = model.log
    end = log.last_stable_offset if fetch.is_consumer else log.log_end_offset
    limit = min(max(0, fetched.max_bytes), max(0, fetch.bytes_max - total))
    first = model.index_at(fetched.fetch_offset)
    if first and model.batches[first - 1].next_offset > fetched.fetch_offset:
        first -= 1
    found, index = 0, first
    while index < len(model.batches) and model.batches[index].next_offset <= end:
        size = model.size_of(index)
        if found + size > limit and (found or total):
            break
        found += size
        index += 1
        if found >= fetch.bytes_min:
            break
    return found
