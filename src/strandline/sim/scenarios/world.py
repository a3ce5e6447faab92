"""The world of a scenario: the simulator's cluster of real nodes, in slow motion.

Machines, network, metadata store and the checkers are the simulator's; nothing happens in it by
itself. What brokers send each other waits for the script (`links`), the controller's decisions are
made when it says so (`controller`), and a broker that is cut off or is not told is cut off from the
store. This file knows how brokers start and end. Everything that happens is an event in words in
`events`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from strandline.cluster.controller import PartitionAltered
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.replication.in_sync import Committed
from strandline.replication.policies import Policies
from strandline.sim.checkers.checkers import Checkers
from strandline.sim.machine import Machine
from strandline.sim.scenarios.controller import Controller, HeldProposals, Rules, State
from strandline.sim.scenarios.followers import Followers
from strandline.sim.scenarios.links import Links
from strandline.sim.scenarios.replica import PARTITION, Entry, Replica, broker_id_of, name_of
from strandline.sim.scenarios.simulation import (
    BY_SCRIPTS,
    Watch,
    is_informed,
    look_at_followers,
    make_simulation,
    with_letters,
    write_checkpoints,
)
from strandline.sim.scenarios.writes import Write, Writes
from strandline.types import BrokerId, Offset


class World:
    """See the module. Public methods are the verbs of scripts; each is one event or request."""

    def __init__(
        self,
        replicas: str,
        *,
        spare: str = "",
        in_sync: str = "",
        policies: Policies | None = None,
        rules: Rules | None = None,
        lag_max_ms: int = 30_000,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        names = replicas + spare
        ids = {name: broker_id_of(name) for name in names}
        rules = rules or Rules()
        self.events: list[str] = []
        """What has happened in this step, in words."""
        self._proposals: dict[BrokerId, HeldProposals] = {}
        self.sim = make_simulation(
            max(ids.values()), min_in_sync=rules.min_in_sync_replicas, lag_max_ms=lag_max_ms
        )
        self._losses = 0
        self.checkers = Checkers(self.sim, exceeds_budget=self._may_lose)
        self.sim.observers += [
            Watch(self.events.append, partial(self._follow_rules, policies or Policies())),
            self.checkers,
        ]
        self.sim.on_note = self._hear
        self.replicas = {name: Replica(name, self.sim, ids[name]) for name in names}
        self.controller = Controller(self.sim.store, rules)
        self.committed: set[str] = set()
        """The values of all records that were committed at any time."""
        self._known: dict[int, Entry] = {}
        self._writes = Writes(self.events.append)
        self._links = Links(self.sim, ids.values(), self._is_cut)
        self.followers = Followers(self.sim, self.replicas, self._links, self.events.append)
        self._held_alters: dict[str, Callable[[], None]] = {}
        self._wanted = set(names)
        """Those that the script wants to run."""
        for replica in self.replicas.values():
            replica.machine.start()
        self._links.flow()
        self.controller.create(replicas, in_sync or replicas, settings or {})
        self._told = self.state
        self.sim.store.watchers.append(self._metadata_changed)
        self._links.flow()
        self._began_ms = self.sim.schedule.now_ms
        self.end_step()
        self.events.clear()

    # -- Looking -----------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The partition's state as it is in the store."""
        return State.of(self.controller.partition)

    @property
    def outcomes(self) -> dict[str, str]:
        """See `Writes`."""
        return self._writes.outcomes

    @property
    def now_ms(self) -> int:
        """How long the scenario has lasted."""
        return self.sim.schedule.now_ms - self._began_ms

    @property
    def violations(self) -> dict[str, str]:
        """What was first seen of each invariant that was broken, by its number."""
        found: dict[str, str] = {}
        for violation in self.checkers.violations:
            if violation.invariant != BY_SCRIPTS:
                found.setdefault(violation.invariant, with_letters(violation.what))
        return found

    def _may_lose(self) -> bool:
        """Whether as many complete replicas have lost records as must be in sync."""
        if not self._losses:
            return False
        minimum = self.controller.rules.min_in_sync_replicas
        return self._losses >= min(minimum, len(self.state.replicas))

    def hears_nothing(self, name: str) -> bool:
        """Whether a broker is separated from the store."""
        return self.sim.store.is_cut(self.replicas[name].broker_id)

    def _is_cut(self, one: BrokerId, other: BrokerId) -> bool:
        return self.replicas[name_of(one)].is_cut or self.replicas[name_of(other)].is_cut

    def _hear(self, at_us: int, note: str) -> None:
        del at_us
        if note.startswith("! ") and not note.startswith(f"! {BY_SCRIPTS}"):
            self.events.append(with_letters(note))

    def _metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        del changes
        partition = image.partition(PARTITION)
        if partition is not None and State.of(partition) != self._told:
            is_unclean = partition.is_recovering and partition.leader_epoch > self._told[4]
            self._told = State.of(partition)
            self.events.append(f"controller: {self._told}{', unclean' if is_unclean else ''}")

    # -- Brokers -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A broker process starts on its disk, registers, and learns the partition's state."""
        self._wanted.add(name)
        self.replicas[name].machine.start()
        self._links.flow()

    def kill(self, name: str) -> None:
        """The process ends, and its session; what it wrote stays in the page cache."""
        replica = self.replicas[name]
        replica.machine.kill()
        self._ended(name)

    def cut_power(self, name: str, keep: int | None) -> None:
        """The machine loses all from offset `keep` on; by default what was never synced."""
        replica = self.replicas[name]
        log, disk = replica.log, replica.machine.disk
        kept = log.recovery_point if keep is None else Offset(keep)
        is_lossy = kept < log.log_end_offset
        segment, position = log.reader.position_of(kept)
        paths = [each.log.path for each in log.segments.all if each.base_offset >= segment]
        plan = log.flusher.flush_plan()
        if plan is not None:
            with disk.unobserved():
                plan.carry_out(disk.files)
        replica.machine.power_cut("none")
        if is_lossy:
            self._losses += name in self.state.in_sync + self.state.eligible
            self.checkers.note_lossy(replica.broker_id)
        with disk.unobserved():
            for path in paths[1:]:
                disk.files.remove(path)
            if disk.files.exists(paths[0]):  # an empty file may not even have its name yet
                file = disk.files.open(paths[0])
                file.truncate(position)
                file.sync()
        self.followers.lost_power(name, kept)
        self._ended(name)

    def stop(self, name: str) -> None:
        """A clean shutdown, without the controller's help."""
        ended: list[bool] = []
        self.replicas[name].machine.stop(ended.append)
        self._until(lambda: bool(ended))
        self._ended(name)

    def wipe(self, name: str) -> None:
        """The disk of a broker that is down is replaced by an empty one."""
        replica = self.replicas[name]
        replica.machine.swap_disk()
        self.checkers.note_lossy(replica.broker_id)
        self.followers.lost_power(name, Offset(0))

    def announce_shutdown(self, name: str) -> None:
        """Controlled shutdown: the registration says so (KIP-841)."""
        self.replicas[name].machine.event(lambda node, now: node.begin_shutdown(now))
        self._links.flow()

    def _ended(self, name: str) -> None:
        self.sim.store.expire(self.replicas[name].broker_id)
        self._wanted.discard(name)
        self.followers.ended(name)
        self._held_alters.pop(name, None)
        self._links.flow()

    def cut(self, name: str) -> None:
        """Cut a broker off from the store and from all others; clients still reach it."""
        replica = self.replicas[name]
        replica.is_cut = True
        self.sim.store.cut(replica.broker_id, silent=True)

    def expire(self, name: str) -> None:
        """Its session ends although it runs."""
        self.sim.store.expire(self.replicas[name].broker_id)
        self._links.flow()

    def heal(self, name: str, *, silent: bool = False) -> None:
        """It is reachable again; if its session has ended, it registers anew.

        `silent`: others reach it, but it hears nothing of the store before `tell`.
        """
        self.replicas[name].is_cut = False
        if not silent:
            self.tell(name)
        self._links.flow()

    def tell(self, name: str) -> None:
        """The metadata reaches a broker."""
        replica = self.replicas[name]
        self.sim.store.heal(replica.broker_id)
        if name in self._wanted and not replica.is_paused:
            self._until(lambda: is_informed(replica.machine))
        self._links.flow()

    def _until(self, condition: Callable[[], bool]) -> None:
        if not self.sim.run_until(condition):
            raise InvariantViolated(f"The scenario waits for something in vain.\n{self.sim}")

    # -- The controller ----------------------------------------------------------------------

    def run_controller(self) -> None:
        """The controller looks at who is registered, and decides what follows."""
        if not self.controller.run():
            self.events.append("controller: nothing to do")
        self._links.flow()

    def elect(self, name: str, leader_epoch: int, in_sync: str, unclean: bool) -> None:
        """Write a state that the script decides on."""
        self.controller.elect(name, leader_epoch, in_sync, is_unclean=unclean)
        self._links.flow()

    def prefer(self, name: str) -> None:
        """Move leadership to a live member of the in-sync set (a preferred election)."""
        self.controller.prefer(name)
        self._links.flow()

    def reassign(self, names: str) -> None:
        """The partition is now assigned to these brokers; the leader stays."""
        self.controller.reassign(names)
        self._links.flow()

    def set_min_in_sync(self, minimum: int) -> None:
        """`min.insync.replicas` changes."""
        self.controller.set_min_in_sync(minimum)
        self._links.flow()

    def alter(self, name: str, *, hold_reply: bool = False) -> None:
        """The controller answers the change of the in-sync set that a leader has proposed."""
        replica = self.replicas[name]
        held = self._proposals.get(replica.broker_id)
        if held is None or replica.leader is None or isinstance(replica.leader.in_sync, Committed):
            self.events.append(f"{name} has nothing to propose")
            return
        if replica.is_cut:
            self.events.append("the proposal does not reach the controller")
            return
        proposals = held.take()
        if not proposals:
            self.events.append(f"{name} waits for an answer")
            return
        if hold_reply:
            self.sim.store.cut(replica.broker_id, silent=True)
        answer: tuple[PartitionAltered, ...] | ErrorCode
        try:
            answer = self.controller.alter(replica, proposals)
        except ProtocolError as error:
            self.events.append(f"controller: {error.code.name}")
            answer = error.code
        else:
            for each in answer:
                if each.refusal is not None:
                    self.events.append(f"controller: {each.refusal.code.name}")
        deliver = partial(replica.machine.event, lambda _, now: held.answered(answer, now))
        if hold_reply:
            self._held_alters[name] = deliver
        else:
            deliver()
        self._links.flow()

    def reply_alter(self, name: str) -> None:
        """The answer that was held back arrives, and the metadata behind it."""
        self._held_alters.pop(name)()
        self._links.flow()
        self.tell(name)

    def has_held_alter(self, name: str) -> bool:
        """Whether `reply_alter` has something to deliver."""
        return name in self._held_alters

    def _follow_rules(self, policies: Policies, machine: Machine) -> None:
        """A process has made its node: it has the script's rules before its first role."""
        node = machine.node
        host = node.replicas.host
        held = self._proposals[machine.broker_id] = HeldProposals(node, self.events.append)
        node.in_sync_changes = node.parts.in_sync_changes = host.proposals = held
        host.policies = policies

    # -- Clients -----------------------------------------------------------------------------

    def produce(self, name: str, values: list[str], write: Write) -> None:
        """A client sends batches to a broker; `a+b` is one batch of two records."""
        for index, value in enumerate(values):
            self._writes.produce(self.replicas[name], value, write, index)
            self._links.flow()
        self.followers.answer_parked()

    def write_marker(
        self, name: str, kind: str, write: Write, coordinator_epoch: int, version: int
    ) -> None:
        """The transaction coordinator ends a producer's transaction on this partition."""
        self._writes.write_marker(self.replicas[name], kind, write, coordinator_epoch, version)
        self._links.flow()
        self.followers.answer_parked()

    def delete_records(self, name: str, offset: int) -> None:
        """DeleteRecords on the leader."""
        self._writes.delete_records(self.replicas[name], offset)
        self._links.flow()

    def low_watermark(self, name: str) -> Offset:
        """The smallest log start over the replicas that count, as the leader knows it."""
        hosted = self.replicas[name].hosted
        if hosted is None:
            raise InvariantViolated(f"{name} has no replica.")
        return hosted.check_leading().low_watermark

    # -- Followers ---------------------------------------------------------------------------

    def fetch(self, name: str, *, mode: str = "", one_batch: bool = False) -> None:
        """One fetch of a follower from the leader that it knows; `mode` says what goes wrong."""
        self.followers.fetch(self.replicas[name], mode=mode, one_batch=one_batch)

    # -- Time --------------------------------------------------------------------------------

    def wait(self, duration_ms: int) -> None:
        """Let time pass; at its end leaders look at their followers."""
        self.sim.run_for(duration_ms)
        for replica in self.replicas.values():
            replica.machine.event(look_at_followers)
        self._links.flow()

    def end_step(self) -> None:
        """Write the checkpoints down, tell what the step has changed, and check everything."""
        for replica in self.replicas.values():
            self.followers.say_truncation(replica)
            # Before a broker knows its role it must not write the table (KAFKA-1647, R-03).
            if replica.is_running and replica.machine.node.replicas.has_roles:
                replica.machine.event(write_checkpoints)
        self._links.flow()
        self.checkers.sweep()
        for replica in self.replicas.values():
            if replica.leader is not None and replica.leader_epoch == self.state.leader_epoch:
                self._note_commits(replica)

    def _note_commits(self, replica: Replica) -> None:
        """What is below the leader's high watermark is committed, and its successors have it."""
        held = {entry.offset: entry for entry in replica.entries()}
        start, end = replica.log.log_start_offset, replica.log.high_watermark
        for offset, entry in sorted(self._known.items()):
            if offset >= start and held.get(offset) != entry:
                del self._known[offset]
                if not self.violations:
                    value = entry.value
                    self.events.append(
                        f"{value} is compacted away"
                        if ":" in value
                        else f"{value} is lost, as allowed"
                    )
        for offset, entry in held.items():
            if offset < end:
                self._known.setdefault(offset, entry)
                self.committed.add(entry.value)
