"""One link to another broker: when to dial, and what the turns of the node's loop do with it.

    idle ── ask ──> waiting for the back-off ──> dialling ──> open ── failure ──> idle
                                                     └─ logging in ─┘

This file drives a `client.channel` by effects and timers: the channel knows the requests, their
order and deadlines. It does not know sockets (it says what it wants in effects), nor what the
requests mean, nor which broker needs a link (`peers`).

Theory: whatever goes wrong ends the link, because nothing that follows a lost or unreadable answer
could be told apart, and then everything that was asked on it fails. The caller decides whether
to ask again; a new ask dials again, but not before a pause that doubles with every failure in a
row (Kafka's `reconnect.backoff.ms`). There is no jitter: few brokers redial one that came back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from strandline.client.backoff import doubled_ms
from strandline.client.channel import Channel, Request, RequestFailed
from strandline.errors import MalformedFrame, StrandlineError
from strandline.node.effects import Ask, Dial, HangUp, LinkId
from strandline.node.outbox import Outbox
from strandline.node.timers import Timer, Timers
from strandline.protocol.apis import KNOWN, Api
from strandline.types import BrokerId, Instant

if TYPE_CHECKING:
    from strandline.client.security.authentication import Authentication
    from strandline.node.peer_login import PeerLogin

log = logging.getLogger(__name__)

BACKOFF_MS_MIN: Final = 50
BACKOFF_MS_MAX: Final = 1000
DIAL_TIMEOUT_MS: Final = 10_000
IN_FLIGHT_MAX: Final = 5
QUEUED_MAX: Final = 100
Answered: TypeAlias = Callable[[object, Instant], None]
"""Gets the response message, or `RequestFailed`. Records in a message are views of the frame,
good during the call only."""


class Address(NamedTuple):
    """Where one registration of a broker is reached. A new epoch is a new process."""

    host: str
    port: int
    broker_epoch: int


class Question(Request):
    """A request, and who gets its outcome."""

    __slots__ = ("answered",)

    def __init__(
        self, api: Api, version: int, message: object, answered: Answered, deadline_ms: int
    ) -> None:
        super().__init__(api, version, message, deadline_ms)
        self.answered = answered


class OpenLinks:
    """The connections of all links by their ids, and what every link works with."""

    def __init__(self, outbox: Outbox, timers: Timers, login: PeerLogin | None) -> None:
        """`login` is how links authenticate; None if they need not."""
        self.login = login
        self.outbox = outbox
        self.timers = timers
        self.by_id: dict[LinkId, PeerLink] = {}
        self._ids = count(1)

    def enter(self, link: PeerLink) -> LinkId:
        """Name a connection that is about to be dialled."""
        link_id = next(self._ids)
        self.by_id[link_id] = link
        return link_id


class PeerLink:
    """The requests to one broker on one channel, and the connection that carries them.

    `link_id` is None while there is no connection, neither open nor being dialled.
    `failures` counts dials and connections that ended since the last answer.
    """

    __slots__ = (
        "_alarm",
        "_authentication",
        "_channel",
        "_dialled_by_ms",
        "_failed_at_ms",
        "_is_to_log_in",
        "_links",
        "_renewal",
        "address",
        "broker_id",
        "failures",
        "is_open",
        "link_id",
    )

    def __init__(
        self, broker_id: BrokerId, address: Address, client_id: str, links: OpenLinks
    ) -> None:
        self.broker_id = broker_id
        self.address = address
        self.link_id: LinkId | None = None
        self.is_open = False
        self.failures = 0
        self._links = links
        self._channel: Channel[Question] = Channel(client_id, IN_FLIGHT_MAX)
        self._dialled_by_ms = 0
        self._authentication: Authentication | None = None
        """The one under way."""
        self._renewal: Timer | None = None
        """When to authenticate again."""
        self._is_to_log_in = False
        """Whether that is to be done as soon as nothing is under way."""
        self._failed_at_ms = 0
        self._alarm: Timer | None = None

    # -- Asking ------------------------------------------------------------------------------

    def ask(self, question: Question, now: Instant) -> bool:
        """Send the request now or when the link can; False if too many wait already."""
        if self._channel.queued >= QUEUED_MAX:
            return False
        self._channel.ask(question)
        self._go_on(now)
        self._ring_by(question.deadline)
        return True

    def _go_on(self, now: Instant) -> None:
        """Do what the link's state allows for what is queued."""
        if self.is_open and self.link_id is not None:
            while (frame := self._channel.next_frame()) is not None:
                self._links.outbox.add(Ask(self.link_id, frame))
        elif self.link_id is None and self._channel.queued:
            wait_ms = doubled_ms(self.failures, least_ms=BACKOFF_MS_MIN, most_ms=BACKOFF_MS_MAX)
            dial_at_ms = self._failed_at_ms + wait_ms
            if now.monotonic_ms >= dial_at_ms:
                self._dial(now)
            else:
                self._ring_by(dial_at_ms)

    def _dial(self, now: Instant) -> None:
        link_id = self.link_id = self._links.enter(self)
        self._dialled_by_ms = now.monotonic_ms + DIAL_TIMEOUT_MS
        self._ring_by(self._dialled_by_ms)
        self._links.outbox.add(Dial(link_id, self.broker_id, self.address.host, self.address.port))

    # -- What the driver tells ---------------------------------------------------------------

    def opened(self, now: Instant) -> None:
        """The dial succeeded."""
        if self._links.login is None:
            self.is_open = True
            self._go_on(now)
        else:
            self._log_in(self._links.login, now)

    def received(self, frame: memoryview, now: Instant) -> None:
        """One answer has come; it must be that to the oldest request."""
        try:
            question, answer = self._channel.received(frame)
        except MalformedFrame as error:
            self.fail(str(error), now, hang_up=True)
            return
        if self._authentication is None:
            self.failures = 0
        _tell(question, answer, now)
        if self._is_to_log_in and self._links.login is not None and not self._channel.in_flight:
            self._log_in(self._links.login, now)
        elif self._channel.queued:
            self._go_on(now)

    def fail(self, reason: str, now: Instant, *, hang_up: bool) -> None:
        """End the connection, if there is one, and fail everything that was asked.

        `hang_up` says that it is this node that ends it; else the driver told that it is over.
        """
        if self.link_id is not None:
            self.failures += 1
            self._failed_at_ms = now.monotonic_ms
        self._end(reason, now, hang_up=hang_up)

    def move(self, address: Address, reason: str, now: Instant) -> None:
        """Reach another registration of the broker, about which nothing bad is known yet."""
        self.address = address
        self.failures = 0
        self._end(reason, now, hang_up=True)

    def abandon(self) -> None:
        """End the connection; what was asked gets no outcome."""
        self._disconnect(hang_up=True)
        self._channel.end("it was abandoned")
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _end(self, reason: str, now: Instant, *, hang_up: bool) -> None:
        self._disconnect(hang_up=hang_up)
        for question, failed in self._channel.end(reason):
            _tell(question, failed, now)

    def _disconnect(self, *, hang_up: bool) -> None:
        link_id, self.link_id, self.is_open = self.link_id, None, False
        self._authentication, self._is_to_log_in = None, False
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if link_id is not None:
            del self._links.by_id[link_id]
            if hang_up:
                self._links.outbox.add(HangUp(link_id))

    # -- Authentication ----------------------------------------------------------------------

    def _log_in(self, login: PeerLogin, now: Instant) -> None:
        """Authenticate, for the first time or again; nothing else goes out meanwhile."""
        self._is_to_log_in = False
        self._dialled_by_ms = now.monotonic_ms + DIAL_TIMEOUT_MS
        self._ring_by(self._dialled_by_ms)
        try:
            self._authentication = login.begin(f"broker {self.broker_id}")
        except StrandlineError as error:
            self._refused(error, now)
        else:
            self._next_step(self._authentication)

    def _next_step(self, authentication: Authentication) -> None:
        step, link_id = authentication.next, self.link_id
        if step is None or link_id is None:
            return
        question = Question(
            KNOWN[step.key], step.version, step.request, self._stepped, self._dialled_by_ms
        )
        self._channel.ask_first(question)
        frame = self._channel.next_frame()
        if frame is not None:
            self._links.outbox.add(Ask(link_id, frame))

    def _stepped(self, answer: object, now: Instant) -> None:
        authentication, login = self._authentication, self._links.login
        if authentication is None or login is None or isinstance(answer, RequestFailed):
            return
        try:
            authentication.answered(answer)
        except StrandlineError as error:
            self._refused(error, now)
            return
        if authentication.next is not None:
            self._next_step(authentication)
            return
        self._authentication = None
        self.is_open = True
        self.failures = 0
        again_ms = login.again_after_ms(authentication)
        if again_ms is not None:
            self._renewal = self._links.timers.schedule(now.monotonic_ms + again_ms, self._renew)
        self._go_on(now)

    def _renew(self, now: Instant) -> None:
        """The session is about to end: authenticate again when all answers are there."""
        self._renewal = None
        self.is_open = False
        self._is_to_log_in = True
        self._dialled_by_ms = now.monotonic_ms + DIAL_TIMEOUT_MS
        self._ring_by(self._dialled_by_ms)
        if not self._channel.in_flight and self._links.login is not None:
            self._log_in(self._links.login, now)

    def _refused(self, error: StrandlineError, now: Instant) -> None:
        log.error("This broker cannot log in with broker %d: %s", self.broker_id, error)
        self.fail(str(error), now, hang_up=True)

    # -- Time --------------------------------------------------------------------------------

    def _ring_by(self, at_ms: int) -> None:
        """Look at the deadlines no later than then. One timer serves all of them."""
        if self._alarm is not None:
            if self._alarm.at_ms <= at_ms:
                return
            self._alarm.cancel()
        self._alarm = self._links.timers.schedule(at_ms, self._ring)

    def _ring(self, now: Instant) -> None:
        self._alarm = None
        now_ms = now.monotonic_ms
        if self._channel.overdue(now_ms) is not None:
            self.fail("it did not answer in time", now, hang_up=True)
        elif self.link_id is not None and not self.is_open and self._dialled_by_ms <= now_ms:
            self.fail("it could not be reached in time", now, hang_up=True)
        else:
            self._fail_overdue(now)
            self._go_on(now)
        due = self._channel.first_due()
        if due is not None:
            self._ring_by(due.deadline)
        if self.link_id is not None and not self.is_open:
            self._ring_by(self._dialled_by_ms)

    def _fail_overdue(self, now: Instant) -> None:
        """Give up what was not sent in time. A dial goes on: it has a limit of its own.

        If it ended with the requests that wait for it, one that begins after a pause as long as
        their timeouts would never have the time to succeed.
        """
        failed = RequestFailed("it could not be asked in time", was_sent=False)
        for question in self._channel.withdraw_overdue(now.monotonic_ms):
            _tell(question, failed, now)


def _tell(question: Question, answer: object, now: Instant) -> None:
    """Hand over an answer. The boundary for bugs of the caller: other requests go on."""
    try:
        question.answered(answer, now)
    except Exception:
        log.exception("An answer to %s could not be handled", question.api.key.name)
