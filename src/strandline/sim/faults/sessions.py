"""Faults of the metadata store and of the way to it."""

from __future__ import annotations

from typing import Final

from strandline.sim.faults.links import cut_store
from strandline.sim.faults.scene import Scene
from strandline.sim.faults.targets import one, some
from strandline.sim.faults.verb import Verb
from strandline.sim.plan import Action
from strandline.sim.scenarios.script import BadScript

_FOR_US: Final = 2_000_000


def store_cut(scene: Scene, action: Action) -> None:
    """A broker does not reach the store; if that lasts, its session runs out."""
    for machine in some(scene, action.word(0)):
        cut_store(scene, machine.broker_id, action.time_us("for", _FOR_US))


def store_reset(scene: Scene, action: Action) -> None:
    """A broker loses its connection to the store, and has it back at once."""
    for machine in some(scene, action.word(0)):
        scene.world.store.reset(machine.broker_id)


def store_expire(scene: Scene, action: Action) -> None:
    """A broker's session is over, or those of all at the same moment."""
    if action.word(0) == "all":
        scene.world.store.expire_all()
        return
    for machine in some(scene, action.word(0)):
        scene.world.store.expire(machine.broker_id)


def store_lag(scene: Scene, action: Action) -> None:
    """A broker hears all news later, several changes as one."""
    store = scene.world.store
    machine = one(scene, action.word(0))
    lag_us = action.time_us("lag", 300_000)
    torn = action.options.get("torn", "no") == "yes"
    broker_id = machine.broker_id
    scene.hold(
        ("store lag", broker_id),
        lambda: store.lag(broker_id, lag_us, torn=torn),
        lambda: store.lag(broker_id, 0),
        action.time_us("for", _FOR_US),
    )


def store_lose(scene: Scene, action: Action) -> None:
    """The outcome of a broker's next write never arrives; it was applied, or was not."""
    applied = action.options.get("applied", "yes")
    if applied not in ("yes", "no"):
        raise BadScript(f"A lost write was applied or not: yes or no, not '{applied}'.")
    scene.world.store.lose_next(one(scene, action.word(0)).broker_id, applied == "yes")


def store_down(scene: Scene, action: Action) -> None:
    """Cut every broker off from the store."""
    store = scene.world.store
    scene.hold(
        ("store down",),
        lambda: store.set_unavailable(True),
        lambda: store.set_unavailable(False),
        action.time_us("for", _FOR_US),
    )


VERBS: Final = (
    Verb("store-cut", store_cut, "BROKERS [for=]"),
    Verb("store-reset", store_reset, "BROKERS"),
    Verb("store-expire", store_expire, "BROKERS"),
    Verb("store-lag", store_lag, "BROKER [lag=] [torn=yes] [for=]"),
    Verb("store-lose", store_lose, "BROKER [applied=yes|no]"),
    Verb("store-down", store_down, "[for=]"),
)
