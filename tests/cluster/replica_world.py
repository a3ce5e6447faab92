"""Brokers, logs and controllers in miniature, around the real decisions and the real node tree.

One topic of one partition. Every broker has its own view of the metadata, which is behind until it
hears, acts as leader or controller by that view, and keeps a log of numbered records. A kill may
cost the end of a log. The world knows which records are committed and which of a broker's former
registrations its disk still honours, and checks after every write what must hold then.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from strandline.cluster.controller import (
    Decision,
    ElectionKind,
    InSyncProposal,
    ReassignmentRequest,
    TopicSpec,
    alter_partitions,
    alter_reassignments,
    announce_shutdown,
    become_controller,
    bootstrap,
    create_topics,
    elect_leaders,
    reconcile,
    register_broker,
)
from strandline.cluster.controller.events import Event, RestartedLeaderElected, UncleanElection
from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.store import NO_SESSION, MultiRefused, Operation, SessionId
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import NO_PREVIOUS_EPOCH, BrokerNode, Endpoint
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import NO_EPOCH, BrokerId
from tests.cluster.replica_parts import T0, Broker, Joining, Record, Request
from tests.cluster.story import NOW_MS, Policy, settings


class World:
    """Five brokers; the partition is on three of them."""

    def __init__(
        self, min_isr: int, *, is_unclean: bool = False, is_beyond_promise: bool = False
    ) -> None:
        self.policy = Policy(min_isr, is_unclean)
        self._may_lose = is_unclean or is_beyond_promise
        self._is_beyond_promise = is_beyond_promise
        self.tree = NodeTree()
        self.image = ClusterImage()
        self.committed: list[Record] = []
        self.brokers = {BrokerId(n): Broker(BrokerId(n)) for n in range(1, 6)}
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self._numbers = iter(range(10**9))
        self._sessions = iter(range(1, 10**9))
        self._write(bootstrap((), random=Random(1)))
        for broker in self.brokers.values():
            self.start(broker)
        self.stand(self.brokers[BrokerId(1)])
        spec = TopicSpec("t", assignments=[(0, [BrokerId(n) for n in (1, 2, 3)])])
        created = create_topics(self.image, [spec], settings("node.id=1"), random=Random(2))
        self._write(created.operations)
        for broker in self.brokers.values():
            self.hear(broker)

    # ── processes and sessions ─────────────────────────────────────────────────────────────────

    def start(self, broker: Broker) -> None:
        """The process starts (if it does not run) and registers (if it is not registered)."""
        if broker.session != NO_SESSION:
            return  # it is registered, or waits until its old session has ended
        broker.is_running = True
        node = BrokerNode(
            broker.broker_id,
            (Endpoint("PLAINTEXT", "h", 9000),),
            previous_epoch=broker.marker,
        )
        broker.session = SessionId(next(self._sessions))
        self._write(register_broker(self.image, node), broker.session)
        broker.epoch = self.image.brokers[broker.broker_id].epoch
        broker.honoured.add(broker.epoch)
        if broker.marker == NO_PREVIOUS_EPOCH:
            broker.marker = broker.epoch

    def kill(self, broker: Broker, lost: int) -> None:
        """The process dies, and the end of the log is lost. Its session lives on for a while."""
        if not broker.is_running:
            return
        wounded = {b.broker_id for b in self.brokers.values() if b.is_wounded}
        is_survivable = len(wounded | {broker.broker_id}) < self.policy.min_isr
        if not is_survivable and not self._is_beyond_promise:
            return
        broker.is_running = False
        broker.is_wounded = True
        broker.honoured.clear()
        broker.marker = NO_PREVIOUS_EPOCH
        del broker.log[max(0, len(broker.log) - lost) :]
        self._forget(broker)

    def stop(self, broker: Broker) -> None:
        """The process ends cleanly, with or without having announced it."""
        if not broker.is_running:
            return
        broker.is_running = False
        self.expire(broker)
        self._forget(broker)

    def expire(self, broker: Broker) -> None:
        """The session ends; a running process knows what it was registered as."""
        session = broker.session
        if session == NO_SESSION:
            return
        broker.session = NO_SESSION
        applied = self.tree.expire_session(session)
        if applied.changes is not None:
            self.image = self.image.apply(applied.changes)[0]

    def _forget(self, broker: Broker) -> None:
        broker.view = ClusterImage()
        broker.leads_epoch = NO_EPOCH
        broker.high_watermark = min(broker.high_watermark, len(broker.log))

    # ── what brokers do by their views ─────────────────────────────────────────────────────────

    def hear(self, broker: Broker) -> None:
        """The broker's view is that of now."""
        if not broker.is_running or broker.session == NO_SESSION:
            return
        broker.view = self.image
        led = broker.led
        if led is None:
            broker.leads_epoch = NO_EPOCH
            return
        if led.leader_epoch != broker.leads_epoch:
            broker.leads_epoch = led.leader_epoch
            broker.start = len(broker.log)
            broker.progress = {}
            broker.joining = None
        if broker.joining and broker.joining.partition_epoch < led.partition_epoch:
            broker.joining = None
        self._advance(broker, led)

    def produce(self, broker: Broker) -> None:
        if (led := broker.led) is not None:
            broker.log.append((led.leader_epoch, next(self._numbers)))
            self._advance(broker, led)

    def fetch(self, follower: Broker, records_max: int) -> None:
        """One fetch: truncate to what is common, tell the log's end, copy."""
        partition = follower.view.partition(T0)
        if partition is None or not follower.is_running or follower.led is not None:
            return
        leader = self.brokers.get(partition.leader)
        led = None if leader is None else leader.led
        if leader is None or led is None or led.leader_epoch != partition.leader_epoch:
            return
        if follower.broker_id not in led.replicas:
            return
        same = next(
            (n for n, (a, b) in enumerate(zip(follower.log, leader.log, strict=False)) if a != b),
            min(len(follower.log), len(leader.log)),
        )
        del follower.log[same:]
        leader.progress[follower.broker_id] = (same, follower.epoch)
        follower.log += leader.log[same : same + records_max]
        self._advance(leader, led)

    def propose_join(self, leader: Broker, follower: Broker) -> None:
        """A follower that has caught up shall join; what was proposed already is asked again."""
        led = leader.led
        known = leader.progress.get(follower.broker_id)
        if led is None or known is None or follower.broker_id in led.in_sync_replicas:
            return
        if leader.joining is None:
            if known[0] < max(leader.high_watermark, leader.start):
                return
            leader.joining = Joining(follower.broker_id, known[1], led.partition_epoch)
        joining = leader.joining
        members = [(b, led.in_sync_epochs[b]) for b in led.in_sync_replicas]
        self._propose(leader, led, [*members, (joining.follower, joining.broker_epoch)])

    def propose_leave(self, leader: Broker, follower: Broker) -> None:
        """A member that does not keep up shall leave."""
        led = leader.led
        if led is None or follower is leader or leader.joining is not None:
            return
        if follower.broker_id in led.in_sync_replicas:
            staying = [b for b in led.in_sync_replicas if b != follower.broker_id]
            self._propose(leader, led, [(b, led.in_sync_epochs[b]) for b in staying])

    def _propose(
        self, leader: Broker, led: PartitionImage, members: Sequence[tuple[BrokerId, int]]
    ) -> None:
        topic_id = leader.view.topics["t"].topic_id
        item = InSyncProposal(topic_id, 0, led.leader_epoch, led.partition_epoch, tuple(members))
        self.requests.append(Request(leader.broker_id, leader.epoch, item))

    def deliver(self, index: int, *, again: bool = False) -> None:
        """One of the requests under way reaches whoever is in office, or nobody. It may come
        once more."""
        if not self.requests:
            return
        index %= len(self.requests)
        request = self.requests[index] if again else self.requests.pop(index)
        office = self.in_office()
        if office is None:
            return
        sender = self.brokers[request.sender]
        try:
            decision = alter_partitions(
                office.view, request.sender, request.broker_epoch, [request.item], self.policy
            )
        except ProtocolError:
            return
        refusal = decision.results[0].refusal
        is_refused = refusal is not None and refusal.code is ErrorCode.INELIGIBLE_REPLICA
        if is_refused and sender.joining and not again and request.is_from(sender):
            sender.joining = None  # it certainly did not happen
        self._try(decision)

    def _advance(self, leader: Broker, led: PartitionImage) -> None:
        """The high watermark moves over what everybody has who is, or may be, in sync."""
        if len(led.in_sync_replicas) < min(self.policy.min_isr, len(led.replicas)):
            return
        members = {*led.in_sync_replicas} - {leader.broker_id}
        if leader.joining is not None:
            members.add(leader.joining.follower)
        ends = [leader.progress.get(b, (-1, -1))[0] for b in members]
        end = leader.high_watermark = max(leader.high_watermark, min([len(leader.log), *ends]))
        known = len(self.committed)
        if not self._may_lose:
            assert leader.log[: min(known, end)] == self.committed[:end], "two histories"
        self.committed += leader.log[known:end]

    # ── the controller ─────────────────────────────────────────────────────────────────────────

    def in_office(self) -> Broker | None:
        """Some broker that believes to be the controller."""
        return next((b for b in self.brokers.values() if self._believes(b)), None)

    def _believes(self, broker: Broker) -> bool:
        return (
            broker.is_running
            and broker.session != NO_SESSION
            and broker.view.controller == broker.broker_id
        )

    def stand(self, broker: Broker) -> None:
        """The broker takes the office if it sees that it is free."""
        if broker.is_running and broker.session != NO_SESSION:
            self.hear(broker)
            if broker.view.controller is None:
                self._write(
                    become_controller(broker.view, broker.broker_id, now_ms=NOW_MS),
                    broker.session,
                )

    def govern(self, broker: Broker) -> bool:
        """One decision of a broker that believes to be the controller, by its view."""
        if not self._believes(broker):
            return False
        return self._try(reconcile(broker.view, self.policy))

    def administer(self, what: int, targets: Sequence[int]) -> None:
        """Somebody asks for a move, for the end of one, or for the preferred leader."""
        office = self.in_office()
        if office is None:
            return
        replicas = None if what == 1 else [BrokerId(n) for n in targets]
        if what == 2:
            self._try(elect_leaders(office.view, ElectionKind.PREFERRED, [T0], self.policy))
        else:
            wish = ReassignmentRequest(T0, replicas)
            self._try(alter_reassignments(office.view, [wish], self.policy))

    def announce(self, broker: Broker) -> None:
        if broker.is_running and broker.session != NO_SESSION:
            self._write(announce_shutdown(self.image, broker.broker_id), broker.session)

    # ── writing, and what must hold ────────────────────────────────────────────────────────────

    def _try(self, decision: Decision[object]) -> bool:
        """Write a decision, which may be from an old view."""
        if not decision.operations:
            return False
        events = [event for event in decision.results if isinstance(event, Event)]
        try:
            self._write(decision.operations, events=events)
        except MultiRefused:
            return True
        self.events += events
        return True

    def _write(
        self,
        operations: Sequence[Operation],
        session: SessionId = NO_SESSION,
        *,
        events: Sequence[Event] = (),
    ) -> None:
        applied = self.tree.multi(operations, session)
        if applied.changes is None:
            return
        before = self.image
        self.image, _ = before.apply(applied.changes)
        self.check(before, events)

    def check(self, before: ClusterImage, events: Sequence[Event]) -> None:
        """What must hold after every write."""
        was, now = before.partition(T0), self.image.partition(T0)
        epochs = [image.controller_epoch for image in (before, self.image)]
        if epochs[0] is not None:
            assert epochs[1] is not None
            assert epochs[0].value <= epochs[1].value, "I-18"
        if now is None:
            return
        members = {*now.in_sync_replicas, *now.elr}
        minimum = min(self.policy.min_isr, len(now.replicas))
        assert not now.has_leader or now.leader in now.in_sync_replicas, "I-12"
        assert members, "I-12"
        assert members <= set(now.replicas), "I-12, I-31"
        assert not set(now.in_sync_replicas) & set(now.elr), "I-31"
        assert not now.elr or len(now.in_sync_replicas) < minimum, "I-31"
        assert now.in_sync_epochs.keys() <= members, "no epochs of anybody else"
        self._check_complete(now)
        if was is not None and was != now:
            self._check_change(was, now, events)
        for broker in self.brokers.values():
            is_in_sync = broker.broker_id in now.in_sync_replicas
            if is_in_sync and now.in_sync_epochs[broker.broker_id] in broker.honoured:
                broker.is_wounded = False

    def _check_complete(self, now: PartitionImage) -> None:
        """I-32, I-14: whom the record calls complete is complete, crashed ones apart."""
        if self._may_lose:
            return
        for broker_id in (*now.in_sync_replicas, *now.elr):
            broker = self.brokers[broker_id]
            if now.in_sync_epochs[broker_id] in broker.honoured:
                assert broker.log[: len(self.committed)] == self.committed, (now, broker)

    def _check_change(
        self, was: PartitionImage, now: PartitionImage, events: Sequence[Event]
    ) -> None:
        assert was.leader_epoch <= now.leader_epoch, "I-18"
        assert was.partition_epoch <= now.partition_epoch, "I-18"
        if was.leader != now.leader:
            assert was.leader_epoch < now.leader_epoch, "I-11"
        if (was.leader, was.leader_epoch) == (now.leader, now.leader_epoch) or not now.has_leader:
            return
        is_unclean = any(isinstance(event, UncleanElection) for event in events)
        assert not is_unclean or self.policy.is_unclean
        is_lossy = any(isinstance(event, RestartedLeaderElected) for event in events)
        assert not is_lossy or self._may_lose
        if not is_unclean and not is_lossy:
            assert now.leader in (*was.in_sync_replicas, *was.elr), "I-19"
        if self._may_lose:
            return
        leader = self.brokers[now.leader]
        if not leader.is_running or not now.leads_under(leader.epoch):
            return  # it died and nobody knows yet: it will not lead
        assert leader.log[: len(self.committed)] == self.committed, "I-23"

    # ── the end ────────────────────────────────────────────────────────────────────────────────

    def heal(self) -> None:
        """No more faults: everything must come right by itself."""
        for broker in self.brokers.values():
            if not broker.is_running:
                self.expire(broker)
            self.start(broker)
            if self.image.brokers[broker.broker_id].is_shutting_down:
                self.stop(broker)
                self.start(broker)
        for _ in range(30):
            if self.image.controller is None:
                self.stand(self.brokers[BrokerId(5)])
            for broker in self.brokers.values():
                self.hear(broker)
            self._settle()
            for broker in self.brokers.values():
                self.fetch(broker, 10**6)
                self.fetch(broker, 10**6)
                for leader in self.brokers.values():
                    self.hear(leader)
                    self.propose_join(leader, broker)
                while self.requests:
                    self.deliver(0)
        self._settle()
        self.check_settled()

    def _settle(self) -> None:
        """The controller does all that there is to do, by a view that is up to date."""
        for _ in range(20):
            office = self.in_office()
            assert office is not None, "I-48"
            self.hear(office)
            if not self.govern(office):
                return
        raise AssertionError("the controller does not come to an end")

    def check_settled(self) -> None:
        partition = self.image.partition(T0)
        assert partition is not None
        assert partition.has_leader, "I-48"
        assert not partition.adding, "I-51"
        assert not partition.removing, "I-51"
        assert set(partition.in_sync_replicas) == set(partition.replicas), "I-49"
        logs = [self.brokers[broker].log for broker in partition.replicas]
        assert all(log == logs[0] for log in logs), "I-49"
        assert self._may_lose or logs[0][: len(self.committed)] == self.committed, "I-28"
        for broker in partition.in_sync_replicas:
            assert partition.in_sync_epochs[broker] == self.brokers[broker].epoch, "I-33"
