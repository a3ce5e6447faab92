"""When a starting broker is ready for clients, as far as the metadata tells it, and what is not."""

from __future__ import annotations

from collections.abc import Callable

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.numerals import counted
from strandline.types import BrokerId, TopicPartition


class Readiness:
    """Whether everything that can be settled is settled. Stays true once it was.

    Partitions are looked at once each: what was settled and is in question again is the business
    of a running cluster, not of this start.
    """

    def __init__(self, image: Callable[[], ClusterImage], broker_id: BrokerId) -> None:
        self._image = image
        self._broker_id = broker_id
        self._unsettled: list[tuple[str, int]] | None = None

    def __call__(self) -> bool:
        image = self._image()
        if self._broker_id not in image.brokers or image.controller not in image.brokers:
            return False
        if self._unsettled is None:
            self._unsettled = [
                (topic.name, number)
                for topic in image.topics.values()
                for number in topic.partitions
            ]
        while self._unsettled and self._is_settled(image, *self._unsettled[-1]):
            self._unsettled.pop()
        return not self._unsettled

    def missing(self) -> str:
        """What is still missing, as the end of a sentence."""
        image = self._image()
        if self._broker_id not in image.brokers:
            return "this broker is not registered"
        if image.controller not in image.brokers:
            return "no broker is the controller"
        return f"{counted(len(self._unsettled or ()), 'partition')} without a leader"

    def _is_settled(self, image: ClusterImage, name: str, number: int) -> bool:
        """Whether the partition has a running leader, or no running replica that may lead."""
        topic = image.topics.get(name)
        state = None if topic is None else topic.partitions.get(number)
        if state is None or is_present(image, state, state.leader):
            return True
        partition = TopicPartition(name, number)
        return not any(
            broker is not None and partition not in broker.offline
            for broker in map(image.brokers.get, state.in_sync_replicas)
        )


def offline_notice(image: ClusterImage) -> str | None:
    """A sentence about partitions without a possible leader, and the brokers they wait for."""
    states = [state for topic in image.topics.values() for state in topic.partitions.values()]
    offline = [state for state in states if not is_present(image, state, state.leader)]
    if not offline:
        return None
    needed = {
        broker
        for state in offline
        for broker in (*state.in_sync_replicas, *state.elr)
        if not image.is_alive(broker)
    }
    share = f"Offline partitions: {len(offline)} of {len(states)}."
    if not needed:
        return f"{share} Leaders are still to be elected."
    brokers = ", ".join(map(str, sorted(needed)))
    return (
        f"{share} Nothing of them is lost: what was committed is on brokers that do not run "
        f"({brokers}), and is back when they do."
    )


def is_present(image: ClusterImage, state: PartitionImage, broker: BrokerId) -> bool:
    """Whether the broker is alive under the registration that the partition's state knows."""
    registered = image.brokers.get(broker)
    if registered is None:
        return False
    return state.in_sync_epochs.get(broker, registered.epoch) == registered.epoch
