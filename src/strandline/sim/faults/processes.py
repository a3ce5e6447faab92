"""Faults of processes and machines: they die, lose power, hang, are stopped, get a new disk.

All of them come back by themselves: the supervisor of the scene starts what has ended, `down=`
after its end; what hangs goes on after `for=`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal, cast, get_args

from strandline.sim.faults.scene import Scene, Skipped
from strandline.sim.faults.targets import one, one_running, running, some
from strandline.sim.faults.verb import Verb
from strandline.sim.machine import Machine
from strandline.sim.plan import Action
from strandline.sim.scenarios.script import BadScript
from strandline.storage.files import LockHeld
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.memory_inodes import PowerCut

_DOWN_US: Final = 1_000_000
_OPERATIONS: Final = 20


def kill(scene: Scene, action: Action) -> None:
    """SIGKILL: what was written stays in the page cache."""
    for machine in running(scene, action.word(0)):
        check_budget(scene, machine, lossy=False)
        scene.expect_end(machine, action.time_us("down", _DOWN_US))
        machine.kill()


def power_cut(scene: Scene, action: Action) -> None:
    """The machine loses its power, and with it what was not synced."""
    powered = [machine for machine in some(scene, action.word(0)) if machine.is_powered]
    if not powered:
        raise Skipped(f"{action.word(0)}: no power already")
    for machine in powered:
        check_budget(scene, machine, lossy=True)
        scene.expect_end(machine, action.time_us("down", _DOWN_US))
        was_running = machine.is_running
        lossy = machine.power_cut(_mode(action))
        if not was_running:
            # No process ended: what an earlier one left in the page cache was lost after its death.
            scene.lost_power(machine, lossy=lossy)


def pause(scene: Scene, action: Action) -> None:
    """SIGSTOP, and SIGCONT later: a long garbage collection, a virtual machine that moves."""
    for machine in running(scene, action.word(0)):
        life = machine.life
        key = ("pause", machine.broker_id, life)
        resume = partial(_resume, scene, machine, life)
        scene.hold(key, machine.pause, resume, action.time_us("for", _DOWN_US))


def suspend(scene: Scene, action: Action) -> None:
    """A machine is suspended to its memory, and wakes up: it is as if it had been paused, but its
    monotonic clock has not run meanwhile."""
    for machine in running(scene, action.word(0)):
        if machine.is_paused:
            continue
        life = machine.life

        def sleep(machine: Machine = machine) -> None:
            machine.pause()
            machine.clock.freeze()

        def wake(machine: Machine = machine, life: int = life) -> None:
            if machine.life == life and machine.is_paused:
                machine.clock.thaw()
                _resume(scene, machine, life)

        key = ("pause", machine.broker_id, life)
        scene.hold(key, sleep, wake, action.time_us("for", _DOWN_US))


def stop(scene: Scene, action: Action) -> None:
    """SIGTERM: a controlled shutdown, and a start afterwards."""
    for machine in running(scene, action.word(0)):
        _stop(scene, machine, action.time_us("down", _DOWN_US))


def rolling_restart(scene: Scene, action: Action) -> None:
    """Stop and start every broker, one after the other; `every` is from one start to the next."""
    every_us = action.time_us("every", 3_000_000)
    for turn, machine in enumerate(scene.world.machines.values()):

        def restart(machine: Machine = machine) -> None:
            if machine.is_running:
                _stop(scene, machine, action.time_us("down", _DOWN_US))

        scene.later(turn * every_us, restart)


def swap_disk(scene: Scene, action: Action) -> None:
    """The machine loses its power and comes back with empty disks."""
    machine = one(scene, action.word(0))
    check_budget(scene, machine, lossy=True)
    scene.swap_disk(machine, action.time_us("down", _DOWN_US))


def restore_disk(scene: Scene, action: Action) -> None:
    """A copy of the disk is made at a clean stop, and put back at a later end of the broker.

    With `last=yes` all others are stopped first then, so that it is the last one in sync.
    """
    machine = one_running(scene, action.word(0))
    check_budget(scene, machine, lossy=True)
    down_us = action.time_us("down", _DOWN_US)
    is_last = action.options.get("last", "no") == "yes"

    def put_back(machine: Machine) -> None:
        if machine.disk.restore_copy():
            scene.world.note(f"disk of {machine.broker_id}: an older copy")
            scene.budget.ended(machine, "swap", lossy=True)
            scene.on_loss(machine.broker_id)

    def end() -> None:
        scene.budget.disarm(machine, action.verb)
        if not machine.is_running or not scene.budget.may_lose(machine):
            return
        scene.expect_end(machine, down_us, put_back)
        if is_last:
            machine.stop()
        else:
            machine.kill()

    def others_first() -> None:
        others = [each for each in scene.world.machines.values() if each is not machine]
        for other in others:
            if other.is_running:
                _stop(scene, other, 4 * down_us)
        scene.later(down_us, end)

    def copied(machine: Machine) -> None:
        machine.disk.keep_copy()
        after_us = action.time_us("after", _DOWN_US)
        scene.later(after_us, others_first if is_last else end)

    scene.budget.arm(machine, action.verb, lossy=True)
    scene.expect_end(machine, down_us, copied)
    machine.stop()


def crash_in(scene: Scene, action: Action) -> None:
    """Die at the n-th disk operation from now, of all, of one kind or on some files, before it
    takes effect."""
    machine = one_running(scene, action.word(0))
    how = _how(action)
    check_budget(scene, machine, lossy=how == "power")
    scene.budget.arm(machine, how, lossy=how == "power")
    scene.expect_end(machine, action.time_us("down", _DOWN_US))
    path, operation = action.options.get("path", ""), action.options.get("operation", "")
    count = action.number("operations", _OPERATIONS)
    machine.crash_in(count, how, operation=operation, path_part=path)


def crash_in_recovery(scene: Scene, action: Action) -> None:
    """Die, and die again while recovering, `times` in all; the disk operations count each life."""
    machine = one_running(scene, action.word(0))
    how = _how(action)
    check_budget(scene, machine, lossy=how == "power")
    down_us = action.time_us("down", _DOWN_US)
    random = scene.random(action)
    operations = action.number("operations", _OPERATIONS)
    left = action.number("times", 2)

    def again(machine: Machine) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            scene.budget.arm(machine, how, lossy=how == "power")
            scene.expect_end(machine, down_us, again)
            machine.crash_in(random.randint(1, operations), how)

    scene.expect_end(machine, down_us, again)
    if how == "power":
        machine.power_cut(_mode(action))
    else:
        machine.kill()


def twin(scene: Scene, action: Action) -> None:
    """An operator starts a second process on the broker's log directories: it must be refused."""
    machine = one_running(scene, action.word(0))
    if not machine.is_up:
        raise Skipped(f"{machine.broker_id} is not up yet")
    for path in machine.config.log_dirs:
        with machine.disk.unobserved():
            second: LogDirectory[Log] = LogDirectory(machine.disk.files, path)
            try:
                second.open(machine.broker_id, scene.world.image.cluster_id or "")
            except LockHeld:
                continue
        scene.world.bug(machine.broker_id, f"A second process could open {path}.")


