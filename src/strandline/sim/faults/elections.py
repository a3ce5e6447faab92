"""Leaders that change again and again: by dying, and by being moved about."""

from __future__ import annotations

from typing import Final

from strandline.sim.faults.links import both_ways, clog_all, cut, cut_store
from strandline.sim.faults.processes import check_budget
from strandline.sim.faults.scene import Scene, Skipped
from strandline.sim.faults.targets import End, one_running, state_of
from strandline.sim.faults.verb import Verb
from strandline.sim.plan import Action

_ELECT_AFTER_US: Final = 60_000


def election_storm(scene: Scene, action: Action) -> None:
    """Kill the leader of the partition, again and again."""
    word = f"leader:{action.word(0)}"
    down_us = action.time_us("down", 200_000)

    def strike() -> None:
        try:
            machine = one_running(scene, word)
            check_budget(scene, machine, lossy=False)
        except Skipped:
            return  # there is no leader now, or it must not die: the next try may find one
        scene.expect_end(machine, down_us)
        machine.kill()

    for turn in range(action.number("times", 5)):
        scene.later(turn * action.time_us("every", 300_000), strike)


def leader_dance(scene: Scene, action: Action) -> None:
    """Move the leadership from replica to replica without killing a process.

    The order of the assignment is rotated, which moves no data, and the preferred leader elected.
    With `clog=yes` brokers do not hear each other meanwhile: every one of them gathers records, of
    its own epochs, that no other has (F-60, and the second case of KIP-279).
    """
    partition = action.word(0)
    times, every_us = action.number("times", 4), action.time_us("every", 300_000)
    if action.options.get("clog", "no") == "yes":
        clog_all(scene, times * every_us)

    def step() -> None:
        try:
            first, *others = state_of(scene, partition).replicas
        except Skipped:
            return  # the topic is gone
        replicas = ",".join(map(str, (*others, first)))
        scene.perform(Action(action.at_us, "reassign", (partition, replicas)))
        scene.later(_ELECT_AFTER_US, elect)

    def elect() -> None:
        scene.perform(Action(action.at_us, "elect", ("preferred", partition)))

    for turn in range(times):
        scene.later(turn * every_us, step)


def last_standing(scene: Scene, action: Action) -> None:
    """The leader remains alone, and then loses its power and what it had not synced (F-07, X-9).

    All its followers are cut off, from the store as well, for longer than their sessions last, so
    that they are no longer in sync but eligible. They come back `for` after the beginning.
    """
    word = f"leader:{action.word(0)}"
    leader = one_running(scene, word)
    check_budget(scene, leader, lossy=True)
    for_us = action.time_us("for", 6_000_000)
    brokers: list[End] = list(scene.world.machines)
    for broker_id in state_of(scene, action.word(0)).replicas:
        if broker_id != leader.broker_id:
            cut(scene, both_ways([broker_id], brokers), for_us)
            cut_store(scene, broker_id, for_us)

    def strike() -> None:
        try:
            check_budget(scene, leader, lossy=True)
        except Skipped as skipped:
            scene.world.note(f"the last one is spared: {skipped}")
            return
        if leader.is_running:
            scene.expect_end(leader, action.time_us("down", 200_000))
            leader.power_cut("none")

    scene.later(action.time_us("after", for_us // 2), strike)


VERBS: Final = (
    Verb("election-storm", election_storm, "PARTITION [times=] [every=] [down=]"),
    Verb("last-standing", last_standing, "PARTITION [for=] [after=] [down=]"),
    Verb("leader-dance", leader_dance, "PARTITION [times=] [every=] [clog=yes|no]"),
)
