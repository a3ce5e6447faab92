"""Checks the answers that all members of a group got against the rules of groups (I-39).

Members tell this watch what they commit, what was acknowledged, what they fetch, and which
generation they were given what in. All of it is judged so that a coordinator that does not know
yet that it is none (it was paused, say) may answer from memory, as in Kafka: only what a true
coordinator must have written first is held against it.

- The first answer to a SyncGroup of a generation comes after the generation was written. So its
  number is higher than that of all whose first answer was known when the question was put.
- In one generation, one member owns a partition, and one member leads.
- Groups with members of the consumer protocol have epochs instead, see `tenures`. A tenure stands
  for the generation below.
- The owner of a partition in generation g fetches at least the offset that earlier generations have
  committed with an acknowledgement, or fetched, and none that no member ever tried to commit. (What
  one coordinator has answered, its successor must have.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.client.consumer_group.assignment import OwnedPartition
from strandline.client.consumer_protocol import NO_GENERATION
from strandline.client.group_observer import MemberObserver
from strandline.client.group_requests import Committed, Membership
from strandline.errors import ErrorCode
from strandline.sim.clients.client import Finding
from strandline.sim.clients.cluster import Cluster
from strandline.sim.clients.tenures import NONE, Standing, Tenures, epoch_of
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.lookups import Leadership
from strandline.sim.schedule import Schedule
from strandline.types import BrokerId, TopicPartition


@dataclass(slots=True)
class _Generation:
    leader: str
    owners: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Commits:
    """The committed offsets of one partition."""

    tried: dict[int, None] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Highest offset by generation that was acknowledged, or fetched by a member."""
    unknown: dict[int, int] = field(default_factory=dict)
    """Lowest offset by generation whose commit had no definite outcome: it may still come, behind
    one that was acknowledged, until the next generation begins."""
    is_forgotten: bool = False
    """Whether its reader has jumped, so that offsets may go back."""


@dataclass(slots=True)
class _Group:
    generations: dict[int, _Generation] = field(default_factory=dict)
    commits: dict[TopicPartition, _Commits] = field(default_factory=dict)
    newest: int = -1
    has_static: bool = False
    tenures: Tenures | None = None
    """Of a group that has members of the consumer protocol."""


