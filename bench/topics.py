"""Topics of the brokers under test, through confluent-kafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException, TopicPartition

# The module imports these two without declaring that it passes them on.
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

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

    def create(self, name: str, partitions: int) -> None:
        """Returns when every partition has a leader that answers. Raises KafkaException."""
        for created in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            created.result(TIMEOUT_S)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has no annotations
        wanted = {TopicPartition(name, index): latest for index in range(partitions)}

        def ask_leaders() -> None:
            # Afresh: the client remembers from the first question that there was no leader yet.
            self._admin.list_topics(name, timeout=TIMEOUT_S)
            for answer in self._admin.list_offsets(wanted).values():
                answer.result(TIMEOUT_S)

        _until_it_works(ask_leaders)

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
