"""One broker's access to the simulated metadata store, with the promises of `cluster.store.Store`.

    ready ──connection lost──▶ lost ──a server is found──▶ surveying ──everything told──▶ ready

What the store has to tell a client goes in *notifications*: a notification holds the net effect of
some transactions and the outcomes of the writes that it covers, as what `broker.zookeeper_mirror`
reads in one cut. A notification is open, and takes in what happens, until the client reads it; then
it is on its way, in order with all others, to be told: first the news, then the outcomes.

When the connection is lost, requests on their way are lost, and notifications that were not told
yet become part of what was missed. The first notification of the next connection (the survey) tells
all of it; after it, callers that wait for a lost answer hear `OutcomeUnknown`, and writes are taken
again. A caller waits for one or two session timeouts at most: then it gets the failure before
the client has the new state.

Silence is not loss: while a broker is cut off or its process is paused, what either side sends is
held, and goes on if that was short. A server that hears nothing ends the session at its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Final, Protocol

from strandline.cluster.net_effect import NetEffect
from strandline.cluster.store import (
    Changes,
    MultiRefused,
    Operation,
    SessionId,
    StoreError,
    StoreUnavailable,
    Zxid,
)
from strandline.errors import InvariantViolated
from strandline.sim.schedule import Pipe
from strandline.sim.store import Lag, Store
from strandline.sim.watch_events import Notification, Told, Write, unknown
from strandline.types import BrokerId

RECONNECT_US_MAX: Final = 250_000
"""How long a client that can reach a server again may need to find it."""

_KNOWN_WHEN_LOST: Final = 0.25
"""Share of answers that had arrived, and only waited for the news before them, when a connection
was lost: their writes end with what truly happened."""
_UNDECIDED: Final = 0.5


class Listener(Protocol):
    """The broker behind a client. Everything comes through the schedule, in order."""

    def metadata_changed(self, changes: Changes) -> None:
        """The next transaction, or the net effect of several."""


class _State(Enum):
    READY = "ready"
    LOST = "cut off"
    SURVEYING = "catching up"


class StoreClient:
    """For the life of one process. The listener hears all that is not in `first_view`."""

    def __init__(self, store: Store, listener: Listener, broker_id: BrokerId) -> None:
        """Connects, with a session of its own. Raises `StoreUnavailable`."""
        self.broker_id = broker_id
        self.first_view = store.admit(self)
        """The nodes that there are."""
        self.is_gone = False
        """Whether its process is over."""
        self._store = store
        self._listener = listener
        self._random = store.streams(f"store {broker_id}")
        self._session = store.open_session(self)
        self._state = _State.READY
        self.is_paused = False
        """Whether its process stands still."""
        # The server's side of the connection is gone, and the client does not know it yet.
        self._is_severed = False
        self._connection = 0
        self._silences = 0
        self._requests: Pipe[Write] = Pipe(store.schedule, self._latency_us, self._serve)
        self._notifications: Pipe[Notification] = Pipe(store.schedule, self._latency_us, self._tell)
        self._open_notification: Notification | None = None
        self._missed = NetEffect()
        self._writes: dict[Write, None] = {}
        self._told_zxid = store.tree.zxid

    @property
    def session(self) -> SessionId:
        """The present session, the owner of ephemeral nodes made now: the new one by the time the
        listener hears what has become of the old one."""
        return self._session.id

    @property
    def is_ready(self) -> bool:
        """Whether the client believes that it is in touch, and so takes writes."""
        return self._state is _State.READY and not self.is_gone

    @property
    def is_up_to_date(self) -> bool:
        """Whether it is in touch and the listener has heard everything."""
        return (
            self.is_ready
            and not (self._is_severed or self._is_silent or self._notifications)
            and self._open_notification is None
        )

    def write(self, operations: Sequence[Operation], told: Told) -> None:
        """Have all operations done, or none. What they changed is heard before the outcome."""
        if self.is_gone:
            raise InvariantViolated("A process that is over writes metadata.")
        schedule = self._store.schedule
        if self._state is not _State.READY:
            refusal = StoreUnavailable(f"Metadata cannot be written: {self._state.value}.")
            schedule.after(0, partial(self._refuse, told, refusal))
            return
        if not operations:
            schedule.after(0, partial(self._refuse, told, None))
            return
        patience_us = self._store.session_timeout_us * self._random.choice((1, 2))
        fate = self._store.take_fate(self.broker_id)
        write = Write(operations, told, self._session, schedule.now_us + patience_us, fate)
        self._writes[write] = None
        self._requests.send(write)
        if self._is_severed or self._is_silent or self._lag.us:
            self._limit_waiting()

    def die(self, at_once: bool) -> None:
        """End the client with its process: no callback comes any more. `at_once`: close the session
        if the store can be reached; otherwise the session ends by its time-out."""
        if self.is_gone:
            return
        can_say = self.is_ready and not (self._is_severed or self._is_silent)
        self.is_gone = True
        self._notifications.take()
        self._open_notification = None
        self._writes.clear()
        self._store.clients.remove(self)
        self._session.client = None
        if at_once and can_say:
            self._store.end(self._session)
        else:
            self._store.leave(self._session)

    # -- what the world does to it -----------------------------------------------------------

    def pause(self) -> None:
        """The process stands still: it says and hears nothing."""
        self.is_paused = True
        self._fall_silent()

    def resume(self) -> None:
        """The process goes on, and finds out by and by what has become of its connection."""
        if not self.is_paused:
            return
        self.is_paused = False
        self._limit_waiting()
        self.try_again()

    def cut_off(self, *, silent: bool | None) -> None:
        """No message arrives any more, either way."""
        if silent is None:
            silent = self._random.random() < 0.5
        self._fall_silent()
        if self._state is not _State.LOST:
            self._requests.hold()
        if silent:
            self._expect_notice()
        else:
            self.sever()

    def sever(self) -> None:
        """The server ends the connection; the client learns of it, if it can hear anything."""
        if self._is_severed or self.is_gone or self._state is _State.LOST:
            return
        self._is_severed = True
        self._store.leave(self._session)
        self.try_again()

    def try_again(self) -> None:
        """Something is better, or known: go on, or find another server."""
        if self.is_gone or self.is_paused:
            return
        after, connection = self._store.schedule.after, self._connection
        if self._is_severed:
            after(self._latency_us(), partial(self._lose, connection))
        elif self._is_silent:
            return
        elif self._state is _State.LOST:
            after(self._random.randrange(RECONNECT_US_MAX), partial(self._reconnect, connection))
        else:
            self._store.keep(self._session)
            after(self._latency_us(), partial(self._go_on, connection))

    def lag_changed(self) -> None:
        """It is served later from now on, or sooner."""
        if self._lag.us:
            self._limit_waiting()

    # -- the connection ----------------------------------------------------------------------

    @property
    def _is_silent(self) -> bool:
        store = self._store
        return self.is_paused or not store.is_available or store.is_cut(self.broker_id)

    @property
    def _lag(self) -> Lag:
        return self._store.lag_of(self.broker_id)

    def _latency_us(self) -> int:
        mean_us = self._store.latency_us
        return int(self._random.expovariate(1) * mean_us) if mean_us else 0

    def _fall_silent(self) -> None:
        if self.is_gone or self._state is _State.LOST:
            return
        self._silences += 1
        self._notifications.hold()
        self._store.leave(self._session)
        self._limit_waiting()

    def _expect_notice(self) -> None:
        """A client whose pings are not answered gives the connection up. (If its process is paused
        at that moment, it does so when the server has ended the session.)"""
        third_us = self._store.session_timeout_us // 3
        delay_us = third_us + self._random.randrange(third_us + 1)
        self._store.schedule.after(delay_us, partial(self._notice, self._silences))

    def _notice(self, silence: int) -> None:
        if silence == self._silences and self._is_silent and not self.is_paused:
            self._lose(self._connection)

    def _go_on(self, connection: int) -> None:
        """The silence is over, and the connection is still there."""
        if connection != self._connection or self._is_silent or self._is_severed or self.is_gone:
            return
        self._silences += 1
        self._requests.release()
        self._notifications.release()
        if self._open_notification is not None:
            self._post(self._open_notification)

    def _lose(self, connection: int) -> None:
        """The client learns that its connection is no more."""
        if (
            connection != self._connection
            or self._state is _State.LOST
            or self.is_paused
            or self.is_gone
        ):
            return
        self._connection += 1
        self._silences += 1
        self._state = _State.LOST
        self._is_severed = False
        self._requests.take()
        self._requests.release()
        untold = self._notifications.take()
        self._notifications.release()
        if self._open_notification is not None:
            untold.append(self._open_notification)
            self._open_notification = None
        for notification in untold:
            for changes in notification.news:
                self._missed.add(changes)
            for write in notification.answered:
                write.is_answer_known = self._random.random() < _KNOWN_WHEN_LOST
        self._store.leave(self._session)
        self._limit_waiting()
        self.try_again()

    def _reconnect(self, connection: int) -> None:
        """A server serves this client: it gets what it missed, and a session if it has none."""
        if (
            connection != self._connection
            or self._state is not _State.LOST
            or self._is_silent
            or self.is_gone
        ):
            return
        if not self._session.is_open:
            self._session = self._store.open_session(self)
        self._store.keep(self._session)
        self._state = _State.SURVEYING
        missed = self._missed.take()
        self._notifications.send(Notification([] if missed is None else [missed], is_survey=True))

    # -- the server's side -------------------------------------------------------------------

    def _serve(self, write: Write) -> None:
        """A request has arrived."""
        store = self._store
        if not store.is_available:
            if self._random.random() < _UNDECIDED:
                store.leave_undecided(write.operations, write.session)
            return
        if self._is_severed or not write.session.is_open or store.is_cut(self.broker_id):
            return
        if write.fate is False:
            self.sever()
            return
        try:
            store.apply(write.operations, write.session.id)
        except MultiRefused as refusal:
            write.answer = refusal
        if self.is_gone:
            return
        notification = self._notification()
        notification.answered.append(write)
        if write.fate is True:
            self.sever()
        elif not self._lag.us:
            self._post(notification)

    def hear(self, changes: Changes) -> None:
        """Something was changed, by whomever."""
        if self._state is _State.LOST:
            self._missed.add(changes)
        else:
            self._notification().news.append(changes)

    def _notification(self) -> Notification:
        """The open notification, or a new one, which the client reads after a while."""
        notification = self._open_notification
        if notification is None:
            notification = self._open_notification = Notification()
            lag_us = self._lag.us
            delay_us = self._random.randint(lag_us // 2, lag_us) if lag_us else 0
            if self._store.lag_us:
                delay_us += self._random.randrange(self._store.lag_us)
            self._store.schedule.after(delay_us, partial(self._post, notification))
        return notification

    def _post(self, notification: Notification) -> None:
        """The client reads the open notification, if it can."""
        if notification is not self._open_notification or self._is_severed or self._is_silent:
            return
        self._open_notification = None
        rest = notification.tear(self._random) if self._lag.torn else None
        self._notifications.send(notification)
        if rest is not None:
            self._notification().news.append(rest)

    # -- the client's side -------------------------------------------------------------------

    def _tell(self, notification: Notification) -> None:
        lost: tuple[Write, ...] = ()
        if notification.is_survey:
            self._state = _State.READY
            lost = tuple(self._writes)
        changes = notification.net()
        if changes is not None:
            if changes.zxid <= self._told_zxid:
                changes = Changes(Zxid(self._told_zxid + 1), changes.changes)
            self._told_zxid = changes.zxid
            self._listener.metadata_changed(changes)
        for write in notification.answered:
            self._end(write, write.answer)
        for write in lost:
            self._end(write, write.answer if write.is_answer_known else unknown())

    def _limit_waiting(self) -> None:
        """Set a time limit for the outcomes of writes, which may come late from now on."""
        for write in self._writes:
            if not write.has_alarm:
                write.has_alarm = True
                alarm = partial(self._give_up, write)
                self._store.schedule.at(write.patience_us, alarm)

    def _give_up(self, write: Write) -> None:
        if self.is_paused:
            write.has_alarm = False  # It rings when the process goes on.
        else:
            self._end(write, unknown())

    def _end(self, write: Write, outcome: StoreError | None) -> None:
        """Tell an outcome, unless the write has ended or the process died of hearing the news."""
        if write in self._writes:
            del self._writes[write]
            write.told(outcome)

    def _refuse(self, told: Told, outcome: StoreError | None) -> None:
        if not self.is_gone:
            told(outcome)
