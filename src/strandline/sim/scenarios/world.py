"""The world of a scenario: replicas with real logs, a small controller, and time.

This file knows how brokers start, end and learn who leads (specification 1.2). What leaders and
followers then do stands in `leading` and `following`. Everything that happens is an event in words
in `events`; time moves only by `wait`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode
from strandline.replication.in_sync import Committed, Expanding, InSyncState
from strandline.replication.leader import Leader
from strandline.replication.policies import Policies, TruncateBy
from strandline.replication.truncation import first_truncation
from strandline.sim.scenarios.controller import Live, Proposal, Rules, State, decide, reconcile
from strandline.sim.scenarios.following import Following
from strandline.sim.scenarios.oracle import Oracle
from strandline.sim.scenarios.replica import NO_LEADER, Replica, broker_id_of, name_of
from strandline.types import BrokerId, LeaderEpoch, Offset

DEFINITE = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)


class World(Following):
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
        segment_bytes: int = 1 << 20,
    ) -> None:
        super().__init__()
        self.policies = policies or Policies()
        self.rules = rules or Rules()
        self.lag_max_ms = lag_max_ms
        self.now_ms = 0
        self._next_broker_epoch = 1
        self._held_alters: dict[str, tuple[InSyncState, State | ErrorCode]] = {}
        config = TopicConfig(
            file_delete_delay_ms=0, segment_bytes=segment_bytes, segment_index_bytes=4096
        )
        self.replicas = {name: Replica(name, config) for name in replicas + spare}
        for replica in self.replicas.values():
            self._boot(replica)
        self.state = State(
            replicas=tuple(replicas),
            leader=replicas[0],
            in_sync=tuple(in_sync or replicas),
            broker_epochs={n: self.replicas[n].broker_epoch for n in in_sync or replicas},
            last_leader=replicas[0],
        )
        self.oracle = Oracle(self)
        self._tell()
        self.events.clear()

    # -- Brokers -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A broker process starts on its disk, registers, and learns the partition's state."""
        replica = self.replicas[name]
        self._boot(replica)
        if replica.is_registered:
            self.events.append(f"{name} registers with epoch {replica.broker_epoch}")
        self._tell_one(replica)

    def _boot(self, replica: Replica) -> None:
        replica.start(self.now_ms)
        replica.broker_epoch = -1
        if not replica.is_cut:
            self._register(replica)

    def _register(self, replica: Replica) -> None:
        replica.broker_epoch = self._next_broker_epoch
        replica.is_registered = True
        self._next_broker_epoch += 1

    def kill(self, name: str) -> None:
        """The process ends; what it wrote stays in the page cache."""
        self._forget_process(name)
        self.replicas[name].kill()

    def cut_power(self, name: str, keep: int | None) -> None:
        """The machine loses all from offset `keep` on; by default what was never synced."""
        replica = self.replicas[name]
        kept = replica.log.recovery_point if keep is None else Offset(keep)
        self._forget_process(name)
        self.oracle.lossy_crash(replica, kept)
        replica.cut_power(kept)

    def stop(self, name: str) -> None:
        """A clean shutdown, without the controller's help."""
        self._forget_process(name)
        self.replicas[name].stop()

    def wipe(self, name: str) -> None:
        """The disk of a broker that is down is replaced by an empty one."""
        self.replicas[name].wipe()

    def announce_shutdown(self, name: str) -> None:
        """Controlled shutdown: the registration says so (KIP-841)."""
        self.replicas[name].is_shutting_down = True

    def cut(self, name: str) -> None:
        """Cut a broker off from the store and from all others; clients still reach it."""
        self.replicas[name].is_cut = True

    def expire(self, name: str) -> None:
        """Its session ends although it runs."""
        self.replicas[name].is_registered = False

    def heal(self, name: str, *, silent: bool = False) -> None:
        """It is reachable again; if its session has ended, it registers anew.

        `silent`: the metadata is still on its way and comes with `tell`.
        """
        replica = self.replicas[name]
        replica.is_cut = False
        if not replica.is_registered and replica.is_running:
            if replica.broker_epoch >= 0:
                replica.previous_epoch = replica.broker_epoch
            self._register(replica)
            self.events.append(f"{name} registers with epoch {replica.broker_epoch}")
        if not silent:
            self._tell_one(replica)

    def tell(self, name: str) -> None:
        """The metadata reaches a broker."""
        self._tell_one(self.replicas[name])

    def _forget_process(self, name: str) -> None:
        replica = self.replicas[name]
        replica.is_registered = False
        self._parked.pop(name, None)
        for waiting in list(self._waiting):
            if waiting.leader is replica:
                self._finish(waiting, "UNKNOWN: the connection broke")

    # -- The controller ----------------------------------------------------------------------

    def run_controller(self) -> None:
        """The controller looks at who is registered, and decides what follows."""
        election = reconcile(self.state, self._live(), self.rules)
        if election is None:
            self.events.append("controller: nothing to do")
            return
        self._change_state(election.state, is_unclean=election.is_unclean)

    def elect(self, name: str, leader_epoch: int | None, in_sync: str, unclean: bool) -> None:
        """Write a state that the script decides on."""
        members = tuple(in_sync) if in_sync else self.state.in_sync
        epoch = self.state.leader_epoch + 1 if leader_epoch is None else leader_epoch
        changed = replace(
            self.state,
            leader=name,
            leader_epoch=epoch,
            in_sync=members,
            eligible=(),
            last_leader=name,
            broker_epochs={member: self.replicas[member].broker_epoch for member in members},
            partition_epoch=self.state.partition_epoch + 1,
        )
        self._change_state(changed, is_unclean=unclean)

    def prefer(self, name: str) -> None:
        """Move leadership to a live member of the in-sync set (a preferred election)."""
        if name in self.state.in_sync and name in self._live():
            recorded = self.state.broker_epochs[name]
            if recorded == self.replicas[name].broker_epoch and self.state.leader != name:
                self._change_state(
                    replace(
                        self.state,
                        leader=name,
                        last_leader=name,
                        leader_epoch=self.state.leader_epoch + 1,
                        partition_epoch=self.state.partition_epoch + 1,
                    )
                )

    def reassign(self, names: str) -> None:
        """The partition is now assigned to these brokers; the leader stays."""
        members = tuple(name for name in self.state.in_sync if name in names)
        self._change_state(
            replace(
                self.state,
                replicas=tuple(names),
                in_sync=members,
                partition_epoch=self.state.partition_epoch + 1,
            )
        )

    def set_min_in_sync(self, minimum: int) -> None:
        """`min.insync.replicas` changes."""
        self.rules = replace(self.rules, min_in_sync=minimum)
        for replica in self._leaders():
            replica.reign.min_in_sync = minimum
            self._advance(replica)

    def alter(self, name: str, *, hold_reply: bool = False) -> None:
        """The controller answers the change of the in-sync set that a leader has proposed."""
        replica = self.replicas[name]
        leader = replica.leader
        if leader is None or isinstance(leader.in_sync, Committed):
            self.events.append(f"{name} has nothing to propose")
            return
        if replica.is_cut:
            self.events.append("the proposal does not reach the controller")
            return
        sent = leader.in_sync
        members = {
            name_of(member): self._seen_epoch(replica, leader, member) for member in sent.proposed
        }
        proposal = Proposal(leader.leader_epoch, leader.partition_epoch, members)
        answer = decide(self.state, self._live(), self.rules, proposal)
        if isinstance(answer, State):
            self.oracle.before_join(replica, leader, sorted(set(members) - set(self.state.in_sync)))
            self._change_state(answer, except_leader=name)
        else:
            self.events.append(f"controller: {answer.name}")
        if hold_reply:
            self._held_alters[name] = (sent, answer)
        else:
            self._altered(replica, sent, answer)

    def reply_alter(self, name: str) -> None:
        """The answer that was held back arrives."""
        sent, answer = self._held_alters.pop(name)
        self._altered(self.replicas[name], sent, answer)

    def has_held_alter(self, name: str) -> bool:
        """Whether `reply_alter` has something to deliver."""
        return name in self._held_alters

    @staticmethod
    def _seen_epoch(replica: Replica, leader: Leader, member: BrokerId) -> int:
        if member == leader.broker_id:
            return replica.broker_epoch
        if isinstance(leader.in_sync, Expanding) and member == leader.in_sync.joining:
            return leader.in_sync.broker_epoch
        return leader.progress[member].broker_epoch

    def _altered(self, replica: Replica, sent: InSyncState, answer: State | ErrorCode) -> None:
        if replica.leader is None:
            return
        if isinstance(answer, State):
            if answer.leader_epoch == replica.leader.leader_epoch:
                replica.leader.committed(
                    map(broker_id_of, answer.in_sync), answer.partition_epoch, bool(answer.eligible)
                )
        else:
            replica.leader.refused(definite=answer in DEFINITE, proposal=sent)
        self._advance(replica)

    def _live(self) -> dict[str, Live]:
        return {
            name: Live(r.broker_epoch, r.previous_epoch, r.is_shutting_down)
            for name, r in self.replicas.items()
            if r.is_registered
        }

    def _change_state(
        self, state: State, *, is_unclean: bool = False, except_leader: str | None = None
    ) -> None:
        if state != self.state:
            self.events.append(f"controller: {state}{', unclean' if is_unclean else ''}")
        self.oracle.elected(self.state, state, is_unclean=is_unclean)
        self.state = state
        self._tell(except_leader)

    def _tell(self, except_name: str | None = None) -> None:
        for name, replica in self.replicas.items():
            if name != except_name:
                self._tell_one(replica)

    # -- Roles (1.2) -------------------------------------------------------------------------

    def _tell_one(self, replica: Replica) -> None:
        """The metadata as a broker sees it, perhaps several changes at once."""
        if not replica.is_running or replica.is_cut:
            return
        state = self.state
        if replica.name not in state.replicas:
            replica.leader = replica.leader_name = None
        elif state.leader_epoch > replica.leader_epoch:
            if state.leader != replica.name:
                self._follow(replica)
            elif state.broker_epochs.get(replica.name) == replica.broker_epoch:
                # A state from before a restart elects nobody: the log may have lost records since,
                # and would get others at the same offsets in the same epoch.
                self._lead(replica)
        elif replica.leader is not None:
            replica.leader.committed(
                map(broker_id_of, state.in_sync), state.partition_epoch, bool(state.eligible)
            )
            replica.leader.reassigned([broker_id_of(name) for name in state.replicas])
            self._advance(replica)

    def _lead(self, replica: Replica) -> None:
        state, log = self.state, replica.log
        epoch = LeaderEpoch(state.leader_epoch)
        # KAFKA-7415: the epoch begins here, whether or not anything is written in it.
        log.leader_epochs.assign(epoch, log.log_end_offset)
        replica.leader = Leader(
            replica.broker_id,
            leader_epoch=epoch,
            partition_epoch=state.partition_epoch,
            start_offset=log.log_end_offset,
            replicas=[broker_id_of(name) for name in state.replicas],
            in_sync=[broker_id_of(name) for name in state.in_sync],
            lag_max_ms=self.lag_max_ms,
            min_in_sync=self.rules.min_in_sync,
            now_ms=self.now_ms,
            log_start_offset=log.log_start_offset,
            has_eligible=bool(state.eligible),
            former=replica.leader,
            policies=self.policies,
        )
        replica.leader_epoch, replica.leader_name = epoch, None
        self.oracle.leads(replica)
        self._advance(replica)

    def _follow(self, replica: Replica) -> None:
        state, log = self.state, replica.log
        if replica.leader is not None:
            self._lose_leadership(replica)
        replica.leader = None
        replica.leader_epoch = LeaderEpoch(state.leader_epoch)
        replica.leader_name = state.leader
        replica.compares_epochs = self.policies.truncate_by is not TruncateBy.HIGH_WATERMARK
        if state.leader is None:
            return
        target = first_truncation(
            log.leader_epochs.latest,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            policies=self.policies,
        )
        if target is not None:
            self._truncate(replica, target.offset)

    def _leaders(self) -> Iterable[Replica]:
        return [r for r in self.replicas.values() if r.is_running and r.leader is not None]

    # -- Time --------------------------------------------------------------------------------

    def wait(self, duration_ms: int) -> None:
        """Let time pass; what time alone causes happens on the way."""
        until_ms = self.now_ms + duration_ms
        while True:
            self._on_time()
            due = [at for r in self._leaders() if (at := self._next_check(r)) is not None]
            due.extend(w.deadline_ms for w in self._waiting if w.deadline_ms is not None)
            self.now_ms = min([until_ms, *due])
            if self.now_ms == until_ms:
                self._on_time()
                return

    def _next_check(self, replica: Replica) -> int | None:
        return replica.reign.next_lag_check_ms(replica.log.log_end_offset, self.now_ms)

    def _on_time(self) -> None:
        for replica in self._leaders():
            if replica.reign.maybe_shrink(replica.log.log_end_offset, self.now_ms):
                self._say_proposal(replica)
            self._advance(replica)
        for waiting in list(self._waiting):
            if waiting.deadline_ms is not None and self.now_ms >= waiting.deadline_ms:
                self._finish(waiting, ErrorCode.REQUEST_TIMED_OUT.name)

    def end_step(self) -> None:
        """Write the checkpoints down and have every invariant checked."""
        for replica in self.replicas.values():
            # Before a broker knows its role it must not write the table (KAFKA-1647, R-03).
            if replica.is_running and replica.leader_epoch != NO_LEADER:
                replica.checkpoint()
        self.oracle.check()
