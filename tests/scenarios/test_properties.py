"""Whatever happens to three replicas, in whatever order: no invariant breaks, and they recover.

Random events are played in the world of the scenarios, on real nodes, and the simulator's checkers
look at each of them. Then everything is healed, and all replicas must be in sync and equal within a
few rounds (I-49). What was acknowledged was committed, and the checkers see to it that every leader
has what was committed (I-28).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.replication.in_sync import Committed
from strandline.replication.policies import DEFAULT, AnswerWatermark, Policies
from strandline.sim.scenarios.controller import Rules
from strandline.sim.scenarios.replica import Replica
from strandline.sim.scenarios.world import World
from strandline.sim.scenarios.writes import Write

NAMES = "ABC"
ALL = Write(acks="all")
ONE = Write(acks="1")

ROUNDS_MAX = 12
"""In which all replicas must be in sync again."""

Event = tuple[str, int, int]

_KINDS = (
    # Often what makes progress, seldom what breaks things.
    *["produce"] * 6,
    *["fetch"] * 12,
    *["alter"] * 4,
    *["controller"] * 3,
    *["start", "heal"] * 3,
    "fetch-one",
    "hold-reply",
    "deliver",
    *["wait"] * 4,
    *["lose-reply"] * 3,
    *["prefer"] * 3,
    *["hold-alter", "reply-alter"] * 2,
    "kill",
    "stop",
    "power-cut",
    "cut",
    "expire",
    "shut-down",
    "delete",
)

events = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.integers(0, 2), st.integers(0, 9)),
    min_size=5,
    max_size=70,
)


@dataclass(frozen=True)
class Profile:
    """What a run may contain."""

    rules: Rules
    power_cuts_max: int = 0
    policies: Policies = DEFAULT


class Run:
    """Plays events, leaving out those that cannot happen in the state that they meet."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.world = World(
            NAMES,
            rules=profile.rules,
            policies=profile.policies,
            settings={"internal.segment.bytes": "300"},
        )
        self._values = 0
        self._power_cuts = 0
        self._wants_all: set[str] = set()

    def play(self, kind: str, which: int, amount: int) -> None:
        """One event for the replica number `which`."""
        name = NAMES[which]
        getattr(self, f"_{kind.replace('-', '_')}")(name, self.world.replicas[name], amount)
        self.end_step()

    def end_step(self) -> None:
        """Have everything checked."""
        self.world.end_step()
        assert not self.world.violations, self.world.violations
        self.world.events.clear()
        acked = {v for v in self._wants_all if self.world.outcomes[v][0] == "@"}
        lost = {name for value in acked for name in value.split("+")} - self.world.committed
        assert not lost, f"{lost} were acknowledged and never committed"

    def _produce(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running and replica.leader is not None:
            values = [f"v{self._values + i}" for i in range(1 + amount % 3)]
            self._values += len(values)
            if amount < 8:
                self._wants_all.add("+".join(values))
            self.world.produce(name, ["+".join(values)], ALL if amount < 8 else ONE)

    def _fetch(self, name: str, replica: Replica, amount: int) -> None:
        if replica.leader_name is not None:
            self.world.fetch(name)

    def _fetch_one(self, name: str, replica: Replica, amount: int) -> None:
        if replica.leader_name is not None:
            self.world.fetch(name, one_batch=True)

    def _lose_reply(self, name: str, replica: Replica, amount: int) -> None:
        if replica.leader_name is not None:
            self.world.fetch(name, mode="lose-reply")

    def _hold_reply(self, name: str, replica: Replica, amount: int) -> None:
        if replica.leader_name is not None:
            self.world.fetch(name, mode="hold-reply")

    def _deliver(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running and self.world.followers.has_held(name):
            self.world.followers.deliver(name)

    def _alter(self, name: str, replica: Replica, amount: int) -> None:
        self.world.alter(name)

    def _hold_alter(self, name: str, replica: Replica, amount: int) -> None:
        if replica.leader is not None and not isinstance(replica.leader.in_sync, Committed):
            self.world.alter(name, hold_reply=True)

    def _reply_alter(self, name: str, replica: Replica, amount: int) -> None:
        if self.world.has_held_alter(name):
            self.world.reply_alter(name)

    def _controller(self, name: str, replica: Replica, amount: int) -> None:
        self.world.run_controller()

    def _wait(self, name: str, replica: Replica, amount: int) -> None:
        self.world.wait(amount * 4_000 + 1)

    def _start(self, name: str, replica: Replica, amount: int) -> None:
        if not replica.machine.is_running:
            self.world.start(name)

    def _kill(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running:
            self.world.kill(name)

    def _stop(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running and not self.world.hears_nothing(name):
            self.world.stop(name)

    def _power_cut(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running and self._power_cuts < self.profile.power_cuts_max:
            self._power_cuts += 1
            log = replica.log
            kept = max(log.log_start_offset, log.log_end_offset - amount)
            self.world.cut_power(name, kept)

    def _cut(self, name: str, replica: Replica, amount: int) -> None:
        self.world.cut(name)

    def _expire(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_cut:
            self.world.expire(name)

    def _heal(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_cut:
            self.world.heal(name)

    def _prefer(self, name: str, replica: Replica, amount: int) -> None:
        self.world.prefer(name)

    def _shut_down(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running and not replica.is_cut:
            self.world.announce_shutdown(name)

    def _delete(self, name: str, replica: Replica, amount: int) -> None:
        if replica.is_running and replica.leader is not None and not replica.is_cut:
            log = replica.log
            self.world.delete_records(name, max(log.log_start_offset, log.high_watermark - amount))

    # -- The end -----------------------------------------------------------------------------

    def recover(self) -> None:
        """No more faults: start, heal, and let all brokers do what they do all the time."""
        world = self.world
        for name, replica in world.replicas.items():
            if world.has_held_alter(name):
                world.reply_alter(name)
            if replica.is_cut or world.hears_nothing(name):
                world.heal(name)
            if replica.is_running and replica.machine.node.membership.is_leaving:
                world.stop(name)
            if not replica.machine.is_running:
                world.start(name)
            self.end_step()
        for _ in range(ROUNDS_MAX):
            was_in_sync = self.is_in_sync
            world.run_controller()
            for _ in range(6):
                for name in NAMES:
                    world.fetch(name)
                    world.alter(name)
                    self.end_step()
            world.wait(10_000)
            self.end_step()
            if was_in_sync:
                return  # and a whole round has left it so, or `check_recovered` fails

    @property
    def is_in_sync(self) -> bool:
        """Whether all replicas are in sync, and end where all is committed."""
        state = self.world.state
        logs = [self.world.replicas[name].log for name in NAMES]
        ends = {end for log in logs for end in (log.log_end_offset, log.high_watermark)}
        return set(state.in_sync) == set(NAMES) and state.leader is not None and len(ends) == 1

    def check_recovered(self) -> None:
        """I-49: all replicas are in sync and have the same log."""
        world = self.world
        assert self.is_in_sync, world.state
        logs = [world.replicas[name].log for name in NAMES]
        first, *others = (world.replicas[name].entries() for name in NAMES)
        start = max(log.log_start_offset for log in logs)
        for other in others:
            assert [e for e in other if e.offset >= start] == [
                e for e in first if e.offset >= start
            ]


PROFILES = [
    Profile(Rules(min_in_sync_replicas=1)),
    Profile(Rules(min_in_sync_replicas=2)),
    Profile(Rules(min_in_sync_replicas=2), policies=Policies(answer_watermark=AnswerWatermark.PRE)),
    Profile(Rules(min_in_sync_replicas=2), power_cuts_max=1),
    Profile(Rules(min_in_sync_replicas=3), power_cuts_max=2),
    Profile(Rules(min_in_sync_replicas=1, allows_unclean=True), power_cuts_max=9),
    Profile(Rules(min_in_sync_replicas=2, allows_unclean=True), power_cuts_max=9),
]


@pytest.mark.parametrize(
    "profile", PROFILES, ids=lambda p: f"{p.rules.min_in_sync_replicas}-{p.power_cuts_max}"
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(script=events)
def test_no_invariant_breaks_and_all_recover(profile: Profile, script: list[Event]) -> None:
    run = Run(profile)
    for event in script:
        run.play(*event)
    run.recover()
    run.check_recovered()
