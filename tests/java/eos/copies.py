"""Kafka's TransactionalMessageCopier moves every record once, though brokers and copiers die."""

from __future__ import annotations

from collections import Counter
from typing import Final

from confluent_kafka import Producer

from tests.faults.processes import until
from tests.java.eos.rig import PATIENCE_S, Rig, committed
from tests.java.processes import Process

SOURCE: Final = "copied-from"
TARGET: Final = "copied-to"
PARTITIONS: Final = 2
COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
PER_TRANSACTION: Final = 10
PER_KILL: Final = 4_000
STEP: Final = 200


def run(rig: Rig, rounds: int, seed: int) -> str:
    """One copier per partition, with random aborts; brokers are killed, and one of the copiers."""
    del seed  # aborts are of the copiers' own chance
    count = PER_KILL * rounds * len(rig.cluster.ids)
    for topic in (SOURCE, TARGET):
        rig.cluster.create_topic(topic, partitions=PARTITIONS)
    _fill(rig.cluster.bootstrap, count)
    copiers = [_start(rig, partition) for partition in range(PARTITIONS)]
    with committed(rig.cluster.bootstrap, TARGET) as output:

        def progress() -> int:
            return len(output.records)

        until(lambda: progress() >= STEP, "first copies", seconds=PATIENCE_S)
        rig.kill_by_turns(rounds, dict.fromkeys((SOURCE, TARGET), PARTITIONS), progress, STEP)
        copiers[0].kill()
        rig.cluster.note("kill -9 of a copier")
        copiers[0] = _start(rig, 0)
        until(
            lambda: progress() >= count,
            f"{count} copies",
            seconds=PATIENCE_S,
            complaint=lambda: f"{progress()} came. {copiers[0].complaint()}",
        )
    with committed(rig.cluster.bootstrap, TARGET, "judge-again") as again:
        until(lambda: len(again.records) >= count, "all of them again", seconds=PATIENCE_S)
    for records in (output.records, again.records):
        found = Counter(int(value) for _, _, value in records)
        assert found == Counter(range(count)), _differences(found, count)
    return f"{count} records in {rounds * len(rig.cluster.ids)} kills, each copied once"


def _fill(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def _start(rig: Rig, partition: int) -> Process:
    return rig.java(
        COPIER,
        *("--broker-list", rig.cluster.bootstrap),
        *("--transactional-id", f"copier-{partition}", "--consumer-group", "copiers"),
        *("--input-topic", SOURCE, "--input-partition", str(partition)),
        *("--output-topic", TARGET, "--transaction-size", str(PER_TRANSACTION)),
        *("--transaction-timeout", "15000", "--enable-random-aborts", "--use-group-metadata"),
    )


def _differences(found: Counter[int], count: int) -> str:
    missing = sorted(set(range(count)) - found.keys())
    twice = sorted(number for number, times in found.items() if times > 1)
    return f"{len(missing)} missing {missing[:5]}, {len(twice)} repeated {twice[:5]}"
