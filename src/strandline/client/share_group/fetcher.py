"""Acquires records of a member's partitions from their leaders, and acknowledges them.

    member's assignment ──> share sessions with leaders ──> buffer ──> program
                                   ^── parcels of acknowledgements ───────┘

This file knows ShareFetch and ShareAcknowledge, and what each answer means. It must not know the
group, nor what the program thinks of a record.

Theory: what it does is what Kafka's `ShareConsumeRequestManager` does. Records are asked for only
while the program waits for some, since their locks run from then on. Acknowledgements go with the
next fetch of their session, or by themselves if there is none. When a session ends, with its
connection or by a refusal, the broker releases what was acquired in it: acknowledgements of that
fail with the reason, what the program has not got yet is dropped, and a new session begins.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask, CoordinatorClient, Outcome
from strandline.client.refusal import refusal
from strandline.client.share_group.acknowledgements import Holding, Parcel, ShareRecord
from strandline.client.share_group.leaders import Leaders
from strandline.client.share_group.membership import Place
from strandline.client.share_group.observer import ShareObserver
from strandline.client.share_group.reading import acquired_in
from strandline.client.share_group.session import Sent, ShareSession
from strandline.client.share_group.settings import ShareSettings
from strandline.errors import RETRIABLE, ErrorCode, ProtocolError, StrandlineError
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.share_fetch import PartitionData
from strandline.types import BrokerId, TopicPartition

_SESSION_LOST: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)
"""A new session can be begun at once."""
_LEADER_LOST: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""What was acquired there is not the member's any more: to acknowledge it again is no use."""
_FATAL: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
_TOLD: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Errors of a partition that the program has to know of."""


@dataclass(eq=False, slots=True)
class _Arrived:
    """Records that the program has not got yet."""

    holding: Holding
    until_ms: int
    """When their locks end."""


class ShareFetcher:
    """See the module. `now_ms` of the coordinator client is the time."""

    def __init__(
        self,
        settings: ShareSettings,
        member_id: str,
        coordinator: CoordinatorClient,
        leaders: Leaders,
        random: Random,
        observer: ShareObserver,
    ) -> None:
        self.wants = False
        """Whether records are wanted that are not here."""
        self.failure: StrandlineError | None = None
        """What the program has to know."""
        self.trouble: ProtocolError | None = None
        """Why a leader does not answer; it is asked again."""
        self.lock_ms: int | None = None
        """For how long a record is locked, as a broker said last."""
        self._settings = settings
        self._member_id = member_id
        self._coordinator = coordinator
        self._leaders = leaders
        self._random = random
        self._observer = observer
        self._sessions: dict[BrokerId, ShareSession] = {}
        self._backoffs: dict[BrokerId, ExponentialBackoff] = {}
        self._not_before_ms: dict[BrokerId, int] = {}
        self._buffer: deque[_Arrived] = deque()
        self._asks: list[Ask] = []
        self._is_closing = False

    @property
    def _now_ms(self) -> int:
        return self._coordinator.now_ms

    # -- Records -----------------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """Whether there are records for the program. Those whose locks have ended are dropped: the
        broker may have given them to others."""
        while self._buffer and self._buffer[0].until_ms <= self._now_ms:
            self._buffer.popleft()
        return bool(self._buffer)

    def take(self, records_max: int) -> list[Holding]:
        """So many records at most, the first ones."""
        taken: list[Holding] = []
        while records_max > 0 and self.has_records:
            arrived = self._buffer[0]
            holding = arrived.holding
            if len(holding.records) <= records_max:
                self._buffer.popleft()
            else:
                offsets = list(holding.records)[:records_max]
                part: dict[int, ShareRecord] = {at: holding.records.pop(at) for at in offsets}
                holding = Holding(holding.at, holding.place, holding.session, part)
            taken.append(holding)
            records_max -= len(holding.records)
        return taken

    def put(self, parcel: Parcel) -> None:
        """Acknowledge these."""
        session: ShareSession = parcel.session
        session.outbox.append(parcel)

    # -- The driver --------------------------------------------------------------------------

    def take_asks(self) -> list[Ask]:
        """The requests to send, each once, in this order."""
        asks, self._asks = self._asks, []
        return asks

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do, if nothing happens before; None: never."""
        return min((at for at in self._not_before_ms.values() if at > self._now_ms), default=None)

    @property
    def is_closed(self) -> bool:
        """Whether no broker knows a session any more, as far as is known."""
        return self._is_closing and not self._sessions

    def close(self) -> None:
        """Acknowledge what is to be acknowledged, and end all sessions."""
        self._is_closing = True
        self.wants = False
        self._buffer.clear()

    def step(self) -> None:
        """Send what is due."""
        self._give_back()
        led = self._leaders.led
        for broker in list(dict.fromkeys((*led, *self._sessions))):
            wanted = {} if self._is_closing else led.get(broker, {})
            session = self._sessions.get(broker)
            if session is None:
                if not wanted or not self.wants or self._is_left_alone(broker):
                    continue
                group = self._settings.group
                session = self._sessions[broker] = ShareSession(broker, group, self._member_id)
            if not session.is_busy:
                self._drive(session, wanted)

    def _give_back(self) -> None:
        """Release what the program has not got of partitions that are for others now, who would
        wait until its locks end."""
        places = self._leaders.places
        if all(each.holding.place in places for each in self._buffer):
            return
        kept: deque[_Arrived] = deque()
        for each in self._buffer:
            if each.holding.place in places:
                kept.append(each)
            else:
                said = dict.fromkeys(each.holding.records, AckType.RELEASE)
                self._say(each.holding.at, each.holding.place, each.holding.session, said)
        self._buffer = kept

    def _say(
        self, at: TopicPartition, place: Place, session: ShareSession, types: dict[int, AckType]
    ) -> None:
        """Acknowledge something that the program has not got."""
        until_ms = self._now_ms + self._settings.operation_timeout_ms
        self.put(Parcel(at, place, session, types, until_ms, _not_awaited))

    def _is_left_alone(self, broker: BrokerId) -> bool:
        return self._not_before_ms.get(broker, 0) > self._now_ms

    def _drive(self, session: ShareSession, wanted: dict[Place, TopicPartition]) -> None:
        if self._is_closing:
            if session.is_open:
                self._acknowledge(session, is_last=True)
            else:
                self._end(session, ErrorCode.NONE)
        elif self._is_left_alone(session.broker):
            return
        elif self.wants and not session.renews and (wanted or session.partitions):
            self._fetch(session, wanted)
        elif session.is_urgent:
            self._acknowledge(session)

    def _fetch(self, session: ShareSession, wanted: dict[Place, TopicPartition]) -> None:
        sent = session.send(self._now_ms)
        names = {**{each.place: each.at for each in sent.parcels}, **wanted}
        self._observer.asking(session, sent, names.items())
        request = session.fetch_request(sent, wanted, self._settings)
        timeout_ms = self._settings.request_timeout_ms + self._settings.max_wait_ms
        then = partial(self._fetched, session, sent, names)
        self._ask(ApiKey.SHARE_FETCH, lambda _: request, session.broker, timeout_ms, then)

    def _acknowledge(self, session: ShareSession, *, is_last: bool = False) -> None:
        sent = session.send(self._now_ms, is_last=is_last)
        self._observer.asking(session, sent, ((each.place, each.at) for each in sent.parcels))
        request = partial(session.acknowledge_request, sent)
        then = partial(self._acknowledged, session, sent)
        timeout_ms = self._settings.request_timeout_ms
        self._ask(ApiKey.SHARE_ACKNOWLEDGE, request, session.broker, timeout_ms, then)

    def _ask(self, key: ApiKey, request: Any, broker: BrokerId, timeout_ms: int, then: Any) -> None:
        self._asks.append(Ask(key, request, broker, timeout_ms, None, then, may_wait=True))

    # -- Answers -----------------------------------------------------------------------------

    def _acknowledged(self, session: ShareSession, sent: Sent, outcome: Outcome) -> None:
        if not self._is_taken(session, sent, outcome):
            return
        codes: dict[Place, ErrorCode] = {}
        for topic in outcome.responses:
            for data in topic.partitions:
                place = Place(topic.topic_id, data.partition_index)
                codes[place] = ErrorCode(data.error_code)
                self._hint(place, data, outcome)
        self._set_lock_ms(outcome.acquisition_lock_timeout_ms)
        if not any(codes.values()):
            self._backoffs.pop(session.broker, None)
        self._tell(session, sent, codes)
        if sent.is_last:
            self._end(session, ErrorCode.NONE)

    def _fetched(
        self,
        session: ShareSession,
        sent: Sent,
        names: dict[Place, TopicPartition],
        outcome: Outcome,
    ) -> None:
        if not self._is_taken(session, sent, outcome):
            return
        self._set_lock_ms(outcome.acquisition_lock_timeout_ms)
        codes: dict[Place, ErrorCode] = {}
        failed: ErrorCode | None = None
        for topic in outcome.responses:
            for data in topic.partitions:
                place = Place(topic.topic_id, data.partition_index)
                codes[place] = ErrorCode(data.acknowledge_error_code)
                self._hint(place, data, outcome)
                at = names.get(place)
                if at is not None:
                    failed = self._take_in(session, sent, at, place, data) or failed
        if failed is None:
            self._backoffs.pop(session.broker, None)
        else:
            self._leave_alone(session.broker)
        self._tell(session, sent, codes)

    def _take_in(
        self,
        session: ShareSession,
        sent: Sent,
        at: TopicPartition,
        place: Place,
        data: PartitionData,
    ) -> ErrorCode | None:
        """Put the records of a partition into the buffer; returns why there are none."""
        code = ErrorCode(data.error_code)
        if code is not ErrorCode.NONE:
            if code in _TOLD:
                self.failure = refusal(code, data.error_message, f"topic '{at.topic}'")
            self._leaders.doubt([at.topic])
            return code
        self._observer.acquired(
            session, sent, place, data.acquired_records or (), self.lock_ms or 0
        )
        acquired = acquired_in(at, data, checks_crc=self._settings.checks_crc)
        if acquired.others:
            self._say(at, place, session, acquired.others)
        if acquired.error is not None:
            self.failure = acquired.error
        if acquired.records:
            until_ms = sent.at_ms + (self.lock_ms or self._settings.operation_timeout_ms)
            self._buffer.append(_Arrived(Holding(at, place, session, acquired.records), until_ms))
            self.wants = False
        return None

    def _is_taken(self, session: ShareSession, sent: Sent, outcome: Outcome) -> bool:
        """Whether the broker took a request; if not, the session is over."""
        session.is_busy = False
        code, message = _code(outcome)
        if code is ErrorCode.NONE:
            self.trouble = None
            session.answered()
            self._observer.heard(session)
            return True
        self._observer.refused(code)
        for each in sent.parcels:
            self._observer.told(each, code)
            each.then(each, code)
        if isinstance(outcome, ProtocolError) and any(each.renewed for each in sent.parcels):
            return False  # too old a broker to renew locks: nothing was sent
        what = f"share group '{self._settings.group}'"
        if code in _FATAL:
            self.failure = refusal(code, message, what)
        elif code not in _SESSION_LOST:
            self.trouble = refusal(code, message, what)
        if code not in _SESSION_LOST:
            self._leave_alone(session.broker)
            led = self._leaders.led.get(session.broker, {})
            self._leaders.doubt({at.topic for at in led.values()})
        self._end(session, code)
        return False

    def _end(self, session: ShareSession, code: ErrorCode) -> None:
        session.ended = code if code else ErrorCode.SHARE_SESSION_NOT_FOUND
        if self._sessions.get(session.broker) is session:
            del self._sessions[session.broker]
        self._observer.over(session)
        outbox, session.outbox = session.outbox, []
        for each in outbox:
            each.then(each, session.ended)
        kept = (each for each in self._buffer if each.holding.session is not session)
        self._buffer = deque(kept)

    def _tell(self, session: ShareSession, sent: Sent, codes: dict[Place, ErrorCode]) -> None:
        """Say what came of acknowledgements, or send them again."""
        now_ms = self._now_ms
        for parcel in sent.parcels:
            code = codes.get(parcel.place, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._observer.told(parcel, code)
            may_pass = code in RETRIABLE and code not in _LEADER_LOST and now_ms < parcel.until_ms
            if may_pass and not sent.is_last:
                session.outbox.append(parcel)
                self._leave_alone(session.broker)
            else:
                parcel.then(parcel, code)
            if code in _LEADER_LOST:
                self._leaders.doubt([parcel.at.topic])

    def _hint(self, place: Place, data: Any, answer: Any) -> None:
        at = self._leaders.at(place)
        if at is not None:
            self._coordinator.router.hint(
                at, place.topic_id, data.current_leader, answer.node_endpoints
            )

    def _set_lock_ms(self, lock_ms: int) -> None:
        if lock_ms > 0:
            self.lock_ms = lock_ms

    def _leave_alone(self, broker: BrokerId) -> None:
        backoff = self._backoffs.get(broker)
        if backoff is None:
            backoff = self._backoffs[broker] = self._settings.backoff(self._random)
        self._not_before_ms[broker] = self._now_ms + backoff.next_ms()


def _code(outcome: Outcome) -> tuple[ErrorCode, str | None]:
    """The code of an answer as a whole, and what the broker says to it."""
    if isinstance(outcome, RequestFailed):
        return ErrorCode.NETWORK_EXCEPTION, outcome.reason
    if isinstance(outcome, ProtocolError):
        return outcome.code, outcome.message
    return ErrorCode(outcome.error_code), outcome.error_message


def _not_awaited(parcel: Parcel, code: ErrorCode) -> None:
    """The program had none of these; what does not count comes again."""