class GroupWatch:
    """See the module. One per run."""

    def __init__(self, schedule: Schedule) -> None:
        self.findings: list[Finding] = []
        self._schedule = schedule
        self._groups: dict[str, _Group] = {}
        self._deleted: dict[str, None] = {}

    # -- generations -------------------------------------------------------------------------

    def has_static(self, group: str) -> None:
        """A group has static members: one that comes back leads on under another id (KIP-345)."""
        self._group(group).has_static = True

    def has_epochs(self, group: str) -> None:
        """A group has members of the consumer protocol, perhaps beside classic ones."""
        state = self._group(group)
        state.tenures = state.tenures or Tenures()

    def tenures(self, group: str) -> Tenures | None:
        """The owners of partitions by epoch; None in groups of classic members only."""
        return self._group(group).tenures

    def owned(self, group: str, epoch: int, member: str, owned: Iterable[TopicPartition]) -> None:
        """A member got these partitions assigned in that epoch."""
        tenures = self._group(group).tenures
        for at, owner in () if tenures is None else tenures.owned(epoch, member, owned):
            self._found(
                f"In epoch {epoch_of(epoch)} of group {group} both {owner} and {member} own the "
                "partition",
                at,
            )

    def newest(self, group: str) -> int:
        """The newest generation whose first answer is known: ask before a SyncGroup is sent."""
        return self._group(group).newest

    def synced(
        self,
        group: str,
        generation: int,
        *,
        member: str,
        leader: str,
        owned: Iterable[TopicPartition],
        newest_before: int,
    ) -> None:
        """A member was given its part of a generation; `newest_before` is from when it asked."""
        state = self._group(group)
        known = state.generations.get(generation)
        if known is None:
            known = state.generations[generation] = _Generation(leader)
            if generation <= newest_before:
                self._found(
                    f"Group {group} began generation {generation} although {newest_before} had "
                    "begun before"
                )
        elif known.leader != leader and not state.has_static:
            self._found(
                f"Generation {generation} of group {group} is led by {known.leader} and by {leader}"
            )
        state.newest = max(state.newest, generation)
        for at in owned:
            owner = known.owners.setdefault(at, member)
            if owner != member:
                self._found(
                    f"In generation {generation} of group {group} both {owner} and {member} own "
                    "the partition",
                    at,
                )

    # -- offsets -----------------------------------------------------------------------------

    def committing(self, group: str, at: TopicPartition, offset: int) -> None:
        """A member is about to commit an offset."""
        self._commits(group, at).tried[offset] = None

    def committed(self, group: str, at: TopicPartition, generation: int, offset: int) -> None:
        """Its commit was acknowledged."""
        acknowledged = self._commits(group, at).acknowledged
        acknowledged[generation] = max(offset, acknowledged.get(generation, -1))

    def committed_as(self, group: str, at: TopicPartition, as_what: Standing, offset: int) -> None:
        """The same, in a group whose members have epochs."""
        if as_what.newest > as_what.tenure and at.topic not in self._deleted:
            self._found(
                f"Group {group} took the offset {offset} of who has owned the partition since epoch"
                f" {epoch_of(as_what.tenure)}, after another member got it in epoch"
                f" {epoch_of(as_what.newest)}",
                at,
            )
        self.committed(group, at, as_what.tenure, offset)

    def forget(self, group: str, at: TopicPartition) -> None:
        """The reader has jumped back, honestly (the topic was made anew, or its log was cut)."""
        self._commits(group, at).is_forgotten = True

    def forget_topic(self, topic: str) -> None:
        """The topic may be deleted from now on. Its committed offsets go with it, whenever each
        coordinator hears of that; so nothing can be said of them any more."""
        self._deleted[topic] = None

    def commit_unknown(self, group: str, at: TopicPartition, generation: int, offset: int) -> None:
        """The outcome of a commit is unknown: the offset may be stored or not."""
        unknown = self._commits(group, at).unknown
        unknown[generation] = min(offset, unknown.get(generation, offset))

    def committed_partitions(self, group: str) -> list[TopicPartition]:
        """The partitions of which the group must have stored something."""
        commits = self._group(group).commits
        return [at for at, each in commits.items() if each.acknowledged]

    def floor(self, group: str, at: TopicPartition, generation: int) -> int:
        """The least committed offset that the owner of a partition must get, if it fetches now."""
        commits = self._commits(group, at)
        last = max((each for each in commits.acknowledged if each < generation), default=-1)
        if last < 0:
            return -1
        late = [offset for each, offset in commits.unknown.items() if last <= each < generation]
        return min([commits.acknowledged[last], *late])

    def fetched(
        self, group: str, at: TopicPartition, offset: int, *, floor: int, generation: int
    ) -> None:
        """A member of that generation was told a committed offset (-1: none); `floor` is from when
        it asked."""
        commits = self._commits(group, at)
        if commits.is_forgotten or at.topic in self._deleted:
            return
        if offset < floor:
            self._found(
                f"Group {group} was told the committed offset {offset} after {floor} had been "
                "acknowledged or told",
                at,
            )
        elif offset >= 0:
            self.committed(group, at, generation, offset)
        if offset >= 0 and offset not in commits.tried:
            self._found(
                f"Group {group} was told the offset {offset}, which no member committed", at
            )

    # -- parts -------------------------------------------------------------------------------

    def _group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        return group

    def _commits(self, group: str, at: TopicPartition) -> _Commits:
        commits = self._group(group).commits
        found = commits.get(at)
        if found is None:
            found = commits[at] = _Commits()
        return found

    def _found(self, what: str, at: TopicPartition | None = None) -> None:
        partition = None if at is None else str(at)
        self.findings.append(Finding("I-39", what, self._schedule.now_us, partition))


