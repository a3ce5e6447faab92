"""Which seeds have producers that write in transactions, and how these behave.

One seed in five, drawn from a stream of its own: all other seeds stay what they are. The internal
topic of the coordinators is as small and as safe as the topics of the seed. Some faults strike the
coordinator of an id on purpose, some of them at the moment at which a decision is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.compacted import is_compacted
from strandline.sim.faults.draw import Draw
from strandline.sim.faults.moments import DECISION
from strandline.sim.plan import Action, ClientSpec, Options, TopicSpec

CHANCE: Final = 0.2
_BEGIN_US: Final = 300_000
_STRIKES_MAX: Final = 4
_COPIES: Final = 0.5
TRANSACTING: Final = ("transactional", "copier")
"""Kinds of clients that write in transactions."""


def with_transactions(
    options: Options, clients: tuple[ClientSpec, ...], random: Random
) -> tuple[Options, tuple[ClientSpec, ...]]:
    """The seed, perhaps with producers that write in transactions, and a reader of them."""
    if random.random() >= CHANCE:
        return options, clients
    replication = min(options.brokers, 3)
    settings = {
        "transaction.state.log.num.partitions": str(random.choice((1, 1, 2))),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(min(2, replication)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": random.choice(
            ("200", "1000")
        ),
    }
    topic = random.choice(options.topics)
    writers = tuple(
        _writer(f"x{number + 1}", topic, random)
        for number in range(random.choices((1, 2, 3), (55, 35, 10))[0])
    )
    reading = {"topic": topic.name, "partition": _all_of(topic), "by": "id"}
    reader = ClientSpec("consumer", "cx", reading | {"isolation": "committed", "from": "earliest"})
    clients = (*clients, *writers, reader, *_copiers(topic, options.topics, random))
    return replace(options, settings={**options.settings, **settings}), clients


def strikes_at_coordinators(draw: Draw) -> tuple[Action, ...]:
    """Faults of brokers that coordinate a transactional id; none in other seeds."""
    ids = [each.options["id"] for each in draw.clients if each.kind in TRANSACTING]
    random, options = draw.random, draw.options
    if not ids or random.random() < 0.3:
        return ()
    actions = []
    for _ in range(random.randint(1, _STRIKES_MAX)):
        at_us = random.randrange(_BEGIN_US, options.safety_us) // 1_000 * 1_000
        who = f"transactions:{random.choice(ids)}"
        wishes = {"when": DECISION, "wait": "2s"} if random.random() < 0.6 else {}
        verb = random.choice(("kill", "kill", "pause", "isolate"))
        lasts = {"down": draw.time()} if verb == "kill" else {"for": draw.time()}
        actions.append(Action(at_us, verb, (who,), lasts | wishes))
    return tuple(actions)


def _copiers(
    source: TopicSpec, topics: Sequence[TopicSpec], random: Random
) -> Iterator[ClientSpec]:
    """Perhaps a client that consumes, transforms and produces, to a partition of its own. Nothing
    may be compacted of what it reads and writes, else it could not be compared."""
    if is_compacted(source):
        return
    targets = [
        (topic.name, number)
        for topic in topics
        if not is_compacted(topic)
        for number in range(topic.partitions)
        if (topic.name, number) != (source.name, 0)
    ]
    if random.random() < _COPIES and targets:
        topic, number = random.choice(targets)
        options = {"id": "k1", "from": source.name, "topic": topic, "partition": str(number)}
        options |= {"by": "id", "every": random.choice(("30ms", "100ms"))}
        options["dies"] = random.choice(("0", "5", "15"))
        options["sleeps"] = random.choice(("0", "5", "15"))
        options["nap"] = random.choice(("300ms", "1s", "3s"))
        yield ClientSpec("copier", "k1", options)


def _writer(name: str, topic: TopicSpec, random: Random) -> ClientSpec:
    options = {"id": name, "topic": topic.name, "partition": _all_of(topic), "by": "id"}
    options["version"] = random.choice(("1", "2", "2"))
    if options["version"] == "1":
        # Produce names topics by their ids only in versions that are of the second protocol.
        options["by"] = "any"
    options["every"] = random.choice(("30ms", "100ms", "300ms"))
    options["batches"] = random.choice(("1", "3", "6"))
    options["records"] = random.choice(("1", "2", "5"))
    options["aborts"] = random.choice(("0", "20", "50"))
    options["dies"] = random.choice(("0", "0", "5", "15"))
    options["sleeps"] = random.choice(("0", "5", "15"))
    options["nap"] = random.choice(("300ms", "1s", "3s"))
    options["in-flight"] = random.choice(("1", "1", "5"))
    if random.random() < 0.6:
        options["offsets"] = "yes"
    if random.random() < 0.15:
        options["timeout"] = random.choice(("500ms", "2s"))
    if is_compacted(topic):
        options["keys"] = random.choice(("1", "3", "10"))
        options["tombstones"] = random.choice(("0", "20"))
    options |= {"strange-times": "0", "misdated": "0", "large": "0"}
    return ClientSpec("transactional", name, options)


def _all_of(topic: TopicSpec) -> str:
    return ",".join(str(number) for number in range(topic.partitions))
