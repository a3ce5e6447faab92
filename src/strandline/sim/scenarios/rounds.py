"""Half a second in which brokers do by themselves what other verbs have them do one by one.

A `tick` is what a person watches: each follower fetches once, the controller answers proposals,
half a second passes, and the controller looks who is registered. A broker that is paused or cut off
for `SESSION_MS` loses its session. A script with ticks can still be repeated exactly. This file
calls the world's verbs, and holds no state but since when a broker has been unreachable.
"""

from __future__ import annotations

import re
from typing import Final

from strandline.replication.in_sync import Committed
from strandline.sim.scenarios.replica import Replica
from strandline.sim.scenarios.world import World

TICK_MS: Final = 500
SESSION_MS: Final = 6_000
"""Of brokers that are paused or cut off, in ticks; `expire` ends a session at once."""

_NOISE: Final = re.compile(
    r"\w answers \w@\d+: (nothing|records),|controller: nothing to do|the request is lost"
)
"""What a tick does every time, and strips show anyway."""


def tick(world: World) -> None:
    """See the module."""
    before = len(world.events)
    for name, replica in world.replicas.items():
        if replica.is_running and not replica.is_paused and replica.leader_name is not None:
            world.fetch(name)
    for name, replica in world.replicas.items():
        if _proposes(replica):
            world.alter(name)
    world.wait(TICK_MS)
    for name, replica in world.replicas.items():
        if _is_over(world, replica):
            world.expire(name)
            world.events.append(f"the session of {name} ends")
    world.run_controller()
    world.events[before:] = [each for each in world.events[before:] if not _NOISE.match(each)]


def pause(world: World, name: str) -> None:
    """The process stands still, as by SIGSTOP: what is sent to it waits."""
    world.replicas[name].machine.pause()


def resume(world: World, name: str) -> None:
    """It goes on, and hears of the cluster's state unless it is cut off."""
    replica = world.replicas[name]
    replica.machine.resume()
    if not replica.is_cut:
        world.tell(name)


def _proposes(replica: Replica) -> bool:
    leader = replica.leader
    is_reachable = not replica.is_cut and not replica.is_paused
    return leader is not None and is_reachable and not isinstance(leader.in_sync, Committed)


def _is_over(world: World, replica: Replica) -> bool:
    """Whether its session ends now."""
    is_registered = replica.broker_id in world.sim.store.image.brokers
    if not (replica.is_running and is_registered and (replica.is_cut or replica.is_paused)):
        replica.unreachable_since_ms = None
        return False
    if replica.unreachable_since_ms is None:
        replica.unreachable_since_ms = world.now_ms
    return world.now_ms - replica.unreachable_since_ms >= SESSION_MS
