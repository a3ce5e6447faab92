"""A member of a consumer group of the classic protocol, without socket, thread or clock.

    OUT ── subscribe ──> REVOKING ── revoked ──> JOIN_DUE ──> JOINING ──> STABLE
                          ^   (nothing to give up: at once)                 │
                          └── the group rebalances, subscription or topics change

A driver calls `step` when something may have changed and at `wake_ms`, sends the requests that it
gets, brings their outcomes (`answered`) and acts on `events`. Drivers are `group_thread` (threads),
`aio.group_task` (asyncio) and `sim.clients.group_member`. The coordinator is found by
`coordinator_client`; the way into a generation is that of `group_join`, offsets are the affair of
`group_offsets`.

Theory: what a member does after each refusal is what Kafka's `AbstractCoordinator` and
`ConsumerCoordinator` do. Partitions that it owns are given up before it joins again (eager), or
when the next assignment lacks them, whereupon it joins once more (cooperative, KIP-429). A member
that is not known any more has lost them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from random import Random
from typing import Any

from strandline.client.consumer_protocol import NO_GENERATION
from strandline.client.coordinator_client import Ask, CoordinatorClient, Outcome, sentence
from strandline.client.group_errors import AT_ONCE, UNKNOWN, WAIT
from strandline.client.group_events import (
    GenerationJoined,
    GroupEvent,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_heartbeat import Heartbeat
from strandline.client.group_join import GroupJoin, Synced
from strandline.client.group_leader import GroupLeader
from strandline.client.group_observer import MemberObserver
from strandline.client.group_offsets import CommitResult, GroupOffsets, PendingCommit
from strandline.client.group_requests import NO_MEMBER, Committed, Membership, leave_request
from strandline.client.group_settings import GroupSettings
from strandline.client.group_subscription import GroupSubscription
from strandline.client.router import Router
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.types import BrokerId, TopicPartition


class Phase(Enum):
    """See the module."""

    OUT = auto()
    REVOKING = auto()
    JOIN_DUE = auto()
    JOINING = auto()
    STABLE = auto()
    OVER = auto()
    """It has left for good, or has failed."""


class GroupMember:
    """See the module. Times are milliseconds of a clock that never goes back."""

    def __init__(
        self,
        settings: GroupSettings,
        router: Router,
        random: Random,
        observer: MemberObserver | None = None,
    ) -> None:
        self.phase = Phase.OUT
        self.membership = Membership(settings.group, settings.instance_id)
        self.is_leaving = False
        """Whether a goodbye has no answer yet."""
        self._settings = settings
        self._observer = observer or MemberObserver()
        self._coordinator = coordinator = CoordinatorClient(settings, router, random)
        coordinator.failed = self.fail

        self._backoff = settings.backoff(random)
        self._offsets = GroupOffsets(self, coordinator, settings, random)
        self._heartbeat = Heartbeat(settings, coordinator, self._beaten)
        self._leader = GroupLeader(coordinator, settings.backoff(random))
        self._join = GroupJoin(self, settings, coordinator, self._leader, self._observer)
        self._subscription = GroupSubscription(settings)
        self._events: list[GroupEvent] = []
        self._reason = ""
        """Why it joins, which the coordinator logs."""
        self._rejoin_reason: str | None = None
        """Why it is to join once more as soon as it is through with what it does."""
        self._retry_at_ms = 0
        self._polled_ms = 0
        self._is_asking_to_join = False
        """Whether a JoinGroup is under way."""
        self._is_stalled = False
        """Whether it left because the program did not poll; it comes back with the next one."""

    # -- The program -------------------------------------------------------------------------

    @property
    def coordinator(self) -> BrokerId | None:
        """Who coordinates the group; None while that is not known."""
        return self._coordinator.broker

    @property
    def trouble(self) -> ProtocolError | None:
        """Why the coordinator does not answer; what is due is tried again."""
        return self._coordinator.trouble

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """What was assigned to the member, those included whose offsets are not known yet."""
        return self._subscription.owned

    @property
    def is_in_generation(self) -> bool:
        """Whether the coordinator has let it into a generation, and it is not known to be out."""
        return self.membership.generation != NO_GENERATION

    def subscribe(self, topics: Iterable[str], now_ms: int, pattern: str | None = None) -> None:
        """Read these topics as a member, and no others. The next `step` begins to join. There are
        no patterns in this protocol."""
        del pattern
        self._set_time(now_ms)
        is_new = self._subscription.change(topics)
        if self.phase is Phase.OUT and not self._is_stalled:
            self._polled_ms = now_ms
            self._begin("the member is new")
        elif is_new:
            self._rejoin_reason = "the subscription has changed"

    def enforce_rebalance(self, reason: str) -> None:
        """Have the group divide its partitions anew (KIP-568)."""
        self._rejoin_reason = reason

    def polled(self, now_ms: int) -> None:
        """The program is alive: to be called at least each `max_poll_interval_ms`. A call that
        comes later finds that the member has left, whether or not `step` was called meanwhile."""
        self._set_time(now_ms)
        self._maybe_leave_for_silence()
        self._polled_ms = now_ms
        if self._is_stalled:
            self._is_stalled = False
            if self.phase is Phase.OUT:
                self._begin("the program polls again")

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        then: Callable[[CommitResult], None],
        now_ms: int,
        deadline_ms: int | None = None,
        *,
        is_last: bool = False,
    ) -> PendingCommit:
        """Commit offsets; `then` hears once what became of it. Until a deadline it is tried again
        after what may pass; without one it is tried once. With `is_last` the partitions are to be
        given up: that does not wait for topics that are gone. What is committed before `revoked` is
        called reaches the coordinator before the member joins again."""
        self._set_time(now_ms)
        self._maybe_leave_for_silence()
        return self._offsets.commit(offsets, then, deadline_ms, is_last=is_last)

    def revoked(self, now_ms: int) -> None:
        """The driver has done what `PartitionsRevoked` asks for."""
        self._set_time(now_ms)
        if self.phase is Phase.REVOKING:
            if self.owned and self.membership.generation == NO_GENERATION:
                self._begin(self._reason)  # the rest has been lost meanwhile
            else:
                self._join_at(now_ms)

    def leave(self, now_ms: int, reason: str, *, also_static: bool = False) -> None:
        """Go for good. Static members say so only if told: they are to come back (KIP-345)."""
        self._set_time(now_ms)
        if self.phase is not Phase.OVER:
            self._say_goodbye(reason, also_static=also_static)
            self._end()

    # -- The driver --------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Ask]:
        """Do what is due; the requests to send, in this order."""
        self._set_time(now_ms)
        if self.phase not in (Phase.OUT, Phase.OVER):
            self._go_on()
        return self._coordinator.take()

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> None:
        """What became of a request: each one gets exactly one outcome. Call `step` afterwards."""
        self._set_time(now_ms)
        ask.then(outcome)

    def events(self) -> list[GroupEvent]:
        """What has happened since this was called last."""
        events, self._events = self._events, []
        return events

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do, if nothing happens before; None: never."""
        if self.phase in (Phase.OUT, Phase.OVER):
            return None
        times = [self._coordinator.wake_ms, self._offsets.wake_ms, self._leader.wake_ms]
        if self.membership.member_id != NO_MEMBER:
            times.append(self._polled_ms + self._settings.max_poll_interval_ms)
        if self._coordinator.broker is not None:
            if self.phase is Phase.JOIN_DUE:
                times.append(self._retry_at_ms)
            if self._beats:
                times.append(self._heartbeat.wake_ms)
        return min((each for each in times if each is not None), default=None)

    def _set_time(self, now_ms: int) -> None:
        self._coordinator.now_ms = now_ms

    def _go_on(self) -> None:
        coordinator = self._coordinator
        self._maybe_leave_for_silence()
        coordinator.look_up()
        if self.phase is Phase.STABLE:
            if self._leader.sees_other_topics():
                self._rejoin_reason = "the partitions of the topics have changed"
            if self._rejoin_reason is not None:
                self._begin(self._rejoin_reason)
        self._offsets.step()
        if coordinator.broker is not None:
            if self._beats:
                self._heartbeat.step(self.membership)
            if self.phase is Phase.JOIN_DUE and coordinator.now_ms >= self._retry_at_ms:
                self._send_join()
        self._leader.refresh()

    # -- Joining -----------------------------------------------------------------------------

    @property
    def _beats(self) -> bool:
        """Whether heartbeats are due. While a JoinGroup is under way, that keeps it alive."""
        return (
            self.is_in_generation and self.phase is not Phase.OVER and not self._is_asking_to_join
        )

    def _begin(self, reason: str) -> None:
        """Join, after what must be given up before is given up."""
        self._reason = reason
        is_lost = self.membership.generation == NO_GENERATION
        self._give_up(self._subscription.to_give_up(is_lost=is_lost), is_lost=is_lost)

    def _give_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Take these from the program, if it has any of them, and join then."""
        self._join.cancel()
        self._offsets.forget(partitions)
        announced = self._subscription.give_up(partitions)
        if announced:
            self.phase = Phase.REVOKING
            self._events.append(PartitionsRevoked(announced, is_lost))
        else:
            self._join_at(self._coordinator.now_ms)

    def _join_at(self, at_ms: int) -> None:
        self.phase = Phase.JOIN_DUE
        self._retry_at_ms = at_ms

    def _send_join(self) -> None:
        self.phase = Phase.JOINING
        self._is_asking_to_join = True
        self._rejoin_reason = None
        protocols = self._subscription.protocols(self.membership.generation)
        self._join.begin(protocols, self._reason)

    def become(self, member_id: str, generation: int) -> None:
        """See `Joiner`."""
        settings = self._settings
        self.membership = Membership(settings.group, settings.instance_id, member_id, generation)
        self._is_asking_to_join = False
        if generation != NO_GENERATION:
            self._backoff.reset()
            self._heartbeat.begin()

    def synced(self, result: Synced) -> None:
        """See `Joiner`."""
        self.phase = Phase.STABLE
        self._heartbeat.heard()
        who = self.membership
        is_leader = result.leader == who.member_id
        added, gone = self._subscription.assigned(result.owned, who.generation)
        self._events.append(
            GenerationJoined(
                who.generation, who.member_id, is_leader, result.assignor, result.owned
            )
        )
        self._offsets.want(added)
        if gone:
            self._reason = "the member has given partitions up"
            self._give_up(gone, is_lost=False)

    def refused(self, code: ErrorCode) -> None:
        """See `Joiner`."""
        self._is_asking_to_join = False
        self._observer.refused(code.name)
        if code in WAIT:
            self._join_at(self._coordinator.now_ms + self._backoff.next_ms())
        elif code in AT_ONCE:
            self._join_at(self._coordinator.now_ms)
        elif code in UNKNOWN:
            self._begin_anew(code)
        else:
            self.fail(sentence(code, self._settings.group))

    # -- Being a member ----------------------------------------------------------------------

    def _beaten(self, who: Membership, code: ErrorCode) -> None:
        """The coordinator answered a heartbeat, perhaps one from before the last rebalance."""
        if code is not ErrorCode.NONE:
            self._observer.refused(code.name)
        if who != self.membership or self.phase is Phase.OVER or code in WAIT:
            return
        if code is not ErrorCode.NONE:
            self._membership_refused(code)

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """See `OffsetsOwner`."""
        if generation == self.membership.generation and self.phase is not Phase.OVER:
            self._membership_refused(code)

    def _membership_refused(self, code: ErrorCode) -> None:
        """What a member does when it learns that it is none as it believes."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase is Phase.STABLE:
                self._rejoin_reason = "the group rebalances"
        elif code not in UNKNOWN:
            self.fail(sentence(code, self._settings.group))
        elif not self._is_asking_to_join:  # else the answer to that will say it
            self._begin_anew(code)

    def _begin_anew(self, code: ErrorCode) -> None:
        """The coordinator does not know the member, or not in this generation: it has lost what it
        owned."""
        is_unknown = code is ErrorCode.UNKNOWN_MEMBER_ID
        self.become(NO_MEMBER if is_unknown else self.membership.member_id, NO_GENERATION)
        if self.phase is not Phase.REVOKING:
            self._begin(f"the coordinator answered {code.name}")

    def offsets_asked(self, partitions: Iterable[TopicPartition]) -> None:
        """See `OffsetsOwner`."""
        self._observer.offsets_asked(self.membership, partitions)

    def offsets_found(self, offsets: Mapping[TopicPartition, Committed | None]) -> None:
        """See `OffsetsOwner`."""
        self._observer.offsets_told(self.membership, offsets)
        self._subscription.announce(offsets)
        self._events.append(PartitionsAssigned(offsets))

    # -- Going -------------------------------------------------------------------------------

    def _maybe_leave_for_silence(self) -> None:
        """Leave if the program does not poll, so that others get what it does not read."""
        due_ms = self._polled_ms + self._settings.max_poll_interval_ms
        if self.membership.member_id == NO_MEMBER or self._coordinator.now_ms < due_ms:
            return
        self._say_goodbye("the program did not poll within max.poll.interval.ms")
        self._is_stalled = True
        self._join.cancel()
        self._leader.resign()
        self.become(NO_MEMBER, NO_GENERATION)
        self._offsets.fail_commits()
        if self.phase is not Phase.REVOKING:
            self.phase = Phase.OUT

    def _say_goodbye(self, reason: str, *, also_static: bool = False) -> None:
        who = self.membership  # whatever is answered, the coordinator finds out that it is gone
        is_heard = who.member_id != NO_MEMBER and self._coordinator.broker is not None
        if is_heard and (who.instance_id is None or also_static):
            self.is_leaving = True
            self._coordinator.ask(
                ApiKey.LEAVE_GROUP,
                lambda version: leave_request(who, reason, version),
                self._goodbye_heard,
            )

    def _goodbye_heard(self, code: ErrorCode, answer: Any) -> None:
        del code, answer
        self.is_leaving = False

    def fail(self, error: ProtocolError) -> None:
        """See `OffsetsOwner`."""
        if self.phase is not Phase.OVER:
            self._events.append(MemberFailed(error))
            self._end()

    def _end(self) -> None:
        self.phase = Phase.OVER
        self._join.cancel()
        self._leader.resign()
        self.become(NO_MEMBER, NO_GENERATION)
        self._offsets.fail_commits()
