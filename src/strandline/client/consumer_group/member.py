"""A member of a group of the consumer protocol (KIP-848): its coordinator says what it is to own.

    OUT ── subscribe ──> JOINING ── answer ──> MEMBER <── revoked ── GIVING_UP
                            ^                    │ target lacks what it owns ──^
                            └──── revoked ───────┴── fenced: all of it is lost ┘

Driven as `group_member`, whose events and methods it has. There are no generations in which all
members stop: each has an epoch of its own, and comes by heartbeats from what it owns to its target.
It gives up what is not its own any more, the driver committing before; then it takes what is free,
reports what it owns now, and reads that when the report is acknowledged.

Theory: what a member does after each refusal is what Kafka's `ConsumerMembershipManager` and
`AbstractHeartbeatRequestManager` do. A member keeps its id, which it has drawn itself (KIP-1082),
for as long as it lives. One that is fenced has lost what it owned, and joins again with epoch 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from random import Random
from typing import Any

from strandline.client.consumer_group.assignment import MemberAssignment, OwnedPartition
from strandline.client.consumer_group.heartbeats import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerForm,
    Heartbeats,
    Wish,
    drawn_member_id,
)
from strandline.client.consumer_group.refusals import FENCED, WAIT, failure
from strandline.client.consumer_group.topic_names import TopicNames
from strandline.client.consumer_protocol import NO_GENERATION
from strandline.client.coordinator_client import Ask, CoordinatorClient, Outcome
from strandline.client.group_events import (
    GenerationJoined,
    GroupEvent,
    MemberFailed,
    PartitionsAssigned,
    PartitionsRevoked,
)
from strandline.client.group_observer import MemberObserver
from strandline.client.group_offsets import CommitResult, GroupOffsets, PendingCommit
from strandline.client.group_requests import Committed, Membership
from strandline.client.group_settings import GroupSettings
from strandline.client.router import Router
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, TopicPartition


class Phase(Enum):
    """See the module."""

    OUT = auto()
    JOINING = auto()
    MEMBER = auto()
    GIVING_UP = auto()
    OVER = auto()
    """It has left for good, or has failed."""


class ConsumerGroupMember:
    """See the module. Times are milliseconds of a clock that never goes back."""

    def __init__(
        self,
        settings: GroupSettings,
        router: Router,
        random: Random,
        observer: MemberObserver | None = None,
    ) -> None:
        self.phase = Phase.OUT
        self.membership = Membership(settings.group, settings.instance_id, drawn_member_id(random))
        self.is_leaving = False
        """Whether a goodbye has no answer yet."""
        self._settings = settings
        self._observer = observer or MemberObserver()
        self._coordinator = coordinator = CoordinatorClient(settings, router, random)
        coordinator.failed = self.fail
        self._offsets = GroupOffsets(self, coordinator, settings, random)
        self._heartbeats = Heartbeats(
            ConsumerForm(settings), coordinator, settings.backoff(random), self._beaten
        )
        self._names = TopicNames(coordinator, settings.backoff(random))
        self._assignment = MemberAssignment()
        self._giving_up: tuple[TopicPartition, ...] = ()
        """What the program is asked to give up."""
        self._to_read: dict[TopicPartition, None] = {}
        """What is owned, and is read as soon as the coordinator knows that."""
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._events: list[GroupEvent] = []
        self._told: tuple[int, Sequence[TopicPartition]] | None = None
        """The last epoch and assignment that the driver was told of."""
        self._polled_ms = 0
        self._is_known = False
        """Whether the coordinator may count on it."""
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
        """What the member owns, that included whose offsets are not known yet."""
        return self._assignment.owned

    @property
    def is_in_generation(self) -> bool:
        """Whether the coordinator has taken it in, and it is not known to be out."""
        return self.membership.generation != NO_GENERATION

    def subscribe(self, topics: Iterable[str], now_ms: int, pattern: str | None = None) -> None:
        """Read these topics, and those that match the pattern (of RE2), and no others."""
        self._set_time(now_ms)
        self._topics = tuple(sorted(set(topics)))
        if pattern is not None or self._pattern is not None:
            self._pattern = pattern or ""
        self._heartbeats.soon()
        if self.phase is Phase.OUT and not self._is_stalled:
            self._polled_ms = now_ms
            self._join()

    def polled(self, now_ms: int) -> None:
        """See `GroupMember.polled`."""
        self._set_time(now_ms)
        self._maybe_leave_for_silence()
        self._polled_ms = now_ms
        if self._is_stalled:
            self._is_stalled = False
            if self.phase is Phase.OUT:
                self._join()

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        then: Callable[[CommitResult], None],
        now_ms: int,
        deadline_ms: int | None = None,
        *,
        is_last: bool = False,
    ) -> PendingCommit:
        """See `GroupMember.commit`. An epoch that has become stale meanwhile is tried again as
        well, with the one that the next heartbeat brings."""
        self._set_time(now_ms)
        self._maybe_leave_for_silence()
        return self._offsets.commit(offsets, then, deadline_ms, is_last=is_last)

    def revoked(self, now_ms: int) -> None:
        """The driver has done what `PartitionsRevoked` asks for."""
        self._set_time(now_ms)
        if self.phase is not Phase.GIVING_UP:
            return
        self._assignment.give_up(self._giving_up)
        self._go_on_from_giving_up()

    def leave(self, now_ms: int, reason: str, *, also_static: bool = False) -> None:
        """Go for good. Static members say that they are to come back (KIP-345), unless told."""
        del reason  # the consumer protocol has no place for it
        self._set_time(now_ms)
        if self.phase is not Phase.OVER:
            self._say_goodbye(for_good=also_static)
            self._end()

    # -- The driver --------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Ask]:
        """Do what is due; the requests to send, in this order."""
        self._set_time(now_ms)
        if self.phase not in (Phase.OUT, Phase.OVER):
            self._maybe_leave_for_silence()
            self._coordinator.look_up()
            self._offsets.step()
            if self._coordinator.broker is not None and self._beats:
                self._is_known = True
                sent = self._heartbeats.step(self.membership, self._epoch, self._wish)
                if sent and self._epoch == JOINING:
                    self._observer.joining(self.membership)
            self._names.step()
        return self._coordinator.take()

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> None:
        """What became of a request: each one gets exactly one outcome. Call `step` afterwards."""
        self._set_time(now_ms)
        ask.then(outcome)
        if self.phase is Phase.MEMBER and self._names.have_come:
            self._reconcile()

    def events(self) -> list[GroupEvent]:
        """What has happened since this was called last."""
        events, self._events = self._events, []
        return events

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do, if nothing happens before; None: never."""
        if self.phase in (Phase.OUT, Phase.OVER):
            return None
        times = [self._coordinator.wake_ms, self._offsets.wake_ms, self._names.wake_ms]
        if self._is_known:
            times.append(self._polled_ms + self._settings.max_poll_interval_ms)
        if self._coordinator.broker is not None and self._beats:
            times.append(self._heartbeats.wake_ms)
        return min((each for each in times if each is not None), default=None)

    def _set_time(self, now_ms: int) -> None:
        self._coordinator.now_ms = now_ms

    # -- Being a member ----------------------------------------------------------------------

    @property
    def _beats(self) -> bool:
        """Whether heartbeats are due: not by one that has to tell the program what it lost."""
        return self.phase in (Phase.JOINING, Phase.MEMBER) or (
            self.phase is Phase.GIVING_UP and self.is_in_generation
        )

    @property
    def _epoch(self) -> int:
        return self.membership.generation if self.is_in_generation else JOINING

    @property
    def _wish(self) -> Wish:
        return Wish(self._topics, self._pattern, self._assignment.reported)

    def _join(self) -> None:
        self.phase = Phase.JOINING
        self._heartbeats.begin_anew()

    def _beaten(self, wish: Wish, code: ErrorCode, answer: Any) -> None:
        """The coordinator answered a heartbeat, or did not."""
        if code is not ErrorCode.NONE:
            self._observer.refused(code.name)
        if self.phase in (Phase.OUT, Phase.OVER) or code in WAIT:
            return
        if code in FENCED and self.phase is not Phase.JOINING:
            self._lose_everything()
        elif code in FENCED and code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return  # it tries to join again after a wait
        elif code is not ErrorCode.NONE:
            self.fail(failure(code, answer, self._settings.group))
        else:
            self._take_answer(wish, answer)

    def _take_answer(self, wish: Wish, answer: Any) -> None:
        who = self.membership
        member_id = answer.member_id or who.member_id
        self.membership = replace(who, member_id=member_id, generation=answer.member_epoch)
        if self.phase is Phase.JOINING:
            self.phase = Phase.MEMBER
        if answer.assignment is not None:
            self._assignment.aim(
                OwnedPartition(topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )
        if self._to_read and wish.owned == self._assignment.reported:
            read, self._to_read = list(self._to_read), {}
            self._offsets.want(read)
        self._reconcile()

    def _reconcile(self) -> None:
        """Come nearer to what is to be owned: give up first, then take."""
        if self.phase is not Phase.MEMBER:
            return
        gone = self._assignment.to_give_up()
        if gone:
            self._give_up(gone, is_lost=False)
            return
        taken = self._assignment.take(self._names.name_of)
        self._names.want(self._assignment.unnamed(self._names.name_of))
        if taken:
            self._to_read.update(dict.fromkeys(taken))
            self._heartbeats.soon()
        self._tell()

    def _tell(self) -> None:
        """Tell the driver where the member is now, if that is another place."""
        told = (self.membership.generation, self._assignment.owned)
        if told != self._told:
            self._told = told
            self._observer.reconciled(self.membership, self._assignment.reported, self.owned)
            who = self.membership
            self._events.append(
                GenerationJoined(who.generation, who.member_id, False, "", self.owned)
            )

    def _give_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Take these from the program, as far as it knows of them."""
        self._offsets.forget(partitions)
        for each in partitions:
            self._to_read.pop(each, None)
        self._giving_up = announced = self._assignment.announced(partitions)
        self._assignment.give_up(set(partitions) - set(announced))
        self._told = None
        if announced:
            self.phase = Phase.GIVING_UP
            self._events.append(PartitionsRevoked(announced, is_lost))
        else:
            self._go_on_from_giving_up()

    def _go_on_from_giving_up(self) -> None:
        """What was to be given up is: report that and go on, or join again."""
        if self.is_in_generation:
            self.phase = Phase.MEMBER
            self._heartbeats.soon()
            self._reconcile()
        elif self._assignment.owned:
            self._give_up(self._assignment.owned, is_lost=True)
        elif self._is_stalled:
            self.phase = Phase.OUT
        else:
            self._join()

    def _lose_everything(self) -> None:
        """The member is none any more; what it owns may belong to others."""
        self._be_out()
        if self.phase is not Phase.GIVING_UP:
            self._give_up(self._assignment.owned, is_lost=True)

    def _be_out(self) -> None:
        self.membership = replace(self.membership, generation=NO_GENERATION)
        self._is_known = False
        self._heartbeats.begin_anew()
        self._assignment.lose()
        self._observer.reconciled(self.membership, (), ())
        self._names.want(())

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """See `OffsetsOwner`."""
        del generation
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.fail(failure(code, None, self._settings.group))
        else:
            self._heartbeats.soon()

    def offsets_asked(self, partitions: Iterable[TopicPartition]) -> None:
        """See `OffsetsOwner`."""
        self._observer.offsets_asked(self.membership, partitions)

    def offsets_found(self, offsets: Mapping[TopicPartition, Committed | None]) -> None:
        """See `OffsetsOwner`."""
        self._observer.offsets_told(self.membership, offsets)
        self._assignment.announce(offsets)
        self._events.append(PartitionsAssigned(offsets))

    # -- Going -------------------------------------------------------------------------------

    def _maybe_leave_for_silence(self) -> None:
        """Leave if the program does not poll, so that others get what it does not read."""
        due_ms = self._polled_ms + self._settings.max_poll_interval_ms
        if not self._is_known or self._coordinator.now_ms < due_ms:
            return
        self._say_goodbye(for_good=False)
        self._is_stalled = True
        self._lose_everything()
        self._offsets.fail_commits()

    def _say_goodbye(self, *, for_good: bool) -> None:
        if not self._is_known or self._coordinator.broker is None:
            return
        is_static = self.membership.instance_id is not None
        epoch = LEAVING_FOR_A_WHILE if is_static and not for_good else LEAVING
        self.is_leaving = True
        self._heartbeats.leave(self.membership, epoch, self._goodbye_heard)

    def _goodbye_heard(self) -> None:
        self.is_leaving = False

    def fail(self, error: ProtocolError) -> None:
        """See `OffsetsOwner`."""
        if self.phase is not Phase.OVER:
            self._events.append(MemberFailed(error))
            self._end()

    def _end(self) -> None:
        self.phase = Phase.OVER
        self._be_out()
        self._offsets.fail_commits()
