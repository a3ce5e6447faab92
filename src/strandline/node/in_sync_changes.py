"""The way of a leader's change of its in-sync set to the controller, and of the answer back.

A leader proposes, the controller decides (AlterPartition, KIP-497; design decision D-05). All
proposals of this broker share one request in flight; what is proposed meanwhile goes with the next
one, the newest proposal of each partition only. A request whose outcome is unknown is repeated for
ever, because the leader must not go on from either set before it knows: the controller answers a
repeated request for what is already so with success. It is repeated to the broker that is then
the controller, which may be this one: it decides without a request. A leader that reaches the
metadata store, but not the controller, would wait for as long as both live: after a while it
decides in the controller's place (`ControllerLoop.decide_locally`; D-05's direct way, for this
case only).

Which refusals are definite is known to `Replica.in_sync_refused` (replication specification, 2.1);
here is decided only what to repeat. This file must not know why a set changes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from strandline.client.channel import RequestFailed
from strandline.cluster.controller import InSyncProposal, PartitionAltered, alter_partitions
from strandline.cluster.image import ImageDelta
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.node.controller_loop import ControllerLoop
from strandline.node.hosted_replica import HostedReplica
from strandline.node.in_sync_wire import request_of, results_of
from strandline.node.leader_role import DEFINITE
from strandline.node.membership import Membership
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.settings import Settings
from strandline.node.timers import Timer, Timers
from strandline.protocol.messages.alter_partition import AlterPartitionResponse
from strandline.replication.in_sync import Committed, Expanding, InSyncState, Withdrawing
from strandline.types import BrokerId, Instant, LeaderEpoch, TopicId

log = logging.getLogger(__name__)

_VERSION: Final = 3
_PAUSE_MIN_MS: Final = 50
_PAUSE_MAX_MS: Final = 1000
_PATIENCE_MIN_MS: Final = 1000
_UNKNOWN_EPOCH: Final = -1
_PARTITIONS_MAX: Final = 1000
"""In one request: the controller writes its decision about all of them at once."""

_ASK_AGAIN_MS: Final = 200
"""For a proposal that was refused by itself: newer metadata mostly end it before that."""


class _Sent(NamedTuple):
    """One proposal as it was sent."""

    replica: HostedReplica
    state: InSyncState
    leader_epoch: LeaderEpoch


_Key = tuple[TopicId, int]


class InSyncChanges:
    """See the module. Bounded by the partitions that this node leads."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        membership: Membership,
        controller: ControllerLoop,
        peers: Peers,
        timers: Timers,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._membership = membership
        self._controller_loop = controller
        self._peers = peers
        self._timers = timers
        self._wanted: dict[HostedReplica, None] = {}
        self._sent: dict[_Key, _Sent] = {}
        """The request in flight; empty if there is none."""
        self._open: dict[HostedReplica, InSyncState] = {}
        """Proposals of which an attempt was never answered, or not definitely refused. It may be
        carried out at any time, also behind a refusal of a later attempt, as long as the state
        keeps its version."""
        self._to_ask_again: dict[HostedReplica, Timer] = {}
        """Proposals that were refused by themselves."""
        self._attempt = 0
        """Counts the requests, so that the answer to one that was given up is recognised."""
        self._asked: BrokerId | None = None
        self._failures = 0
        self._silent_since_ms: int | None = None
        """When the first request went out to the controller that could not be reached."""
        self._pause: Timer | None = None

    def propose(self, replica: HostedReplica, now: Instant) -> None:
        """Have `replica.leader.in_sync.proposed` decided; goes out at the end of this turn."""
        del now
        self._wanted[replica] = None

    def follow(self, delta: ImageDelta) -> None:
        """The image has changed: another controller is to be asked, and at once."""
        if not delta.controller_changed and self._asked not in delta.brokers_changed:
            return
        self._end_pause()
        self._silent_since_ms = None
        if self._sent and self._asked != self._membership.broker_id:
            # The one that was asked is replaced, or a new process: its answer, should it
            # come, does not count any more.
            self._give_up()

    def act(self, now: Instant) -> None:
        """Send what waits, unless a request is in flight. Once per turn."""
        if not self._wanted or self._sent or self._pause is not None:
            return
        controller = self._metadata.image.controller
        if controller is None or not self._membership.is_registered:
            return  # the image will change
        is_local = controller == self._membership.broker_id
        if is_local and not self._controller_loop.is_controller:
            return
        proposals = self._take()
        if not proposals:
            return
        self._attempt += 1
        self._asked = controller
        if is_local or self._is_unreachable(now):
            self._decide_here(proposals, now)
        else:
            self._ask(controller, proposals, now)

    def check(self, replica: HostedReplica) -> None:
        """Raise `InvariantViolated` if the replica leads with a proposal that is not on its way to
        the controller: its in-sync set would never change again. To be asked between two turns."""
        leader = replica.leader
        if leader is None or isinstance(leader.in_sync, Committed):
            return
        if (
            replica in self._wanted
            or replica in self._to_ask_again
            or any(sent.replica is replica for sent in self._sent.values())
        ):
            return
        raise InvariantViolated(
            f"The leader waits for the controller to decide about {leader.in_sync}, which was "
            f"never asked.",
            invariant="I-50",
        )

    def _is_unreachable(self, now: Instant) -> bool:
        since_ms = self._silent_since_ms
        return since_ms is not None and now.monotonic_ms - since_ms >= self._patience_ms

    @property
    def _patience_ms(self) -> int:
        """How long the controller may be silent: as in-sync changes come, not too long."""
        broker = self._settings.broker
        lag_ms = broker.replica_lag_time_max_ms
        return min(broker.controller_socket_timeout_ms, max(_PATIENCE_MIN_MS, lag_ms // 2))

    # -- Asking ------------------------------------------------------------------------------

    def _take(self) -> list[InSyncProposal]:
        """The newest proposal of the partitions that still have one, the oldest wish first."""
        proposals: list[InSyncProposal] = []
        for replica in list(self._wanted):
            if len(proposals) == _PARTITIONS_MAX:
                break
            del self._wanted[replica]
            leader = replica.leader
            if leader is None or self._open.get(replica) is not leader.in_sync:
                self._open.pop(replica, None)
            if leader is None or isinstance(leader.in_sync, Committed):
                continue  # overtaken by newer metadata
            number = replica.topic_partition.partition
            epoch = leader.leader_epoch
            self._sent[replica.topic_id, number] = _Sent(replica, leader.in_sync, epoch)
            proposals.append(
                InSyncProposal(
                    replica.topic_id,
                    number,
                    leader.leader_epoch,
                    leader.partition_epoch,
                    [
                        (member, self._epoch_of(replica, member))
                        for member in sorted(leader.in_sync.proposed)
                    ],
                )
            )
        return proposals

    def _epoch_of(self, replica: HostedReplica, member: BrokerId) -> int:
        """The registration under which a member is known to be in sync: that of its fetches, and
        of one that joins that of the fetch with which it qualified, however late this is sent."""
        if member == self._membership.broker_id:
            return self._membership.broker_epoch
        leader = replica.leader
        if leader is None or isinstance(leader.in_sync, Withdrawing):
            return _UNKNOWN_EPOCH
        if isinstance(leader.in_sync, Expanding) and member == leader.in_sync.joining:
            return leader.in_sync.broker_epoch
        progress = leader.progress.get(member)
        return _UNKNOWN_EPOCH if progress is None else progress.broker_epoch

    def _decide_here(self, proposals: Sequence[InSyncProposal], now: Instant) -> None:
        attempt = self._attempt
        self._silent_since_ms = None  # the next ones are for the controller again
        decide = partial(
            alter_partitions,
            broker_id=self._membership.broker_id,
            broker_epoch=self._membership.broker_epoch,
            items=proposals,
            policy=self._controller_loop.policy,
        )

        def done(results: tuple[PartitionAltered, ...], at: Instant) -> None:
            if attempt == self._attempt:
                self._answered(results, at)

        def failed(error: ProtocolError, at: Instant) -> None:
            if attempt == self._attempt:
                self._failed(str(error), at)

        if self._controller_loop.is_controller:
            self._controller_loop.carry_out(decide, done=done, failed=failed, now=now)
        else:
            log.warning(
                "The controller (broker %s) cannot be reached: broker %s decides about the "
                "in-sync replicas of %d partitions that it leads",
                self._asked,
                self._membership.broker_id,
                len(proposals),
            )
            self._controller_loop.decide_locally(decide, done=done, failed=failed, now=now)

    def _ask(self, controller: BrokerId, proposals: Sequence[InSyncProposal], now: Instant) -> None:
        attempt = self._attempt

        def answered(answer: object, at: Instant) -> None:
            if attempt != self._attempt:
                return
            if isinstance(answer, RequestFailed):
                if self._silent_since_ms is None:
                    self._silent_since_ms = now.monotonic_ms
                self._failed(answer.reason, at)
                return
            self._silent_since_ms = None
            if not isinstance(answer, AlterPartitionResponse):
                raise InvariantViolated(f"AlterPartition was answered with {answer!r}.")
            if answer.error_code:
                self._failed(ErrorCode(answer.error_code).name, at)
            else:
                self._answered(results_of(answer), at)

        self._peers.ask(
            controller,
            request_of(self._membership.broker_id, self._membership.broker_epoch, proposals),
            _VERSION,
            answered,
            now,
            timeout_ms=self._patience_ms,
        )

    # -- Answers -----------------------------------------------------------------------------

    def _answered(self, results: Sequence[PartitionAltered], now: Instant) -> None:
        sent, self._sent = self._sent, {}
        self._failures = 0
        for result in results:
            proposal = sent.pop((result.topic_id, result.partition), None)
            if proposal is None:
                continue
            if result.refusal is None:
                self._commit(proposal, result, now)
            else:
                self._refuse(proposal, result.refusal.code, now)
        for unanswered in sent.values():
            self._open[unanswered.replica] = unanswered.state
            self._ask_again(unanswered.replica, now)

    def _commit(self, proposal: _Sent, result: PartitionAltered, now: Instant) -> None:
        replica, leader = proposal.replica, proposal.replica.leader
        if leader is None or not (
            result.leader_epoch == replica.leader_epoch == proposal.leader_epoch
        ):
            return  # leadership has changed, and the metadata tells or has told about it
        members = result.in_sync_replicas
        if self._membership.broker_id in members and set(members) <= set(leader.replicas):
            replica.in_sync_committed(members, result.partition_epoch, now)
            return
        log.error(
            "The controller answered that %s are in sync with %s, which cannot be",
            sorted(members),
            replica.topic_partition,
        )
        self._ask_again(replica, now)

    def _refuse(self, proposal: _Sent, code: ErrorCode, now: Instant) -> None:
        replica = proposal.replica
        log.info(
            "The controller refused in-sync replicas %s for %s: %s",
            sorted(proposal.state.proposed),
            replica.topic_partition,
            code.name,
        )
        if replica.leader_epoch != proposal.leader_epoch:
            return
        is_open = self._open.get(replica) is proposal.state
        if code in DEFINITE:
            self._open.pop(replica, None)
        else:
            self._open[replica] = proposal.state
        replica.in_sync_refused(code, now, proposal.state, is_open=is_open)
        state = None if replica.leader is None else replica.leader.in_sync
        if isinstance(state, Withdrawing) and state is not proposal.state:
            self.propose(replica, now)  # it was withdrawn just now
        elif code not in DEFINITE or isinstance(proposal.state, Withdrawing):
            # One of us has old metadata. Mostly it is this broker, and what it is about to hear
            # ends the proposal; but it must not be stuck if not (KAFKA-2729).
            self._ask_again(replica, now)

    def _ask_again(self, replica: HostedReplica, now: Instant) -> None:
        self._to_ask_again[replica] = self._timers.schedule(
            now.monotonic_ms + _ASK_AGAIN_MS, lambda at: self._propose_again(replica, at)
        )

    def _propose_again(self, replica: HostedReplica, now: Instant) -> None:
        if self._to_ask_again[replica].callback is None:
            del self._to_ask_again[replica]
        self.propose(replica, now)

    def _failed(self, reason: str, now: Instant) -> None:
        """The whole request is to be repeated: its outcome is unknown, or there is none."""
        if not self._failures:
            log.info("Proposed in-sync replicas will be proposed again: %s", reason)
        self._give_up()
        self._begin_pause(now)

    def _give_up(self) -> None:
        sent, self._sent = self._sent, {}
        self._open.update((item.replica, item.state) for item in sent.values())
        self._attempt += 1
        # In front of what was proposed meanwhile; the newest state of each is taken anyway.
        self._wanted = {**dict.fromkeys(item.replica for item in sent.values()), **self._wanted}

    def _begin_pause(self, now: Instant) -> None:
        pause_ms = min(_PAUSE_MAX_MS, _PAUSE_MIN_MS << min(self._failures, 10))
        self._failures += 1
        self._pause = self._timers.schedule(now.monotonic_ms + pause_ms, self._resume)

    def _resume(self, now: Instant) -> None:
        del now
        self._end_pause()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
