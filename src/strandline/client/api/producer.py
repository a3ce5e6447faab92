"""`strandline.Producer`: records in, outcomes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from strandline.client.api.settings import producing_of
from strandline.client.cluster import ClusterClient
from strandline.client.delivery import Delivery, FlushResult
from strandline.client.producer import Producer as BatchingProducer


class Producer:
    """Writes records to topics of any Kafka cluster, in batches, from one thread.

        with strandline.Producer({"bootstrap.servers": "localhost:9092"}) as producer:
            delivery = producer.send("orders", b"one more", key=b"customer 7")
            producer.flush().raise_failure()
            print(delivery.topic_partition, delivery.result())

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` is needed.

    With the defaults (`acks=all`, `enable.idempotence=true`) each record is written once and in
    the order of its partition, whatever has to be sent again. There is no thread: what is ready
    goes out, and answers come in, within `send`, `poll` and `flush`. A context manager: leaving
    it sends what is left, and raises `ProtocolError` if any record was not written.

    Connects to nothing yet. Raises `InvalidSetting` for an unknown setting or value.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        connecting, producing = producing_of(settings)
        self._cluster = ClusterClient(connecting.bootstrap, connecting.client)
        self._producer = BatchingProducer(self._cluster, producing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self.flush().raise_failure()
        finally:
            self._cluster.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Give a record to the producer. Returns before it is sent, unless the buffer is full.

        Without `partition` the key decides (as Kafka's clients do: murmur2), and without a key
        batches go round. `value` None is a tombstone of the key. `timestamp_ms` is in milliseconds
        since 1970, now by default. Raises `ProtocolError`: UNKNOWN_TOPIC_OR_PARTITION,
        MESSAGE_TOO_LARGE for a record above `buffer.memory`, BROKER_NOT_AVAILABLE, ...
        """
        return self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp_ms
        )

    def poll(self) -> None:
        """Send batches that are as old as `linger.ms`, and take in answers, without waiting.

        For programs that make a pause between two calls of `send`.
        """
        self._producer.poll()

    def flush(self) -> FlushResult:
        """Send everything and wait for all outcomes, at most for `delivery.timeout.ms`.

        Returns the outcomes since the last flush, and raises nothing for records that failed:
        `flush().raise_failure()` does.
        """
        return self._producer.flush()

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `ProtocolError` if there is no such topic."""
        return sorted(self._cluster.topic(topic).partitions)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records without an outcome, at most `buffer.memory`."""
        return self._producer.buffered_bytes

    def close(self) -> None:
        """Send what is left and close all connections. Raises `ProtocolError` as `with` does."""
        self.__exit__(None)
