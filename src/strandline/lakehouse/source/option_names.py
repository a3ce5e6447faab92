"""Names of the source's options: Spark's own for `kafka`, and Kafka's for consumers."""

from __future__ import annotations

from typing import Final

SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")

STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Taken in a batch query as well, where they do nothing: Spark's own source does the same."""

BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")

USED: Final = (
    *SUBSCRIPTIONS,
    *STREAM_ONLY,
    *BATCH_ONLY,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "bootstrap.servers",
    "isolation.level",
    "kafka.bootstrap.servers",
    "kafka.isolation.level",
    "kafka.client.id",
    "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes",
)

WITHOUT_EFFECT: Final = (
    # They tune Spark's or Java's consumer, of which there is none here.
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafka.group.id",
    "kafka.allow.auto.create.topics",
    "kafka.client.rack",
    "kafka.connections.max.idle.ms",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.metadata.max.age.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.send.buffer.bytes",
    "kafka.session.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
)

REFUSED: Final = {
    # As in Spark's own source, which names the same alternatives.
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.key.deserializer": "keys are bytes; cast the column",
    "kafka.value.deserializer": "values are bytes; cast the column",
    "kafka.enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "kafka.interceptor.classes": "there is no Java consumer to intercept",
}
