"""The all-knowing checker of a scenario: the invariants of the specification, after every step.

This file knows what was ever committed, and compares all replicas with it and with each other. It
reads the world and changes nothing in it. A broken invariant is noted, not raised: scenarios of
rules that were given up must break certain ones, and say so in their header.

Records may be lost when more machines lost power than the topic's minimum allows, or when an
unclean leader was elected; then the loss is noted as allowed. Logs that diverge never are.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from strandline.replication.in_sync import Committed
from strandline.sim.scenarios.controller import State
from strandline.sim.scenarios.replica import Entry, Replica, broker_id_of, names_of

if TYPE_CHECKING:
    from strandline.replication.leader import Leader
    from strandline.sim.scenarios.leading import Leading
    from strandline.types import Offset


class Reign(NamedTuple):
    """What a leader had at the end of a step."""

    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    is_under_min: bool


class Oracle:
    """`violations` maps the number of each broken invariant to what was first seen of it."""

    def __init__(self, world: Leading) -> None:
        self._world = world
        self.violations: dict[str, str] = {}
        self.known: dict[int, Entry] = {}
        """What is committed, by offset."""
        self.ever: set[str] = set()
        """The values of all records that were committed at any time."""
        self.forgiven: set[Entry] = set()
        self._leaders: dict[int, str] = {}
        self._reigns: dict[str, Reign] = {}
        self._lossy_crashes = 0
        self._unclean = False
        self._before: tuple[int, int] = (0, 0)

    @property
    def allows_loss(self) -> bool:
        """Whether committed records may be gone."""
        minimum = min(self._world.rules.min_in_sync, len(self._world.state.replicas))
        return self._unclean or self._lossy_crashes >= minimum

    # -- What happens ------------------------------------------------------------------------

    def committed(self, replica: Replica) -> None:
        """A leader's high watermark has risen."""
        for entry in replica.entries():
            if entry.offset >= replica.log.high_watermark:
                break
            known = self.known.setdefault(entry.offset, entry)
            self.ever.add(entry.value)
            if known != entry:
                self._violated("I-25", f"{known.value} at {entry.offset} became {entry.value}")

    def leads(self, replica: Replica) -> None:
        """A replica has accepted leadership."""
        holder = self._leaders.setdefault(replica.leader_epoch, replica.name)
        if holder != replica.name:
            self._violated("I-11", f"{holder} and {replica.name} lead epoch {replica.leader_epoch}")
        self._check_complete(replica, replica.entries())

    def elected(self, old: State, new: State, *, is_unclean: bool) -> None:
        """The controller has written another state."""
        self._unclean = self._unclean or is_unclean
        if new.leader_epoch < old.leader_epoch or new.partition_epoch < old.partition_epoch:
            self._violated("I-18", f"{old} became {new}")
        if new.leader is not None and new.leader != old.leader and not is_unclean:
            candidates = {*old.in_sync, *old.eligible}
            if new.leader not in candidates:
                self._violated("I-19", f"{new.leader} leads but was not in {sorted(candidates)}")

    def before_join(self, replica: Replica, leader: Leader, joining: list[str]) -> None:
        """The controller is about to add members to the in-sync set."""
        for name in joining:
            member = self._world.replicas[name]
            progress = leader.progress[broker_id_of(name)]
            needed = max(replica.log.high_watermark, leader.start_offset)
            if (
                not member.is_running
                or not progress.has_fetched
                or progress.broker_epoch != member.broker_epoch
                or member.log.log_end_offset < needed
            ):
                self._violated("I-16", f"{name} joins without all records below {needed}")

    def lossy_crash(self, replica: Replica, kept: Offset) -> None:
        """A machine loses its records from `kept` on."""
        members = {*self._world.state.in_sync, *self._world.state.eligible}
        if kept < replica.log.log_end_offset and replica.name in members:
            self._lossy_crashes += 1

    def truncates(self, replica: Replica, offset: Offset) -> None:
        """A replica is about to drop its records from `offset` on."""
        if replica.leader is not None:
            self._violated("I-10", f"{replica.name} truncates while it leads")
        if replica.name not in self._world.state.in_sync or self.allows_loss:
            return
        for entry in replica.entries():
            if entry.offset >= offset and self.known.get(entry.offset) == entry:
                self._violated("I-24", f"{replica.name} in sync drops committed {entry.value}")

    def before_reconciling(self, replica: Replica) -> None:
        """A follower truncates because the logs diverge."""
        self._before = (replica.log.leader_epochs.latest, replica.log.log_end_offset)

    def after_reconciling(self, replica: Replica) -> None:
        """It has; each round must bring it nearer."""
        after = (replica.log.leader_epochs.latest, replica.log.log_end_offset)
        if not after < self._before:
            self._violated("I-20", f"{replica.name} went from {self._before} to {after}")

    # -- After every step --------------------------------------------------------------------

    def check(self) -> None:
        """Look at everything."""
        running = {n: r for n, r in self._world.replicas.items() if r.is_running}
        entries = {name: replica.entries() for name, replica in running.items()}
        for name, replica in running.items():
            replica.log.check()
            self._check_epochs(replica, entries[name])
            if replica.leader is not None:
                self._check_leader(replica, replica.leader, entries)
            self._check_readable(replica, entries[name])
        for one, other in combinations(running.values(), 2):
            self._check_pair(one, entries[one.name], other, entries[other.name])
        state = self._world.state
        if set(state.eligible) & set(state.in_sync):
            self._violated("I-31", f"{state.eligible} and {state.in_sync} overlap")
        for name, replica in running.items():
            self._check_complete(replica, entries[name])
        self._reigns = {n: _reign(r) for n, r in running.items() if r.leader is not None}

    def _check_epochs(self, replica: Replica, entries: list[Entry]) -> None:
        """I-03: the table of epochs says what the records say."""
        starts: list[tuple[int, int]] = []
        for entry in entries:
            if not starts or entry.leader_epoch > starts[-1][0]:
                starts.append((entry.leader_epoch, entry.offset))
            elif entry.leader_epoch < starts[-1][0]:
                self._violated("I-03", f"{replica.name} has epochs out of order at {entry.offset}")
        table = replica.written_epochs()
        if table and starts and table[0][0] == starts[0][0]:
            # The log may start inside a batch, and a log start that was not written down before a
            # crash comes back lower: then the first epoch does not start just there.
            starts[0] = table[0]
        if table != starts:
            self._violated("I-03", f"{replica.name} has the table {table} for {starts}")

    def _check_leader(
        self, replica: Replica, leader: Leader, entries: dict[str, list[Entry]]
    ) -> None:
        world, log, name = self._world, replica.log, replica.name
        leader.check(log.high_watermark, log.log_end_offset)
        reign, before = _reign(replica), self._reigns.get(name)
        if before is not None and before.leader_epoch == reign.leader_epoch:
            if reign[1] < before[1] or reign[2] < before[2]:
                self._violated("I-10", f"leader {name} went back from {before} to {reign}")
            held = world.policies.strict_min_isr and before.is_under_min and reign.is_under_min
            if held and reign.high_watermark != before.high_watermark:
                self._violated("I-17", f"{name} commits with {leader.in_sync}")
        if leader.leader_epoch == world.state.leader_epoch:
            counted = names_of(leader.in_sync.maximal)
            if not set(world.state.in_sync) <= set(counted):
                self._violated("I-13", f"{name} counts {counted} of {world.state.in_sync}")
        below = {
            entry.offset: entry
            for entry in entries[name]
            if entry.offset < log.high_watermark and entry not in self.forgiven
        }
        for member in world.state.in_sync:
            if member not in entries or not self._is_current(world.replicas[member]):
                continue
            if self.allows_loss:
                break
            held_by = {e.offset: e for e in entries[member]}
            start = world.replicas[member].log.log_start_offset
            if any(held_by.get(offset) != e for offset, e in below.items() if offset >= start):
                self._violated("I-14", f"{member} is in sync but lacks what {name} committed")
        for progress in leader.progress.values():
            follower = world.replicas[names_of((progress.broker_id,))]
            if (
                follower.is_running
                and progress.broker_epoch == follower.broker_epoch
                and progress.log_end_offset > follower.log.log_end_offset
                and follower.leader_epoch <= leader.leader_epoch
            ):
                self._violated("I-15", f"{name} believes that {follower.name} has more: {progress}")

    def _check_readable(self, replica: Replica, entries: list[Entry]) -> None:
        """I-25 for whoever reads from this replica, leader or not."""
        for entry in entries:
            if entry.offset >= replica.log.high_watermark:
                return
            known = self.known.get(entry.offset)
            if known is not None and known != entry and entry not in self.forgiven:
                self._violated(
                    "I-25",
                    f"{replica.name} shows {entry.value} at {entry.offset}, not {known.value}",
                )

    def _check_pair(
        self, one: Replica, first: list[Entry], other: Replica, second: list[Entry]
    ) -> None:
        """I-21 and I-22: two logs agree below a common epoch, and below both high watermarks."""
        start = max(one.log.log_start_offset, other.log.log_start_offset)
        held = {entry.offset: entry for entry in second}
        pairs = [(e, held[e.offset]) for e in first if e.offset in held and e.offset >= start]
        common = [mine.offset for mine, its in pairs if mine.leader_epoch == its.leader_epoch]
        low = min(one.log.high_watermark, other.log.high_watermark)
        for mine, its in pairs:
            if mine == its:
                continue
            what = f"{one.name} has {mine.value} and {other.name} {its.value} at {mine.offset}"
            if common and mine.offset <= common[-1]:
                self._violated("I-21", what)
            if mine.offset < low and not {mine, its} & self.forgiven:
                self._violated("I-22", what)

    def _check_complete(self, replica: Replica, entries: list[Entry]) -> None:
        """I-23 and I-32: leaders and eligible replicas have everything that was committed."""
        state, name = self._world.state, replica.name
        if replica.leader is not None and replica.leader_epoch == state.leader_epoch:
            for entry in self._missing(replica, entries):
                if self.allows_loss:
                    self._world.events.append(f"{entry.value} is lost, as allowed")
                    self.forgiven.add(entry)
                else:
                    self._violated("I-23", f"leader {name} lacks committed {entry.value}")
                del self.known[entry.offset]
        elif name in state.eligible and self._is_current(replica) and not self.allows_loss:
            for entry in self._missing(replica, entries):
                self._violated("I-32", f"eligible {name} lacks committed {entry.value}")

    def _is_current(self, replica: Replica) -> bool:
        """Whether the state speaks of this process, and not of one before a crash.

        Between a restart and the controller's next look it may still name the old one.
        """
        recorded = self._world.state.broker_epochs.get(replica.name)
        return recorded in (replica.broker_epoch, replica.previous_epoch)

    def _missing(self, replica: Replica, entries: list[Entry]) -> list[Entry]:
        held = {entry.offset: entry for entry in entries}
        start = replica.log.log_start_offset
        return [e for o, e in sorted(self.known.items()) if o >= start and held.get(o) != e]

    def _violated(self, number: str, what: str) -> None:
        if number not in self.violations:
            self.violations[number] = what
            self._world.events.append(f"! {number}: {what}")


def _reign(replica: Replica) -> Reign:
    leader = replica.reign
    return Reign(
        leader.leader_epoch,
        replica.log.high_watermark,
        replica.log.log_end_offset,
        not leader.has_min_in_sync and isinstance(leader.in_sync, Committed),
    )
