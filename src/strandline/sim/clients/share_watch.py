"""What the members of share groups are given, put together: what no group may ever do (I-59).

- What was acknowledged for good, and confirmed, is not handed out again by who leads the partition
  then. (A leader that does not know yet that it is deposed hands out what it likes, as in Kafka.)
- One leader does not hand out a record that another member of the group has and may still have.
- Every record that can be read is handed out, again and again until it is accepted, rejected, or
  was handed out too often. (A delivery in an answer that no member heard counts for the broker.)

A member has a record from the answer that brought it until it says what became of it, until its
session ends, or its lock. Whether a session has not ended on the broker's side only a later answer
in it tells; so what two members were given is held against the leader then.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from strandline.sim.clients.client import Finding, Place
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.lookups import Leadership
from strandline.sim.history.operations import (
    Acknowledged,
    Compacted,
    Erased,
    Event,
    Partition,
    Polled,
    Sent,
    Value,
)

INVARIANT: Final = "I-59"
DELIVERIES_MAX: Final = 5
"""Of one record: `share.delivery.count.limit`."""


@dataclass(eq=False, slots=True)
class Hold:
    """A member has a record."""

    member: str
    led: Leadership | None
    until_us: int
    deliveries: int
    """The how-manieth delivery of the record this is."""
    asked_us: int = 0
    """When the fetch that brought it was sent."""
    is_over: bool = False
    suspicions: list[str] = field(default_factory=list)


class ShareWatch:
    """See the module. One per run."""

    def __init__(self, world: ClientWorld) -> None:
        self.findings: list[Finding] = []
        self._world = world
        self._places: dict[tuple[str, Place], None] = {}
        """What groups read."""
        self._done: dict[tuple[str, Place, int], set[Hold]] = {}
        """Who may have ended what is to be done with a record."""
        self.changes = 0
        """How often that was said, or refused: `is_done` stays as it is until the next time."""
        self._settled: dict[tuple[str, Place], dict[int, int]] = {}
        """When it was confirmed that a record is done."""
        self._holds: dict[tuple[str, Place, int], Hold] = {}
        self._unheard: dict[str, list[int]] = {}
        """When members of a group gave up waiting for an answer that may have brought records."""
        self.until = 0
        """How long the history was when members were asked to come to an end."""

    def given(
        self,
        group: str,
        place: Place,
        offset: int,
        hold: Hold,
        *,
        asked_us: int,
        is_newest: bool,
    ) -> None:
        """A member was given a record; `is_newest`: by the leader that there was all the time."""
        if hold.deliveries >= DELIVERIES_MAX:
            self.said(group, place, offset, hold)  # a record is given up after that
        settled_us = self._settled.get((group, place), {}).get(offset)
        if is_newest and settled_us is not None and settled_us <= asked_us:
            self._found(
                f"{hold.member} was given record {offset} after it was confirmed that group {group}"
                " is done with it",
                place,
            )
        other = self._holds.get((group, place, offset))
        now_us = self._world.schedule.now_us
        if (
            other is not None
            and other.member != hold.member
            and other.led is not None
            and other.led == hold.led
            and not other.is_over
            and now_us < other.until_us
        ):
            other.suspicions.append(
                f"{hold.member} was given record {offset} while {other.member} had it"
            )
        hold.asked_us = asked_us
        self._holds[group, place, offset] = hold

    def unheard(self, group: str) -> None:
        """A member does not hear an answer: the records that it brings are delivered all the
        same."""
        self._unheard.setdefault(group, []).append(self._world.schedule.now_us)

    def still_there(self, place: Place, holds: Iterable[Hold]) -> None:
        """An answer came in the session in which these were given: it had not ended meanwhile."""
        for hold in holds:
            for what in hold.suspicions:
                self._found(what, place)
            hold.suspicions.clear()

    def confirmed(self, group: str, place: Place, offsets: Iterable[int]) -> None:
        """It was confirmed that these are accepted, or rejected."""
        settled = self._settled.setdefault((group, place), {})
        for offset in offsets:
            settled.setdefault(offset, self._world.schedule.now_us)

    def said(self, group: str, place: Place, offset: int, hold: Hold) -> None:
        """A member says that it has accepted, or rejected, a record: it may count."""
        self._done.setdefault((group, place, offset), set()).add(hold)
        self.changes += 1

    def refused(self, group: str, place: Place, holds: Mapping[int, Hold]) -> None:
        """What was said of these does not count."""
        self.changes += 1
        for offset, hold in holds.items():
            if hold.deliveries < DELIVERIES_MAX:
                self._done.get((group, place, offset), set()).discard(hold)

    def is_done(self, group: str, place: Place, offset: int) -> bool:
        """Whether a record was given to a member that accepted or rejected it, for all that is
        known, or was given too often."""
        return bool(self._done.get((group, place, offset)))

    def may_be_done(self, group: str, place: Place, offset: int) -> bool:
        """Whether it is done, or may have been given too often, in answers that were not heard."""
        if self.is_done(group, place, offset):
            return True
        last = self._holds.get((group, place, offset))
        deliveries, since_us = (0, 0) if last is None else (last.deliveries, last.asked_us)
        unheard = self._unheard.get(group, ())
        return deliveries + sum(at_us >= since_us for at_us in unheard) >= DELIVERIES_MAX

    def lacking(self, group: str, places: Container[Place]) -> list[tuple[Place, int]]:
        """What was acknowledged to producers in these places, and is not done yet."""
        return [
            (str(event.partition), event.offset)
            for event in self._world.history
            if isinstance(event, Acknowledged)
            and event.offset is not None
            and event.partition in places
            and not self.is_done(group, str(event.partition), event.offset)
        ]

    def missing(
        self,
        history: Sequence[Event],
        last_readers: Iterable[str],
        compacted: Iterable[Compacted] = (),
    ) -> list[Finding]:
        """Records that were acknowledged before members came to an end, can be read in the end,
        and were not done by any of them.

        One that a later one of its key replaces may have been compacted away on the leader that
        gave records, and be there in the end, on another.
        """
        readers = set(last_readers)
        replaced = _replaced(history, {each.partition for each in compacted})
        kept: dict[str, dict[int, object]] = {}
        for event in history:
            if isinstance(event, Polled) and event.consumer in readers:
                kept.setdefault(str(event.partition), {}).update(event.records)
        found = []
        for group, place in self._places:
            there = kept.get(place, {})
            lost = [
                event.offset
                for event in history[: self.until]
                if isinstance(event, Acknowledged)
                and str(event.partition) == place
                and event.offset is not None
                and not self.may_be_done(group, place, event.offset)
                and there.get(event.offset) == event.value
                and event.value not in replaced
            ]
            if lost:
                what = f"Group {group} has not done {len(lost)} records, such as {lost[0]}"
                found.append(Finding(INVARIANT, what, self._world.schedule.now_us, place))
        return found

    def _found(self, what: str, place: Place) -> None:
        self.findings.append(Finding(INVARIANT, what, self._world.schedule.now_us, place))

    def expects(self, group: str, places: Iterable[Place]) -> None:
        """The group reads these: something of each has to be given."""
        for place in places:
            self._places[group, place] = None


def _replaced(history: Sequence[Event], compacted: Container[Partition]) -> set[Value]:
    """The values in compacted partitions behind which another one of their key, or a tombstone,
    may lie."""
    newest: dict[tuple[Partition, Hashable], Value] = {}
    found: set[Value] = set()
    for event in history:
        if isinstance(event, Sent | Erased) and event.partition in compacted:
            before = newest.pop((event.partition, event.key), None)
            if before is not None:
                found.add(before)
            if isinstance(event, Sent):
                newest[event.partition, event.key] = event.value
    return found
