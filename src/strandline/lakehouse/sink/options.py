"""What a user may say to the sink, read and checked: Spark's names, and Kafka's for producers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.producer import ProducerSettings
from strandline.client.settings import ClientSettings
from strandline.errors import InvalidSetting
from strandline.lakehouse.options import Options
from strandline.records.codec import Codec

_WHAT: Final = "sink strandline"
_USED: Final = (
    "topic",
    "bootstrap.servers",
    "kafka.bootstrap.servers",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.client.id",
    "kafka.compression.type",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.request.timeout.ms",
)
_WITHOUT_EFFECT: Final = (
    # What Spark itself adds for a stream, and what only the source knows.
    *("checkpointLocation", "queryName", "includeHeaders"),
    # They tune Java's producer, of which there is none here.
    "kafka.connections.max.idle.ms",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.max.idle.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.retries",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.send.buffer.bytes",
)
_REFUSED: Final = {
    "kafka.key.serializer": "keys are written as the bytes or the text that the column holds",
    "kafka.value.serializer": "values are written as the bytes or the text that the column holds",
    "kafka.interceptor.classes": "there is no Java producer to intercept",
    "kafka.partitioner.class": "the column partition chooses, else the key as in Java's producer",
    "kafka.transactional.id": "a write is not a transaction; strandline.TopicSink writes in them",
}
_OF_TRANSACTIONS: Final = ("kafka.transactional.id", "kafka.transaction.timeout.ms")
_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As much as brokers allow by default: a batch of a stream is one transaction."""
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS: Final = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything that was said, checked. Goes to executors by pickle."""

    bootstrap: str
    topic: str | None
    client: ClientSettings
    producer: ProducerSettings


def parse_options(given: Mapping[str, str], *, in_transactions: bool = False) -> SinkOptions:
    """Read the options. Raises `InvalidSetting` with a sentence that names the option."""
    allowed = _OF_TRANSACTIONS if in_transactions else ()
    for name in given:
        if name.lower() in _REFUSED and name.lower() not in allowed:
            raise InvalidSetting(
                name, f"The option {name} is not supported: {_REFUSED[name.lower()]}."
            )
    options = Options(given, known=(*_USED, *allowed, *_WITHOUT_EFFECT), what=_WHAT)
    client, producer = ClientSettings(), ProducerSettings()
    timeout_ms = options.number("kafka.request.timeout.ms") or client.request_timeout_ms
    return SinkOptions(
        bootstrap=options.bootstrap(),
        topic=options.text("topic") or None,
        client=ClientSettings(
            client_id=options.text("kafka.client.id") or "strandline-spark",
            request_timeout_ms=timeout_ms,
            security=options.security,
        ),
        producer=ProducerSettings(
            acks=options.one_of("kafka.acks", _ACKS, -1),
            is_idempotent=options.flag("kafka.enable.idempotence", True),
            codec=options.one_of("kafka.compression.type", _CODECS, Codec.NONE),
            batch_bytes=options.number("kafka.batch.size") or producer.batch_bytes,
            buffer_bytes_max=options.number("kafka.buffer.memory") or producer.buffer_bytes_max,
            delivery_timeout_ms=(
                options.number("kafka.delivery.timeout.ms") or producer.delivery_timeout_ms
            ),
            append_timeout_ms=timeout_ms,
            transactional_id=options.text("kafka.transactional.id") if in_transactions else None,
            transaction_timeout_ms=(
                options.number("kafka.transaction.timeout.ms") or _TRANSACTION_TIMEOUT_MS
                if in_transactions
                else producer.transaction_timeout_ms
            ),
        ),
    )
