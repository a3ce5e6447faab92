"""Transactional producers that crash in the middle of transactions, and are fenced as zombies.

`client transactional x1 id=x topic=t partition=0,1 version=2 batches=3 aborts=20 dies=10 sleeps=10`

A program begins a transaction, sends some batches, stores an offset with it (`offsets=yes`: for the
group `tg-ID`, or for some that several ids share, `group=`) and commits, or aborts on purpose. Of a
hundred transactions `dies` end with the process, and `sleeps` are stopped in the middle: then
another process begins under the same id, and the first one wakes up behind it as a zombie, which
tries to go on (`nap=`). At the end what is open is brought to its end, and an id that has a group
to itself asks for the offset that is stored.

What readers may see of all that is judged by `history.transactions`. What a producer may be told is
judged here: it is fenced only if another one has begun (I-37), and every transaction ends once
everything has healed (I-50).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.group_requests import fetch_offsets_request, stored_offsets
from strandline.client.transaction_state import State
from strandline.errors import ErrorCode, InvariantViolated, ProducerFailed
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.find_coordinator import FindCoordinatorResponse
from strandline.sim.clients.batches import Recipe, RecordedBatch
from strandline.sim.clients.client import NO_TOPIC_US, PATIENCE_US, SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.cluster import Cluster
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.transaction_run import TransactionRun
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import TopicPartition

NEVER_MS: Final = 600_000
"""A timeout of transactions that no run reaches: then no producer is fenced by it."""
_PER_CENT: Final = 100
_OFFSETS_MAX: Final = 10**6
_GROUPS: Final = 4
_OFFSETS_VERSION: Final = 8
_LEAST: Final = {
    ApiKey.INIT_PRODUCER_ID: 3,
    ApiKey.PRODUCE: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.LIST_OFFSETS: 2,
}


class Transactional(SimClient):
    """See the module."""

    kind: ClassVar[str] = "transactional"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.transactional_id = options.text("id", self.name)
        self.topic = options.text("topic")
        self.version = options.number("version", 2, least=1)
        self.timeout_ms = options.time_us("timeout", f"{NEVER_MS}ms") // 1000
        self.in_flight_max = options.number("in-flight", 1, least=1)
        self.is_alone = "group" not in spec.options
        """Whether no other id stores offsets for its group, but all for several in turn."""
        self.group = options.text("group", f"tg-{self.transactional_id}")
        self.source = TopicPartition(self.topic, 0)
        """The partition whose offset is stored."""
        self.stored: int | None = None
        """The group's committed offset at the end; -1: none."""
        self.stores = options.flag("offsets")
        self._partitions = options.partitions()
        self._every_us = options.time_us("every", "100ms")
        self._nap_us = options.time_us("nap", "1s")
        self._batches_max = options.number("batches", 3, least=1)
        self._aborts = options.number("aborts", 20)
        self._dies = options.number("dies", 0)
        self._sleeps = options.number("sleeps", 0)
        self._recipe = Recipe(
            options, self.random, world.streams(f"lies of {self.name}"), self.name
        )
        self._runs: list[TransactionRun] = []
        """The processes with the id that are not over; the newest is the last."""
        self._writers = 0
        self._offset = 0
        self._to_send: dict[TransactionRun, int] = {}
        """How many batches the open transaction is to get still."""
        self._asking = ExponentialBackoff(self.random)
        self._asked: TransactionRun | None = None
        """The process that asks for what is stored."""

    def least_versions(self, options: ClientOptions) -> Mapping[ApiKey, int]:
        """See `SimClient`."""
        if options.number("version", 2, least=1) >= 2:
            return _LEAST | {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
        return _LEAST

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.after(self.random.randrange(self._every_us), self._begin_anew)

    def pump(self) -> None:
        """See `SimClient`: runs wake by themselves."""

    def finishing(self) -> None:
        """See `SimClient`."""
        for run in list(self._runs):
            if run.is_asleep:
                run.wake()
            run.pump()
        if not self._runs:
            self._begin_anew()

    def maybe_done(self) -> None:
        """See `SimClient`."""
        for run in list(self._runs):
            is_ready = run.manager.state is State.READY and run not in self._to_send
            if is_ready and not self._is_newest(run):
                self._retire(run)
        is_idle = len(self._runs) == 1 and self._runs[0].manager.state is State.READY
        asks = self.stores and self.is_alone
        if is_idle and (not asks or self.stored is not None):
            self._end()
        elif is_idle:
            self._ask_stored()
        elif self.now_us >= self.give_up_us - PATIENCE_US + NO_TOPIC_US and self._is_in_vain():
            self._end()
        elif self.now_us >= self.give_up_us:
            states = ", ".join(run.manager.state.value for run in self._runs)
            self.found("I-50", f"{self.name} could not end its transactions: it {states}")
            self._end()

    def _is_in_vain(self) -> bool:
        return all(run.cluster.view(self.topic) is None for run in self._runs)

    def _end(self) -> None:
        for run in self._runs:
            run.end()
            self.cluster.counters.update(run.cluster.counters)
            self.cluster.malformed += run.cluster.malformed
        self._runs.clear()
        self.done()

    @property
    def outstanding(self) -> int:
        """See `SimClient`."""
        return super().outstanding + sum(run.cluster.outstanding for run in self._runs)

    # -- processes ---------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """Start a process with the id."""
        self._writers += 1
        if self._writers > 1:
            self.counters["transactional id taken over"] += 1
        cluster = Cluster(self.world, self.name, self.random, self.cluster.versions, [])
        run = TransactionRun(self, self._writers, cluster)
        run.changed = partial(self._changed, run)
        self._runs.append(run)
        cluster.stale()
        run.manager.initialize()
        run.pump()

    def _is_newest(self, run: TransactionRun) -> bool:
        return run.writer == self._writers

    def _retire(self, run: TransactionRun) -> None:
        """The process is gone."""
        run.end()
        self.cluster.counters.update(run.cluster.counters)
        self.cluster.malformed += run.cluster.malformed
        self._to_send.pop(run, None)
        was_newest = self._is_newest(run)
        self._runs.remove(run)
        if was_newest:
            self.after(self.about(self._every_us), self._begin_anew)

    # -- what a process does -----------------------------------------------------------------

    def _changed(self, run: TransactionRun) -> None:
        """No call of the process is under way."""
        if run.is_over or self.is_done:
            return
        state = run.manager.state
        if state is State.FAILED:
            self._failed(run)
        elif state is State.ABORTABLE:
            self.counters["transaction to be aborted"] += 1
            self._to_send.pop(run, None)
            run.abort()
        elif state is State.READY and run not in self._to_send:
            self._ready(run)

    def _failed(self, run: TransactionRun) -> None:
        error = run.manager.error
        if not isinstance(error, ProducerFailed):
            raise InvariantViolated(f"{self.name} failed with {error!r}.")
        self.counters[f"transactional producer {error.code.name}"] += 1
        # By the clock of a broker that was set forward for long enough, it took too long.
        is_late = self.timeout_ms < NEVER_MS or self.world.clocks_set_ms >= NEVER_MS
        if self._is_newest(run) and not is_late and not self.world.options.allows_loss:
            self.found(
                "I-37",
                f"{self.name} was told {error.code.name} as producer {run.writer} of "
                f"'{self.transactional_id}', although no other one had begun: {error.message}",
            )
        self._retire(run)

    def _ready(self, run: TransactionRun) -> None:
        if self.is_finishing:
            if not self._is_newest(run):
                self._retire(run)
            return
        self._to_send[run] = 0
        self.after(self.about(self._every_us), run.happened(partial(self.prepare, run)))

    def prepare(self, run: TransactionRun) -> None:
        """Get what the next transaction is about, and `begin` it."""
        self.begin(run)

    def begin(self, run: TransactionRun) -> None:
        self._to_send.pop(run, None)
        if run.manager.state is not State.READY or self.is_finishing:
            self._changed(run)
            return
        if run.cluster.view(self.topic) is None:
            run.cluster.stale()
            self._ready(run)
            return
        run.cluster.keep_fresh()
        run.begin()
        self._to_send[run] = self.batches_of(run)
        if self.stores and not self.is_alone:
            self.store_offset(run)  # so that those of several ids are pending at the same time
        self._go_on(run)

    def batches_of(self, run: TransactionRun) -> int:
        """How many batches the transaction that begins gets."""
        del run
        return self.random.randint(1, self._batches_max)

    def next_batch(self, run: TransactionRun) -> RecordedBatch:
        """The next of them."""
        at = self.random.choice(self._partitions)
        version = run.cluster.versions.of(ApiKey.PRODUCE)
        return self._recipe.batch(at, self.now_us, produce_version=version)

    def store_offset(self, run: TransactionRun) -> None:
        """Store an offset with the transaction."""
        if not self.is_alone:
            group = f"{self.group}-{self.random.randrange(_GROUPS)}"
            run.send_offset(self.random.randrange(_OFFSETS_MAX), group=group, rises=False)
            return
        self._offset += 1
        run.send_offset(self._offset)

    def _go_on(self, run: TransactionRun) -> None:
        """Send the next batch, or end the transaction; or meet with an accident."""
        if run.is_over or run.manager.state is not State.IN_TRANSACTION:
            self._to_send.pop(run, None)
            run.pump()
            return
        is_new = self._is_newest(run) and not self.is_finishing
        if is_new and self._happens(self._dies):
            self.counters["dies in a transaction"] += 1
            self._retire(run)
            return
        if is_new and self._happens(self._sleeps):
            self.counters["sleeps in a transaction"] += 1
            run.sleep()
            self.after(self.about(self._nap_us), run.wake)
            self.after(self.about(self._nap_us) // 4, self._begin_anew)
        if run.is_asleep:
            run.happened(partial(self._go_on, run))()
            return
        left = self._to_send.get(run, 0)
        if left:
            self._to_send[run] = left - 1
            run.send(self.next_batch(run))
            self.after(1 + self.random.randrange(20_000), run.happened(partial(self._go_on, run)))
            return
        if (
            self.stores
            and self.is_alone
            and not run.is_busy
            and self._to_send.pop(run, None) is not None
        ):
            self.store_offset(run)
            self.after(1 + self.random.randrange(20_000), run.happened(partial(self._go_on, run)))
            return
        self._to_send.pop(run, None)
        if run.is_busy:
            self.after(10_000, run.happened(partial(self._go_on, run)))
        elif self._happens(self._aborts):
            run.abort()
        else:
            run.commit()
            if is_new and self._happens(self._dies):
                self.counters["dies in a commit"] += 1
                self._retire(run)

    def _happens(self, per_cent: int) -> bool:
        return self.random.randrange(_PER_CENT) < per_cent

    # -- what is stored ----------------------------------------------------------------------

    def _ask_stored(self) -> None:
        if self._runs and self._asked is not self._runs[-1]:
            self._asked = self._runs[-1]
            self.ask_offset(self._asked, self._stored_told)

    def _stored_told(self, offset: int) -> None:
        self.stored = offset

    def ask_offset(self, run: TransactionRun, told: Callable[[int], None]) -> None:
        """Ask the group's coordinator, which is found first, for the offset; -1: there is none."""
        cluster = run.cluster
        broker = cluster.router.coordinator(self.group)
        if broker is None:
            connection = cluster.any_connection()
            key, request = ApiKey.FIND_COORDINATOR, cluster.router.coordinator_request(self.group)
            version = cluster.versions.of(key)
        else:
            connection = cluster.connection(broker, "coordinator")
            key, version = ApiKey.OFFSET_FETCH, _OFFSETS_VERSION
            request = partial(_offsets_request, self.group, self.source)
        then = run.happened(partial(self._offset_told, run, told))
        if connection is None:
            self.after(1000 * self._asking.next_ms(), partial(then, None))
        else:
            cluster.ask(connection, key, request(version), then, version=version)

    def _offset_told(
        self, run: TransactionRun, told: Callable[[int], None], outcome: Outcome
    ) -> None:
        router = run.cluster.router
        if isinstance(outcome, FindCoordinatorResponse):
            found = outcome.coordinators[0] if outcome.coordinators else outcome
            if found.error_code == ErrorCode.NONE:
                router.learn_coordinator(self.group, outcome)
                self.ask_offset(run, told)
                return
        elif outcome is not None and not isinstance(outcome, RequestFailed):
            answer = stored_offsets(outcome, {})
            if answer.error == ErrorCode.NONE and not answer.refused:
                stored = answer.offsets.get(self.source)
                self._asking.reset()
                told(-1 if stored is None else stored.offset)
                return
            self.counters["stored offset refused"] += 1
        if outcome is not None:
            router.forget_coordinator(self.group)
        again = run.happened(partial(self.ask_offset, run, told))
        self.after(1000 * self._asking.next_ms(), again)


def _offsets_request(group: str, at: TopicPartition, version: int) -> Any:
    return fetch_offsets_request(group, [at], version, is_stable=True)
