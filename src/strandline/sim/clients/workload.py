"""All clients of one run: the workload, the operations of the plan, and the final judgement.

    start ── safety phase ── finish ── until all are done ── read_everything ── until done ── judge

`read_everything` first writes to every partition once more with acks=all, since a cluster that has
healed must take writes (I-50); then a last reader per partition reads all that there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Final

from strandline.sim.clients.admin import AdminOperation
from strandline.sim.clients.client import Finding, SimClient, topic_of
from strandline.sim.clients.copier import Copier, not_copied_once
from strandline.sim.clients.group_member import GroupMember
from strandline.sim.clients.make import ADMIN_VERBS, Watches, make_client, make_operation
from strandline.sim.clients.times import TimesAsker
from strandline.sim.clients.transactional import Transactional
from strandline.sim.clients.world import ClientWorld
from strandline.sim.compacted import POLICY, is_compacted
from strandline.sim.history.checker import check
from strandline.sim.history.lookups import TimeAnswer
from strandline.sim.history.operations import Assigned, Compacted, Gone, Partition, Sent, Value
from strandline.sim.history.report import Report
from strandline.sim.history.transactions import (
    FRACTURED,
    TransactionFinding,
    TransactionJudge,
)
from strandline.sim.plan import Action, ClientSpec
from strandline.types import TopicId, TopicPartition

_DELETING: Final = ("delete-topic", "recreate-topic")
_PROBE: Final = "probe"
_LAST: Final = "last"


class Workload:
    """See the module."""

    def __init__(
        self,
        world: ClientWorld,
        specs: Sequence[ClientSpec],
        *,
        on_deleted: Callable[[TopicPartition, TopicId, int], None] | None = None,
        on_time: Callable[[TimeAnswer], None] | None = None,
    ) -> None:
        """`on_deleted` hears what DeleteRecords has promised, as soon as it has, and `on_time` what
        look-ups by time were told. Raises `BadScript`
        for a line that makes no sense."""
        self.world = world
        self._watches = watches = Watches.of(world)
        self.group_watch, self._share_watch = watches.groups, watches.shares
        self.clients = [make_client(world, spec, watches) for spec in specs]
        for client in self.clients:
            if isinstance(client, TimesAsker) and on_time is not None:
                client.on_told = on_time
        self.operations: list[AdminOperation] = []
        self.last_readers: list[str] = []
        self._on_deleted = on_deleted
        self._weak = {spec.name for spec in specs if spec.options.get("acks", "all") != "all"}
        self._probes: list[SimClient] = []
        self._readers: list[SimClient] = []
        self._unread: list[TopicPartition] = []

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all clients."""
        for client in self.clients:
            client.start()

    def perform(self, action: Action) -> AdminOperation | None:
        """Begin an operation; None if the verb is not one of those here."""
        if action.verb not in ADMIN_VERBS:
            return None
        name = f"admin-{len(self.operations) + 1}"
        operation = make_operation(self.world, name, action)
        operation.on_deleted = self._on_deleted
        if action.verb in _DELETING:
            self.group_watch.forget_topic(action.word(0))
        self.operations.append(operation)
        operation.start()
        return operation

    def finish(self) -> None:
        """Let all clients finish what they have begun and begin nothing new."""
        for client in self.clients:
            client.finish()

    def read_everything(self, partitions: Sequence[TopicPartition]) -> None:
        """Write once more to each of these partitions, then read all of them to their ends, and
        what groups have stored."""
        self._unread = list(partitions)
        for group in sorted(self._groups()):
            spec = ClientSpec("offsets", f"{_LAST}-{group}", {"group": group})
            reader = make_client(self.world, spec, self._watches)
            self._readers.append(reader)
            reader.start()
        for number, at in enumerate(partitions):
            options = {"topic": at.topic, "partition": str(at.partition), "every": "50ms"}
            options |= {"strange-times": "0", "large": "0", "idempotent": "yes", "keys": "3"}
            probe = make_client(self.world, ClientSpec("producer", f"{_PROBE}{number}", options))
            self._probes.append(probe)
            probe.start()
        self.world.schedule.after(100_000, self._finish_probes)

    def _groups(self) -> set[str]:
        """Of consumers."""
        return {each.group for each in self.clients if isinstance(each, GroupMember)}

    def _finish_probes(self) -> None:
        for probe in self._probes:
            probe.finish()
        self._maybe_read()

    def _maybe_read(self) -> None:
        if not all(probe.is_done for probe in self._probes):
            self.world.schedule.after(50_000, self._maybe_read)
            return
        unread, self._unread = self._unread, []
        for number, at in enumerate(unread):
            options = {"topic": at.topic, "partition": str(at.partition), "to-end": "yes"}
            options |= {"isolation": "committed", "max-wait": "50ms"}
            spec = ClientSpec("consumer", f"{_LAST}{number}", options)
            reader = make_client(self.world, spec)
            self._readers.append(reader)
            self.last_readers.append(spec.name)
            reader.start()

    @property
    def all_clients(self) -> list[SimClient]:
        """All clients and operations that there have been."""
        return [*self.clients, *self.operations, *self._probes, *self._readers]

    @property
    def is_done(self) -> bool:
        """Whether no client has anything left to do."""
        return not self._unread and all(client.is_done for client in self.all_clients)

    @property
    def give_up_us(self) -> int:
        """When the patience of all clients ends, once they were asked to finish."""
        return max((client.give_up_us for client in self.all_clients), default=0)

    @property
    def outstanding(self) -> int:
        """Requests without an outcome (I-50: none, once all are done)."""
        return sum(client.outstanding for client in self.all_clients)

    @property
    def last_overdue_us(self) -> int:
        """When a broker last left a request without an answer for too long; 0: never (I-50: not
        after everything has healed)."""
        return max((client.cluster.last_overdue_us for client in self.all_clients), default=0)

    # -- verdict -----------------------------------------------------------------------------

    @property
    def findings(self) -> list[Finding]:
        """What clients saw and must not be."""
        found = [finding for client in self.all_clients for finding in client.findings]
        shared = self._share_watch
        missing = shared.missing(self.world.history, self.last_readers, self._compacted())
        return [*found, *self.group_watch.findings, *shared.findings, *missing]

    def transaction_findings(
        self, may_be_gone: Callable[[Value, Partition], bool]
    ) -> list[TransactionFinding]:
        """What is not possible of what readers saw of transactions. `may_be_gone` says what need
        not be there any more."""
        writers = [each for each in self.clients if isinstance(each, Transactional)]
        if not writers:
            return []
        committed = {
            each.name for each in self.clients if each.spec.options.get("isolation") == "committed"
        }
        judge = TransactionJudge(committed | set(self.last_readers), self.last_readers)
        judge.feed(self.world.history)
        offsets = {
            each.transactional_id: each.stored for each in writers if each.stored is not None
        }
        found = judge.findings(may_be_gone, offsets)
        for each in writers:
            if isinstance(each, Copier) and each.copied is not None:
                said = not_copied_once(
                    each.copied, self.world.history, self.last_readers, may_be_gone
                )
                found += [TransactionFinding(FRACTURED, what, str(each.target)) for what in said]
        return found

    @property
    def counters(self) -> Counter[str]:
        """What happened to all of them together how often."""
        total: Counter[str] = Counter()
        for client in self.all_clients:
            total.update(client.counters)
        return total

    @property
    def deleted(self) -> list[tuple[TopicPartition, int]]:
        """All that DeleteRecords has promised."""
        return [each for operation in self.operations for each in operation.deleted]

    def is_promise(self, sent: Sent) -> bool:
        """Whether a send, once acknowledged, must not be lost: those with acks=all."""
        return sent.producer.partition("/")[0] not in self._weak

    def report(self, kept: Container[Value] = ()) -> Report:
        """What the history says. `kept` are values that must not be lost either."""
        return check(
            [*self.world.history, *self._compacted(), *self._gone()],
            last_readers=self.last_readers,
            is_promise=lambda sent: self.is_promise(sent) or sent.value in kept,
        )

    def _compacted(self) -> list[Compacted]:
        """Partitions of topics that are compacted, or were made so."""
        topics = {topic.name for topic in self.world.options.topics if is_compacted(topic)}
        for each in self.operations:
            if "compact" in each.action.options.get(POLICY, ""):
                topics.add(each.action.word(0))
        places = {event.partition: None for event in self.world.history if isinstance(event, Sent)}
        return [Compacted(place) for place in places if topic_of(str(place)) in topics]

    def _gone(self) -> list[Gone]:
        """Partitions of topics that an operation may have deleted, and that are not there to be
        read any more."""
        deleted = [each.action.word(0) for each in self.operations if each.action.verb in _DELETING]
        there: dict[Partition, None] = {}
        for event in self.world.history:
            if isinstance(event, Assigned) and event.consumer in self.last_readers:
                there[event.partition] = None
        places = {event.partition: None for event in self.world.history if isinstance(event, Sent)}
        return [
            Gone(place)
            for place in places
            if place not in there and topic_of(str(place)) in deleted
        ]