class WatchedMember(MemberObserver):
    """Tells the watch what one member is told, and counts what it is refused.

    Who answered the SyncGroup of a generation must know what was committed before it, and so must
    who is the coordinator by the metadata, from the question until the answer. If the member asks
    another broker for the offsets, it may have found one that was the coordinator before and does
    not know yet that it is none.
    """

    def __init__(self, world: ClientWorld, watch: GroupWatch, group: str, cluster: Cluster) -> None:
        self._world = world
        self._watch = watch
        self._group = group
        self._cluster = cluster
        self._newest = -1
        self._synced_with: BrokerId | None = None
        self._owned: dict[TopicPartition, BrokerId | None] = {}
        """The partitions of a member with epochs, and the broker that assigned them."""
        self._as_what: dict[TopicPartition, int] = {}
        """In which generation or tenure the committed offsets are asked for."""
        self._floors: dict[TopicPartition, int] = {}
        """The least that must be told, by who granted the partition or is the true coordinator."""
        self._granted: set[TopicPartition] = set()
        """What who is asked has granted."""
        self._coordinates: Leadership | None = None
        """As what who is asked is the coordinator by the metadata."""
        self._newest_epoch = NONE
        """In a group with epochs: the newest one when the member asked to join."""
        self._base: int | None = None
        """What to add to its epochs; None if that is not known."""
        self._base_of = ""
        """The member id under which it has joined."""

    def joining(self, who: Membership) -> None:
        """See `MemberObserver`."""
        tenures = self._watch.tenures(self._group)
        if tenures is not None:
            self._newest_epoch = tenures.newest_epoch
        if who.generation == NO_GENERATION:
            self._base, self._base_of = None, ""

    def syncing(self, who: Membership) -> None:
        """See `MemberObserver`."""
        del who
        self._newest = self._watch.newest(self._group)

    def synced(self, who: Membership, leader: str, owned: Sequence[TopicPartition]) -> None:
        """See `MemberObserver`."""
        self._synced_with = self._cluster.router.coordinator(self._group)
        if self._watch.tenures(self._group) is not None:
            self._owns(who, owned)
            return
        self._watch.synced(
            self._group,
            who.generation,
            member=_name_of(who),
            leader=leader,
            owned=owned,
            newest_before=self._newest,
        )

    def reconciled(
        self,
        who: Membership,
        reported: Sequence[OwnedPartition],
        owned: Sequence[TopicPartition],
    ) -> None:
        """See `MemberObserver`."""
        del reported
        self._owns(who, owned)

    def _owns(self, who: Membership, owned: Sequence[TopicPartition]) -> None:
        broker = self._cluster.router.coordinator(self._group)
        self._owned = {at: self._owned.get(at, broker) for at in owned}
        tenures = self._watch.tenures(self._group)
        if tenures is None or who.generation == NO_GENERATION:
            return
        if self._base_of != who.member_id:
            self._base_of = who.member_id
            name = _name_of(who)
            self._base = tenures.base(who.generation, name, owned, self._newest_epoch)
        if self._base is not None:
            self._watch.owned(self._group, self._number(who), _name_of(who), owned)

    def _number(self, who: Membership) -> int:
        return NONE if who.generation == NO_GENERATION else (self._base or 0) + who.generation

    def standing(self, who: Membership, at: TopicPartition) -> Standing:
        """As what the member commits an offset of this partition now."""
        tenures = self._watch.tenures(self._group)
        if tenures is None:
            return Standing(who.generation, NONE)
        if who.generation != NO_GENERATION and self._base is None:
            return Standing(NONE, NONE)
        return Standing(tenures.of(at, self._number(who), _name_of(who)), tenures.newest(at))

    def offsets_asked(self, who: Membership, partitions: Iterable[TopicPartition]) -> None:
        """See `MemberObserver`."""
        broker = self._cluster.router.coordinator(self._group)
        has_epochs = self._watch.tenures(self._group) is not None
        self._coordinates = None
        if broker is not None:
            self._coordinates = self._world.coordinates(broker, self._group)
        self._as_what, self._floors, self._granted = {}, {}, set()
        for at in partitions:
            granted_by = self._owned.get(at) if has_epochs else self._synced_with
            if broker == granted_by:
                self._granted.add(at)
            self._as_what[at] = as_what = self.standing(who, at).tenure
            self._floors[at] = self._watch.floor(self._group, at, as_what)

    def offsets_told(
        self, who: Membership, offsets: Mapping[TopicPartition, Committed | None]
    ) -> None:
        """See `MemberObserver`."""
        del who
        led = self._coordinates
        is_true = led is not None and led == self._world.coordinates(led.broker_id, self._group)
        for at, stored in offsets.items():
            floor = self._floors[at] if is_true or at in self._granted else -1
            if floor >= 0:
                self._cluster.counters["committed offset with a floor"] += 1
            self._watch.fetched(
                self._group,
                at,
                -1 if stored is None else stored.offset,
                floor=floor,
                generation=self._as_what[at],
            )

    def refused(self, code: str) -> None:
        """See `MemberObserver`. A member that is not known may have asked to join already, under
        its old id: which group took it in is not known before it is told more."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID.name:
            self._base_of = ""
        self._cluster.counters[f"group {code}"] += 1


def _name_of(who: Membership) -> str:
    """The member's identity in the group, which outlives a rejoin."""
    return who.instance_id or who.member_id
