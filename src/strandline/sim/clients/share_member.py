"""Members of share groups (KIP-932): they join, acquire records, and say what becomes of them.

`client share w1 group=sg topic=t stay=3s away=1s work=100ms isolation=committed`

    apart ── comes ──> member: beats, fetches, acknowledges ── vanishes without a word ──> apart

The member is the client's own (`client.share_group.core`), on the simulated network. Now and then
its program forgets records, until their locks end. All that members of a group are given must fit
together, `share_watch` sees to that.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask, not_sent
from strandline.client.share_group.acknowledgements import ShareRecord
from strandline.client.share_group.core import ShareConsumerCore
from strandline.client.share_group.settings import ACQUIRE_MODES, EXPLICIT, ShareSettings
from strandline.errors import CorruptRecords, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.batches import value_of
from strandline.sim.clients.client import Place, SimClient, place_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import REQUEST_TIMEOUT_US
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.share_holds import ShareHolds
from strandline.sim.clients.share_watch import ShareWatch
from strandline.sim.clients.subscription_state import ISOLATIONS
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Delivered
from strandline.sim.plan import ClientSpec
from strandline.types import TopicPartition

_QUIET_US: Final = 40_000_000
"""Without a new record for so long, nothing more comes: a group may have to wait for locks, for
sessions, and for a share coordinator that it gave up asking."""
_HURRIED_RECORDS: Final = 200
"""Acquired at once by a member that is to end: a slow one would not come to an end in time."""
_WAIT_MS: Final = 200
_BYTES: Final = 100_000


class ShareMember(SimClient):
    """See the module."""

    kind: ClassVar[str] = "share"

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, watch: ShareWatch
    ) -> None:
        super().__init__(world, spec, options)
        self.group = options.text("group")
        self.cluster.topics = options.text("topic").split(",")
        self.watch = watch
        self._work_us = options.time_us("work", "0ms")
        self._records_max = options.number("max-records", 20, least=1)
        self._forgets = options.number("forgets", 3)
        self._acquire_mode = ACQUIRE_MODES[options.one_of("acquire", tuple(ACQUIRE_MODES))]
        options.one_of("isolation", ISOLATIONS)  # its group has that setting, if it is committed
        self._stay_us = options.time_us("stay", "0s")
        self._away_us = options.time_us("away", "1s")
        self._core: ShareConsumerCore | None = None
        self._holds = self._new_holds()
        self._connections: set[Connection] = set()
        """To leaders, of this life."""
        self._polls_at_us = 0
        """When its program asks for records again; it waits for some from then on."""
        self._is_polling = False
        self._news_us = 0
        self._expected: list[tuple[Place, int]] = []
        self._expected_in: set[Place] = set()
        """Records that are still to come before it can end."""
        self._looked_at: tuple[int, set[Place]] = (-1, set())
        """With which of the watch's changes, and in which places, that was looked through."""
        self.cluster.changed = self.pump

    def _new_holds(self) -> ShareHolds:
        return ShareHolds(self.world, self.watch, self.name, self.group, self.counters)

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._come()

    def _come(self) -> None:
        if self._core is not None:
            return
        self._holds = self._new_holds()
        settings = ShareSettings(
            group=self.group,
            mode=EXPLICIT,
            acquire_mode=self._acquire_mode,
            max_poll_records=_HURRIED_RECORDS if self.is_finishing else self._records_max,
            max_bytes=_BYTES,
            max_wait_ms=_WAIT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_US // 1000,
        )
        self._core = core = ShareConsumerCore(
            settings, self.cluster.router, self.random, self._holds
        )
        self._is_polling = False
        core.subscribe(self.cluster.topics, self.now_ms)
        self.pump()
        if self._stay_us and not self.is_finishing:
            self.after(self.about(self._stay_us), partial(self._go, core))

    def _go(self, core: ShareConsumerCore) -> None:
        if self.is_finishing or core is not self._core:
            return
        self.counters["worker vanishes"] += 1
        self._vanish("the worker vanishes")
        self.after(self.about(self._away_us), self._come)

    def _vanish(self, why: str) -> None:
        self._core = None
        self._holds.end()
        connections, self._connections = self._connections, set()
        for each in sorted(connections, key=lambda each: each.broker_id):
            if not each.is_over:
                each.close(why)

    def finishing(self) -> None:
        """See `SimClient`: what was written until now is still wanted, and by a member that takes
        few records at a time, each of which waits for replicas, it would take too long."""
        self.watch.until = len(self.world.history)
        self._expect(set(self._places()))
        if self._core is not None and self._records_max < _HURRIED_RECORDS:
            self._vanish("the worker comes again, to be done sooner")
        self._come()
        self._polls_at_us = min(self._polls_at_us, self.now_us)
        self.wake_at(self.now_us)

    def _expect(self, places: set[Place]) -> None:
        """Wait for all that is lacking in these."""
        self._expected_in = places
        self._expected = self.watch.lacking(self.group, places)
        self.give_up_us += len(self._expected) * self._answer_us
        self._news_us = self.now_us

    @property
    def _answer_us(self) -> int:
        """How long an answer with records may take beyond its ways. It holds one segment at most,
        which may be one record, and waits until followers have what was acknowledged with its
        question: whose fetches wait in turn, if one record is too few for them."""
        settings = self.world.options.settings
        if int(settings.get("replica.fetch.min.bytes", "1")) <= 1:
            return 0
        return 1000 * int(settings.get("replica.fetch.wait.max.ms", "500"))

    def _places(self) -> list[Place]:
        """How the history calls all that the group is to read."""
        views = [self.cluster.view(name) for name in self.cluster.topics]
        return [
            place_of(TopicPartition(view.name, number), view.topic_id)
            for view in views
            if view is not None
            for number in view.partitions
        ]

    def maybe_done(self) -> None:
        """See `SimClient`."""
        places = set(self._places())
        self.watch.expects(self.group, places)
        if not places <= self._expected_in:  # only now it is heard that a topic was made anew
            self._expect(places)
        if self._looked_at != (self.watch.changes, places):
            self._looked_at = (self.watch.changes, places)
            self._expected = [
                each
                for each in self._expected
                if each[0] in places and not self.watch.is_done(self.group, *each)
            ]
        news_us = max(self._news_us, self._holds.news_us)
        if not self._expected or self.now_us > min(self.give_up_us, news_us + _QUIET_US):
            self.done()

    # -- driving the member ------------------------------------------------------------------

    def pump(self) -> None:
        """See `SimClient`."""
        core = self._core
        if core is None or self.is_done:
            return
        try:
            self._run_program(core)
        except CorruptRecords as error:
            self._is_polling = False
            if not any(each.is_damaged for each in self._connections):
                self.found("I-47", f"{self.name} was sent {error}")
        except ProtocolError as error:
            self.counters[f"share group {error.code.name}"] += 1
            self._vanish("the member was refused")
            self.after(self.about(self._away_us), self._come)
            return
        while asks := core.step(self.now_ms):
            for ask in asks:
                self._send(core, ask)
        wake_ms = core.wake_ms
        if wake_ms is not None:
            self.wake_at(1000 * max(wake_ms, self.now_ms + 1))

    def _run_program(self, core: ShareConsumerCore) -> None:
        """What the program does at this moment: begin to wait for records, or work on some."""
        if not self._is_polling:
            if self.now_us < self._polls_at_us:
                self.wake_at(self._polls_at_us)
                return
            core.begin_poll(self.now_ms)
            self._is_polling = True
        if not core.has_news:
            return
        self._is_polling = False
        records = core.end_poll(self.now_ms)
        for each in records:
            self._note(each)
            self._judge(core, each)
        works = self._work_us and not self.is_finishing and records
        self._polls_at_us = self.now_us + (self.about(self._work_us) if works else 1_000)
        self.wake_at(self._polls_at_us)

    def _note(self, record: ShareRecord) -> None:
        view = self.cluster.view(record.topic)
        if view is not None:
            place = place_of(TopicPartition(record.topic, record.partition), view.topic_id)
            value = value_of(record.value)
            self.world.history.append(Delivered(self.name, place, record.offset, value))

    def _judge(self, core: ShareConsumerCore, record: ShareRecord) -> None:
        at = TopicPartition(record.topic, record.partition)
        drawn = self.random.randrange(100)
        if self.is_finishing:
            drawn = 50
        if drawn < self._forgets:
            self.counters["share record forgotten"] += 1
            core.forget(at, record.offset)
        elif drawn >= 96:
            core.acknowledge(at, record.offset, AckType.REJECT)
        elif drawn >= 88:
            core.acknowledge(at, record.offset, AckType.RELEASE)
        elif drawn >= 84:
            core.acknowledge(at, record.offset, AckType.RENEW)
        else:
            core.acknowledge(at, record.offset, AckType.ACCEPT)

    def _send(self, core: ShareConsumerCore, ask: Ask) -> None:
        if ask.to is None:
            connection = self.cluster.any_connection()
        else:
            connection = self.cluster.connection(ask.to, "share" if ask.may_wait else "group")
        then = partial(self._answered, core, ask)
        if connection is None:
            self.world.schedule.after(0, partial(then, RequestFailed("left alone", was_sent=False)))
            return
        if ask.may_wait:
            self._connections.add(connection)
        version = self.cluster.versions.of(ask.key)
        try:
            request = ask.request(version)
        except ProtocolError as error:  # it renews locks, which that version cannot
            self.world.schedule.after(0, partial(then, not_sent(error)))
            return
        timeout_us = 1000 * ask.timeout_ms
        self.cluster.ask(connection, ask.key, request, then, version=version, timeout_us=timeout_us)

    def _answered(self, core: ShareConsumerCore, ask: Ask, outcome: Outcome) -> None:
        if self.is_done:
            return
        if core is not self._core:
            if ask.key is ApiKey.SHARE_FETCH:
                self.watch.unheard(self.group)
            return
        core.answered(ask, outcome, self.now_ms)
        self.pump()
