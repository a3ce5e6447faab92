"""Topics of the brokers under test, through confluent-kafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException, TopicPartition

# The module imports these two without declaring that it passes them on.
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

TIMEOUT_S = 30.0
RETRY_S = 0.02


class Topics:
    """One broker's topics. Its client stays connected for the session: one that was dropped would
    live on in the background for a while, and sessions of many runs would collect them."""

    def __init__(self, address: str) -> None:
        self._admin = AdminClient(
            {
                "bootstrap.servers": address,
                "log_level": 0,  # errors come back from the calls; the rest is about stopping
            }
        )

    def create(self, name: str, partitions: int, *, leader_port: int, replicas: int) -> None:
        """The broker at this port leads every partition. Returns when it answers for all of them
        and all replicas are in sync. Raises KafkaException."""
        assignment = [self._brokers_from(leader_port)[:replicas]] * partitions
        topic = NewTopic(name, partitions, replica_assignment=assignment)
        for created in self._admin.create_topics([topic]).values():
            created.result(TIMEOUT_S)
        latest = OffsetSpec.latest()
        wanted = {TopicPartition(name, index): latest for index in range(partitions)}

        def ask_leaders() -> None:
            # Afresh: the client remembers from the first question that there was no leader yet.
            found = self._admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
            if any(len(partition.isrs) < replicas for partition in found.values()):
                raise KafkaException(f"{name} has replicas that are not in sync")
            for answer in self._admin.list_offsets(wanted).values():
                answer.result(TIMEOUT_S)

        _until_it_works(ask_leaders)

    def _brokers_from(self, port: int) -> list[int]:
        """Ids of all brokers, the one at this port first."""
        brokers = self._admin.list_topics(timeout=TIMEOUT_S).brokers
        return sorted(brokers, key=lambda broker: (brokers[broker].port != port, broker))

    def delete(self, name: str) -> None:
        """Ask for the deletion; the files go after the broker's delay. Raises KafkaException."""
        for deleted in self._admin.delete_topics([name]).values():
            deleted.result(TIMEOUT_S)


def _until_it_works(ask: Callable[[], None]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)
