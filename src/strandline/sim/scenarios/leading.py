"""The leader's side of a scenario: writes, follower fetches, the high watermark.

This file knows in which order the rules of `strandline.replication` are asked by a leader, which is
the order of the specification (1.3, 1.4), and nothing of how they decide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.replication.follower import FetchAnswer
from strandline.replication.leader import Leader
from strandline.replication.policies import AnswerWatermark, Policies
from strandline.replication.truncation import EpochEnd, divergence
from strandline.sim.scenarios.controller import Rules, State
from strandline.sim.scenarios.messages import Fetch, Produce, Reply, Write
from strandline.sim.scenarios.replica import WALL_MS, Replica, broker_id_of, name_of, names_of
from strandline.storage.log import Log
from strandline.types import BrokerId, Offset, ProducerEpoch, ProducerId

if TYPE_CHECKING:
    from strandline.sim.scenarios.oracle import Oracle


class Leading(ABC):
    """What the world has, and its verbs for the replica that leads."""

    policies: Policies
    rules: Rules
    oracle: Oracle
    replicas: dict[str, Replica]
    state: State
    now_ms: int

    def __init__(self) -> None:
        self.events: list[str] = []
        """What has happened in this step, in words."""
        self.outcomes: dict[str, str] = {}
        """What was last answered for each value: an offset, an error, or that it waits."""
        self._waiting: list[Produce] = []
        self._parked: dict[str, Fetch] = {}

    # -- The leader (1.3, 1.4) ---------------------------------------------------------------

    def produce(self, name: str, values: list[str], write: Write) -> None:
        """A client sends batches to a broker; `a+b` is one batch of two records."""
        for index, batch in enumerate(values):
            self._produce_one(self.replicas[name], batch, write, index)

    def _produce_one(self, replica: Replica, value: str, write: Write, index: int) -> None:
        try:
            leader = _writable(replica, write)
            result = replica.log.appender.append_as_leader(
                self._batch(value, write, index),
                leader_epoch=leader.leader_epoch,
                now_ms=WALL_MS + self.now_ms,
            )
        except ProtocolError as error:
            self.outcomes[value] = error.code.name
            self.events.append(f"{value} fails: {error.code.name}")
            return
        waiting = Produce(
            value,
            replica,
            result.base_offset,
            Offset(result.last_offset + 1),
            None if write.timeout_ms is None else self.now_ms + write.timeout_ms,
            result.is_duplicate,
        )
        if write.loses_reply:
            self.outcomes[value] = "UNKNOWN: the reply is lost"
            self.events.append(f"{value} is at {result.base_offset}, its reply is lost")
        elif write.acks == "all":
            self.outcomes[value] = "waiting"
            self._waiting.append(waiting)
        elif write.acks == "1":
            self._finish(waiting, "")
        self._advance(replica)
        self._answer_parked(replica)

    def _batch(self, value: str, write: Write, index: int) -> bytearray:
        names = value.split("+")
        sequence = write.sequence + index if write.sequence >= 0 else -1
        return bytearray(
            build_batch(
                [Record(timestamp=WALL_MS + self.now_ms, value=name.encode()) for name in names],
                producer_id=ProducerId(write.producer_id),
                producer_epoch=ProducerEpoch(write.producer_epoch),
                base_sequence=sequence,
                is_transactional=write.is_transactional,
            )
        )

    def write_marker(
        self, name: str, kind: str, write: Write, coordinator_epoch: int, version: int
    ) -> None:
        """The transaction coordinator ends a producer's transaction on this partition."""
        replica = self.replicas[name]
        leader = replica.reign
        marker = EndTransactionMarker(ControlType[kind.upper()], coordinator_epoch)
        batch = build_control_batch(
            marker,
            timestamp=WALL_MS + self.now_ms,
            producer_id=ProducerId(write.producer_id),
            producer_epoch=ProducerEpoch(write.producer_epoch),
        )
        try:
            replica.log.appender.append_as_coordinator(
                bytearray(batch),
                leader_epoch=leader.leader_epoch,
                now_ms=WALL_MS + self.now_ms,
                transaction_version=version,
            )
        except ProtocolError as error:
            self.outcomes["marker"] = error.code.name
            self.events.append(f"marker fails: {error.code.name}")
            return
        self.outcomes["marker"] = "ok"
        self._advance(replica)
        self._answer_parked(replica)

    def delete_records(self, name: str, offset: int) -> None:
        """DeleteRecords on the leader."""
        self.replicas[name].log.retention.delete_records_to(Offset(offset))

    def low_watermark(self, name: str) -> Offset:
        """The smallest log start over the replicas on live brokers, as the leader knows it."""
        replica = self.replicas[name]
        return replica.reign.low_watermark(
            replica.log.log_start_offset,
            lambda broker: self.replicas[name_of(broker)].is_registered,
        )

    def _serve(self, replica: Replica, fetch: Fetch) -> Reply:
        """A follower's fetch on its first pass, in the order of the specification."""
        log, follower = replica.log, broker_id_of(fetch.follower)
        try:
            leader = _fetchable(replica, fetch)
            before = log.high_watermark
            end = divergence(
                fetch.last_fetched_epoch,
                fetch.offset,
                log_start_offset=log.log_start_offset,
                history=log.reader,
            )
            if end is not None:
                return self._reply(fetch, log, diverging=end)
            records = self._read(log, fetch)
            changed = leader.fetched(
                follower,
                offset=fetch.offset,
                log_start_offset=fetch.log_start_offset,
                broker_epoch=fetch.broker_epoch,
                log_end_offset=log.log_end_offset,
                now_ms=self.now_ms,
            )
        except ProtocolError as error:
            return self._reply(fetch, log, error_code=error.code)
        if leader.maybe_expand(
            follower,
            high_watermark=log.high_watermark,
            may_join=self._may_join(leader, follower),
        ):
            self._say_proposal(replica)
        if changed:
            self._advance(replica)
        reply = self._reply(fetch, log, records=records)
        if self.policies.answer_watermark is AnswerWatermark.PRE:
            return replace(reply, answer=reply.answer._replace(high_watermark=before))
        return reply

    @staticmethod
    def _reply(
        fetch: Fetch,
        log: Log,
        *,
        error_code: ErrorCode = ErrorCode.NONE,
        diverging: EpochEnd | None = None,
        records: bytes = b"",
    ) -> Reply:
        answer = FetchAnswer(
            error_code,
            log.high_watermark,
            log.log_start_offset,
            diverging,
            bool(records),
        )
        return Reply(fetch, answer, records)

    @staticmethod
    def _read(log: Log, fetch: Fetch) -> bytes:
        found = log.reader.read(
            fetch.offset,
            1 if fetch.one_batch else 1 << 20,
            end_offset=log.log_end_offset,
            at_least_one_batch=True,
        )
        return b"" if found is None else found.file.read_at(found.position, found.length)

    def _may_join(self, leader: Leader, broker_id: BrokerId) -> bool:
        """Alive, not leaving, and the registration that fetched is the one that is alive."""
        replica = self.replicas[name_of(broker_id)]
        return (
            replica.is_registered
            and not replica.is_shutting_down
            and (
                self.rules.writes_directly
                or leader.progress[broker_id].broker_epoch == replica.broker_epoch
            )
        )

    def _advance(self, replica: Replica) -> None:
        leader, log = replica.leader, replica.log
        if leader is None:
            return
        target = leader.next_high_watermark(
            log.high_watermark,
            log.log_end_offset,
            self.now_ms,
            may_join=lambda broker_id: self._may_join(leader, broker_id),
        )
        if log.advance_high_watermark_to(target):
            self.oracle.committed(replica)
        for waiting in list(self._waiting):
            if waiting.leader is replica and log.high_watermark >= waiting.required:
                enough = leader.has_maximal_min_in_sync
                code = "" if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND.name
                self._finish(waiting, code)

    def _finish(self, waiting: Produce, error: str) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if error:
            self.outcomes[waiting.value] = error
            self.events.append(f"{waiting.value} fails: {error}")
            return
        self.outcomes[waiting.value] = f"@{waiting.base_offset}"
        duplicate = " as a duplicate" if waiting.is_duplicate else ""
        self.events.append(f"{waiting.value} is acknowledged at {waiting.base_offset}{duplicate}")

    def _say_proposal(self, replica: Replica) -> None:
        state = replica.reign.in_sync
        self.events.append(
            f"{replica.name} proposes in sync {names_of(state.proposed)} "
            f"instead of {names_of(state.members)}"
        )

    def _lose_leadership(self, replica: Replica) -> None:
        for name in [n for n, fetch in self._parked.items() if self._source(fetch) is replica]:
            del self._parked[name]
            self.events.append(f"{replica.name} answers {name}: NOT_LEADER_OR_FOLLOWER")
        for waiting in list(self._waiting):
            if waiting.leader is replica:
                self._finish(waiting, ErrorCode.NOT_LEADER_OR_FOLLOWER.name)

    @abstractmethod
    def _deliver(self, replica: Replica, reply: Reply) -> None:
        """A reply arrives at the follower."""

    def _answer_parked(self, replica: Replica) -> None:
        for name in [n for n, fetch in self._parked.items() if self._source(fetch) is replica]:
            if replica.log.log_end_offset > self._parked[name].offset:
                self._answer_again(replica, self._parked.pop(name))

    def _answer_again(self, source: Replica, fetch: Fetch) -> None:
        """Read once more; what the fetch said about the follower was noted on the first pass."""
        reply = self._reply(fetch, source.log, records=self._read(source.log, fetch))
        self._say_reply(source.name, reply)
        self._deliver(self.replicas[fetch.follower], reply)

    def _source(self, fetch: Fetch) -> Replica:
        name = self.replicas[fetch.follower].leader_name
        if name is None:
            raise InvariantViolated(f"{fetch.follower} follows nobody.")
        return self.replicas[name]

    def _say_reply(self, source: str, reply: Reply) -> None:
        answer, fetch = reply.answer, reply.fetch
        head = f"{source} answers {fetch.follower}@{fetch.offset}:"
        if answer.error_code != ErrorCode.NONE:
            self.events.append(f"{head} {answer.error_code.name}")
        elif answer.diverging is not None:
            epoch, end = answer.diverging
            self.events.append(f"{head} the logs diverge, epoch {epoch} ends at {end}")
        else:
            what = "records" if reply.records else "nothing"
            self.events.append(f"{head} {what}, high watermark {answer.high_watermark}")


def _writable(replica: Replica, write: Write) -> Leader:
    """The leader that takes a client's write, or why it is refused."""
    if not replica.is_running or replica.leader is None:
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if write.acks == "all" and not replica.leader.has_min_in_sync:
        raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)
    return replica.leader


def _fetchable(replica: Replica, fetch: Fetch) -> Leader:
    """The leader that answers a follower, or why it does not (1.4, steps 1 to 3)."""
    if fetch.leader_epoch < replica.leader_epoch:
        raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
    if fetch.leader_epoch > replica.leader_epoch:
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if replica.leader is None:
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if broker_id_of(fetch.follower) not in replica.leader.progress:
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    return replica.leader
