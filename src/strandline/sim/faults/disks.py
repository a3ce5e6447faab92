"""Faults of disks: errors, no space, slowness, lies, rot, files that are gone.

A broker that saw an error gives up the log directory until it is started again, so the end of such
a fault is a new start on a healthy disk. Damage that nothing makes undone ends with an empty disk,
as an operator would do it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from strandline.sim.faults.processes import check_budget
from strandline.sim.faults.scene import Scene, Skipped
from strandline.sim.faults.targets import one, one_running, some
from strandline.sim.faults.verb import Verb
from strandline.sim.machine import Machine
from strandline.sim.plan import Action
from strandline.sim.scenarios.script import BadScript

_FOR_US: Final = 3_000_000
_DOWN_US: Final = 500_000
_LOG: Final = ".log"


def disk_fail(scene: Scene, action: Action) -> None:
    """An operation on some files fails with EIO, `count` times or until the end."""
    machine = one_running(scene, action.word(0))
    count = action.number("count", 0) or None
    path = action.options.get("path", _LOG)
    machine.disk.fail(action.options.get("operation", "append"), path, count)
    _restart_healthy(scene, machine, action)


def disk_broken(scene: Scene, action: Action) -> None:
    """A whole log directory answers everything with EIO."""
    machine = one_running(scene, action.word(0))
    directories = machine.config.log_dirs
    machine.disk.break_dir(directories[action.number("dir", 0) % len(directories)])
    _restart_healthy(scene, machine, action)


def disk_full(scene: Scene, action: Action) -> None:
    """No space is left for some files.

    With `restart=no` there is room again at the end, and the broker must get over it by itself.
    """
    machine = one_running(scene, action.word(0))
    full = partial(machine.disk.fill, action.options.get("path", ""))
    if action.options.get("restart", "yes") == "no":
        key, for_us = ("disk full", machine.broker_id), action.time_us("for", _FOR_US)
        scene.hold(key, full, machine.disk.free_space, for_us)
        return
    full()
    _restart_healthy(scene, machine, action)


def starve(scene: Scene, action: Action) -> None:
    """A share of the operations gets no handle of a file, and later all do again (EMFILE).

    Nothing is started anew: a broker must get over it by itself."""
    machine = one(scene, action.word(0))
    share = action.number("percent", 100) / 100
    scene.hold(
        ("starve", machine.broker_id),
        partial(machine.disk.starve, share),
        partial(machine.disk.starve, 0.0),
        action.time_us("for", _FOR_US),
    )


def disk_slow(scene: Scene, action: Action) -> None:
    """Every operation on some files takes `per` longer."""
    path = action.options.get("path", "")
    for machine in some(scene, action.word(0)):
        scene.hold(
            ("disk slow", machine.broker_id),
            partial(machine.disk.slow, action.time_us("per", 20_000), path),
            machine.disk.fast,
            action.time_us("for", _FOR_US),
        )


def fsync_fail(scene: Scene, action: Action) -> None:
    """The next fsync of such a file fails, its pages are lost, and later ones lie (F-45).

    With `error=full` it says that there is no room.
    """
    machine = one_running(scene, action.word(0))
    error = action.options.get("error", "broken")
    if error not in ("broken", "full"):
        raise BadScript(f"A sync finds a disk broken or full, not '{error}'.")
    check_budget(scene, machine, lossy=True)
    scene.budget.arm(machine, action.verb, lossy=True)
    machine.disk.drop_on_sync(action.options.get("path", _LOG), is_full=error == "full")

    _restart_healthy(scene, machine, action)


def rot(scene: Scene, action: Action) -> None:
    """Bits flip in what is on the disk. A new disk comes after `for`."""
    machine = one(scene, action.word(0))
    check_budget(scene, machine, lossy=True)
    _damage(scene, machine, machine.disk.rot(action.options.get("path", _LOG)))
    scene.repair(machine, _DOWN_US, after_us=action.time_us("for", _FOR_US), new_disk=True)


def lose_file(scene: Scene, action: Action) -> None:
    """Delete or truncate a file of a broker that is down. A new disk comes after `for`."""
    machine = one_running(scene, action.word(0))
    check_budget(scene, machine, lossy=True)
    path = action.options.get("path", _LOG)
    disk = machine.disk
    harm = disk.cut_file if action.options.get("how", "gone") == "cut" else disk.lose_file
    _while_down(scene, machine, action, partial(harm, path))
    scene.repair(machine, _DOWN_US, after_us=action.time_us("for", _FOR_US), new_disk=True)


def lose_directory(scene: Scene, action: Action) -> None:
    """After a clean stop the log of a partition, or all of a log directory, is not there.

    With `what=entry` the directory is taken out of `log.dirs` as well, for good.
    """
    machine = one_running(scene, action.word(0))
    check_budget(scene, machine, lossy=True)
    directories = machine.config.log_dirs
    lost = directories[action.number("dir", 0) % len(directories)]
    what = action.options.get("what", "log")
    if what not in ("log", "disk", "entry"):
        raise BadScript(f"A log, a disk or its entry is lost, not '{what}'.")
    if what == "entry" and len(directories) == 1:
        raise Skipped(f"{machine.broker_id} would have no directory left")

    def act(machine: Machine) -> None:
        scene.budget.disarm(machine, action.verb)
        if not scene.budget.may_lose(machine):
            return
        told = machine.disk.lose_directory(lost, is_partition=what == "log")
        scene.world.note(f"disk of {machine.broker_id}: {told or 'nothing to lose'}")
        kept = tuple(each for each in machine.config.log_dirs if each != lost)
        if what == "entry" and kept:
            machine.config = replace(machine.config, log_dirs=kept)
        scene.budget.ended(machine, "swap", lossy=True)
        scene.on_loss(machine.broker_id)

    scene.budget.arm(machine, action.verb, lossy=True)
    scene.expect_end(machine, action.time_us("down", _DOWN_US), act)
    machine.stop()


def tamper_checkpoint(scene: Scene, action: Action) -> None:
    """A checkpoint of a broker that is down is replaced by an older one, or is gone."""
    machine = one_running(scene, action.word(0))
    check_budget(scene, machine, lossy=False)
    path = action.options.get("path", "-offset-checkpoint")
    disk = machine.disk
    harm = disk.lose_file if action.options.get("how", "old") == "gone" else disk.restore_older
    _while_down(scene, machine, action, partial(harm, path))


def _while_down(
    scene: Scene, machine: Machine, action: Action, harm: Callable[[], str | None]
) -> None:
    """Kill a broker, and do something to its files before it is started again."""

    def act(machine: Machine) -> None:
        told = harm()
        scene.on_loss(machine.broker_id)
        scene.world.note(f"disk of {machine.broker_id}: {told or 'nothing to damage'}")

    if action.verb == "lose-file":
        scene.budget.damage(machine)
    scene.expect_end(machine, action.time_us("down", _DOWN_US), act)
    machine.kill()


def _damage(scene: Scene, machine: Machine, told: str | None) -> None:
    if told is None:
        raise Skipped("there is nothing to damage")
    scene.budget.damage(machine)
    scene.on_loss(machine.broker_id)
    scene.world.note(f"disk of {machine.broker_id}: {told}")


def _restart_healthy(scene: Scene, machine: Machine, action: Action) -> None:
    """After `for`, heal the disk and start the broker anew."""

    def restart() -> None:
        machine.disk.heal()
        scene.budget.disarm(machine, action.verb)
        scene.repair(machine, action.time_us("down", _DOWN_US))

    # A hold of its own, so that the end of all faults is an end of this one too.
    key = ("disk", machine.broker_id, str(action))
    scene.hold(key, _nothing, restart, action.time_us("for", _FOR_US))


def _nothing() -> None:
    """The fault has begun before it was held."""


VERBS: Final = (
    Verb(
        "disk-fail",
        disk_fail,
        "BROKER [operation=append|read|sync|...] [path=] [count=] [for=] [down=]",
    ),
    Verb("disk-broken", disk_broken, "BROKER [dir=] [for=] [down=]"),
    Verb("disk-full", disk_full, "BROKER [path=] [for=] [restart=yes|no] [down=]"),
    Verb("starve", starve, "BROKER [percent=] [for=]"),
    Verb("disk-slow", disk_slow, "BROKERS [per=] [path=] [for=]"),
    Verb("fsync-fail", fsync_fail, "BROKER [path=] [error=broken|full] [for=] [down=]"),
    Verb("rot", rot, "BROKER [path=] [for=]"),
    Verb("lose-file", lose_file, "BROKER [path=] [how=gone|cut] [for=] [down=]"),
    Verb("lose-directory", lose_directory, "BROKER [what=log|disk|entry] [dir=] [down=]"),
    Verb(
        "tamper-checkpoint",
        tamper_checkpoint,
        "BROKER [path=] [how=old|gone] [down=]",
    ),
)
