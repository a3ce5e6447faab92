"""Whom a fault strikes. Words of a plan are resolved when the action happens:

    2               that broker                    1,3            those brokers
    leader:t-0      who leads now                  follower:t-0   the first other in-sync replica
    outsider:t-0    a replica that is not in sync  controller     who is the controller now
    coordinator:g1  who leads the group's offsets  all            every broker
    transactions:x  who coordinates the id
    client:p1       an end of links only           clients        every client

An action is skipped if no broker has that role at the moment: it is no error of the plan.
"""

from __future__ import annotations

from typing import TypeAlias

from strandline.cluster.image_parts import PartitionImage
from strandline.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from strandline.protocol.coordinator_log import partition_for
from strandline.sim.faults.scene import Scene, Skipped
from strandline.sim.machine import Machine
from strandline.sim.scenarios.script import BadScript
from strandline.types import BrokerId, TopicPartition

End: TypeAlias = BrokerId | str
"""A broker or the name of a client."""


def one(scene: Scene, word: str) -> Machine:
    """The broker that the word means now."""
    return scene.world.machines[_broker(scene, word)]


def one_running(scene: Scene, word: str) -> Machine:
    """The same, if it has a process."""
    machine = one(scene, word)
    if not machine.is_running:
        raise Skipped(f"{machine.broker_id} is down")
    return machine


def running(scene: Scene, word: str) -> list[Machine]:
    """Those of the brokers that have a process, one at least."""
    found = [machine for machine in some(scene, word) if machine.is_running]
    if not found:
        raise Skipped(f"{word}: down already")
    return found


def some(scene: Scene, word: str) -> list[Machine]:
    """The brokers that the word means now."""
    if word == "all":
        return list(scene.world.machines.values())
    return [one(scene, each) for each in word.split(",")]


def ends(scene: Scene, word: str) -> list[End]:
    """The ends of links that the word means now."""
    if word == "clients":
        return list(scene.client_names)
    if word.startswith("client:"):
        return [word.partition(":")[2]]
    return [machine.broker_id for machine in some(scene, word)]


def partition(word: str) -> TopicPartition:
    """`t-0`."""
    topic, dash, number = word.rpartition("-")
    if not dash or not number.isdigit():
        raise BadScript(f"'{word}' is no partition such as t-0.")
    return TopicPartition(topic, int(number))


def state_of(scene: Scene, word: str) -> PartitionImage:
    """The state of `t-0`."""
    found = scene.world.image.partition(partition(word))
    if found is None:
        raise Skipped(f"there is no {word}")
    return found


def _broker(scene: Scene, word: str) -> BrokerId:
    if word.isdigit():
        broker_id = BrokerId(int(word))
        if broker_id not in scene.world.machines:
            raise Skipped(f"there is no broker {word}")
        return broker_id
    found = _role(scene, word)
    if found is None or found not in scene.world.machines:
        raise Skipped(f"no broker is {word}")
    scene.world.note(f"{word} is {found}")
    return found


def _role(scene: Scene, word: str) -> BrokerId | None:
    role, _, of = word.partition(":")
    match role:
        case "controller":
            return scene.world.image.controller
        case "leader":
            return state_of(scene, of).leader
        case "follower":
            state = state_of(scene, of)
            return next((b for b in state.in_sync_replicas if b != state.leader), None)
        case "outsider":
            state = state_of(scene, of)
            return next((b for b in state.replicas if b not in state.in_sync_replicas), None)
        case "coordinator":
            return _coordinator(scene, CONSUMER_OFFSETS, of)
        case "transactions":
            return _coordinator(scene, TRANSACTION_STATE, of)
        case _:
            raise BadScript(f"'{word}' names no broker.")


def _coordinator(scene: Scene, log: str, name: str) -> BrokerId | None:
    topic = scene.world.image.topics.get(log)
    if topic is None:
        return None
    return topic.partitions[partition_for(name, len(topic.partitions))].leader
