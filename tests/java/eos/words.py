"""Kafka Streams counts words with `exactly_once_v2`: each count of each word, once and in order."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from typing import Final

from confluent_kafka import Producer

from tests.faults.processes import until
from tests.java.eos.rig import PATIENCE_S, Rig, committed

LINES: Final = "lines"
COUNTS: Final = "counts"
PARTITIONS: Final = 2
WORDS: Final = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs")
WORDS_PER_LINE: Final = 4
PAUSE_S: Final = 0.05
STEP: Final = 100


class Writer:
    """Writes lines of random words until it is told to stop; counts what it wrote."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.expected: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(PATIENCE_S * 1000),
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            words = self._chance.choices(WORDS, k=WORDS_PER_LINE)
            self.expected.update(words)
            self._producer.produce(LINES, " ".join(words), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def finish(self) -> Counter[str]:
        """How often each word was written; fails unless all was acknowledged."""
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self._failures, self._failures[:3]
        return self.expected


def run(rig: Rig, rounds: int, seed: int) -> str:
    """Two instances count while brokers are killed; one instance is killed, too."""
    for topic in (LINES, COUNTS):
        rig.cluster.create_topic(topic, partitions=PARTITIONS)
    states = [str(rig.home / f"state-{number}") for number in range(2)]
    counters = [rig.java("WordCount", rig.cluster.bootstrap, LINES, COUNTS, at) for at in states]
    writer = Writer(rig.cluster.bootstrap, seed)
    topics = dict.fromkeys((LINES, COUNTS), PARTITIONS)
    with committed(rig.cluster.bootstrap, COUNTS) as output:

        def progress() -> int:
            return len(output.records)

        until(lambda: progress() >= STEP, "first counts", seconds=PATIENCE_S)
        rig.kill_by_turns(rounds, topics, progress, STEP)
        counters[0].kill()
        rig.cluster.note("kill -9 of an instance of the application")
        so_far = progress()
        until(lambda: progress() >= so_far + STEP, "counts of the other", seconds=PATIENCE_S)
        expected = writer.finish()
        until(
            lambda: progress() >= expected.total(),
            f"{expected.total()} counts",
            seconds=PATIENCE_S,
            complaint=lambda: f"{progress()} came. {counters[1].complaint()}",
        )
    with committed(rig.cluster.bootstrap, COUNTS, "judge-again") as again:
        until(
            lambda: len(again.records) >= expected.total(), "all of them again", seconds=PATIENCE_S
        )
    judge(again.records, expected)
    judge(output.records, expected)
    return f"{expected.total()} words in {rounds * len(rig.cluster.ids)} kills, each counted once"


def judge(records: list[tuple[int, bytes, bytes]], expected: Counter[str]) -> None:
    """Each word's counts are 1, 2, 3... up to how often it was written."""
    counts: dict[str, list[int]] = defaultdict(list)
    for _, word, count in records:
        counts[word.decode()].append(int.from_bytes(count, "big"))
    for text, found in sorted(counts.items()):
        wrong = [(at, n) for at, n in enumerate(found, 1) if at != n][:5]
        assert not wrong, f"counts of {text!r} by position: {wrong}"
    assert {text: len(found) for text, found in counts.items()} == dict(expected)