def check_budget(scene: Scene, machine: Machine, *, lossy: bool) -> None:
    """Do not go on if the broker must not crash now, or not lose anything."""
    refusal = scene.budget.refusal(machine, lossy=lossy)
    if refusal is not None:
        raise Skipped(refusal)


def _resume(scene: Scene, machine: Machine, life: int) -> None:
    if machine.life == life and machine.is_paused:
        scene.world.note(f"resume {machine.broker_id}")
        machine.resume()


def _stop(scene: Scene, machine: Machine, down_us: int) -> None:
    scene.expect_end(machine, down_us)
    machine.stop()


def _mode(action: Action) -> PowerCut:
    word = action.options.get("mode", "any")
    for mode in get_args(PowerCut):
        if mode == word:
            return cast("PowerCut", mode)
    raise BadScript(
        f"There is no mode '{word}' of a power cut, only {', '.join(get_args(PowerCut))}."
    )


def _how(action: Action) -> Literal["kill", "power"]:
    match action.options.get("how", "power"):
        case "kill":
            return "kill"
        case "power":
            return "power"
        case other:
            raise BadScript(f"A process ends by kill or power, not by '{other}'.")


VERBS: Final = (
    Verb("kill", kill, "BROKERS [down=]"),
    Verb(
        "power-cut",
        power_cut,
        "BROKERS [mode=any|none|prefix|torn|hole] [down=]",
    ),
    Verb("pause", pause, "BROKERS [for=]"),
    Verb("suspend", suspend, "BROKERS [for=]"),
    Verb("stop", stop, "BROKERS [down=]"),
    Verb("rolling-restart", rolling_restart, "[every=] [down=]"),
    Verb("swap-disk", swap_disk, "BROKERS [down=]"),
    Verb("restore-disk", restore_disk, "BROKER [after=] [down=] [last=no|yes]"),
    Verb(
        "crash-in",
        crash_in,
        "BROKER operations=N [operation=] [path=] [how=power|kill] [down=]",
    ),
    Verb(
        "crash-in-recovery",
        crash_in_recovery,
        "BROKER [times=] [operations=N] [how=power|kill] [mode=] [down=]",
    ),
    Verb("twin", twin, "BROKER"),
)
