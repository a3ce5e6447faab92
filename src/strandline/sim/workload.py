"""The clients that a seed draws: at least one producer, and mostly readers of several kinds.

Drawn per seed, like everything else: a run with one slow plain producer and one with three
idempotent ones at full speed find different things. This file knows the lines of clients, not what
they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import ClientSpec, Options, TopicSpec
from strandline.sim.streams import Streams
from strandline.sim.transacting import TRANSACTING

GROUP = "g"
NEAREST: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SELECTOR: Final = "replica.selector.class"
_NAMED: Final = 0.25
_NAMED_EACH: Final = 0.8
_NAMING: Final = ("producer", "consumer")
PAUSES: Final = ("30ms", "80ms", "150ms", "200ms", "300ms", "500ms")
"""Of producers, between two batches; the shortest first."""
_ASSIGNORS: Final = ("range", "range", "roundrobin", "sticky", "cooperative-sticky")


def draw_askers(options: Options, random: Random) -> tuple[ClientSpec, ...]:
    """Who asks for records by their times; drawn by itself, so that all others stay as they are."""
    if random.random() >= 0.25:
        return ()
    topic = random.choice(options.topics)
    wishes = {"topic": topic.name, "every": random.choice(("100ms", "300ms", "1s"))}
    return (ClientSpec("times", "q1", wishes | {"partition": _partitions(topic, random)}),)


def with_near_readers(
    options: Options, clients: tuple[ClientSpec, ...], random: Random
) -> tuple[Options, tuple[ClientSpec, ...]]:
    """Where brokers have racks, readers mostly have one as well and are sent to replicas in it."""
    if not options.racks or random.random() >= 0.8:
        return options, clients
    settings = {**options.settings, _SELECTOR: NEAREST}
    near = tuple(
        replace(each, options={"rack": random.choice(options.racks), **each.options})
        if each.kind == "consumer"
        else each
        for each in clients
    )
    return replace(options, settings=settings), near


def with_names(clients: tuple[ClientSpec, ...], random: Random) -> tuple[ClientSpec, ...]:
    """In some seeds most producers and consumers speak versions of any age, and so name topics by
    their names, as librdkafka does."""
    if random.random() >= _NAMED:
        return clients
    usual = {"by": random.choice(("name", "any", "any")), "versions": "drawn"}
    return tuple(
        replace(each, options={**each.options, **usual})
        if each.kind in _NAMING and random.random() < _NAMED_EACH
        else each
        for each in clients
    )


def meant_by_name(clients: Iterable[ClientSpec]) -> set[str]:
    """The topics that clients may take for another one if the name is given anew."""
    kinds = (*TRANSACTING, *_NAMING)
    return {
        each.options["topic"]
        for each in clients
        if each.kind in kinds and each.options.get("by") != "id"
    }


def draw_clients(options: Options, random: Random) -> tuple[ClientSpec, ...]:
    """The clients of a run."""
    topics = options.topics
    usual = _usual(random)
    clients = [
        _producer(f"p{number + 1}", random.choice(topics), usual, random)
        for number in range(random.choices((1, 2, 3), (35, 45, 20))[0])
    ]
    clients += [
        _consumer(f"c{number + 1}", random.choice(topics), options, usual, random)
        for number in range(random.choices((0, 1, 2), (15, 50, 35))[0])
    ]
    if random.random() < 0.35:
        # A stream of its own, so that the other clients of a seed stay what they are.
        own = Streams(options.seed)("assignors")
        drawn = {"assignors": own.choice(_ASSIGNORS), "rejoins": own.choice(("yes", "yes", "no"))}
        clients += _group(topics, usual | drawn, random)
    if random.random() < 0.4:
        clients.append(_ends("e1", random.choice(topics), usual, random))
    if random.random() < 0.1:
        wishes = {"topic": random.choice(topics).name, "every": random.choice(("300ms", "1s"))}
        clients.append(ClientSpec("garbage", "x1", wishes))
    return tuple(clients)


def _usual(random: Random) -> dict[str, str]:
    """What all clients of a run have in common."""
    # Topics are addressed by id, since a plan may delete a topic and make it anew (`with_names`).
    usual = {"by": "id"}
    if random.random() < 0.3:
        usual["versions"] = "drawn"
    return usual


def _partitions(topic: TopicSpec, random: Random) -> str:
    if random.random() < 0.5:
        return str(random.randrange(topic.partitions))
    return ",".join(str(number) for number in range(topic.partitions))


def _producer(name: str, topic: TopicSpec, usual: dict[str, str], random: Random) -> ClientSpec:
    options = {"topic": topic.name, "partition": _partitions(topic, random)}
    kind = random.random()
    if kind < 0.55:
        options |= {"idempotent": "yes", "in-flight": str(random.choice((1, 2, 5, 5)))}
    else:
        options["acks"] = random.choices(("all", "1", "0"), (55, 35, 10))[0]
        options["in-flight"] = str(random.choice((1, 1, 2, 5)))
    options["every"] = random.choice(PAUSES)
    options["records"] = str(random.choice((1, 2, 3, 8)))
    options["size"] = str(random.choice((0, 20, 20, 20, 200, 200, 3_000)))
    if random.random() < 0.25:
        options["keys"] = str(random.choice((1, 3, 10)))
    if random.random() < 0.5:
        options["compressed"] = "0"
    return ClientSpec("producer", name, options | usual)


def _consumer(
    name: str, topic: TopicSpec, options: Options, usual: dict[str, str], random: Random
) -> ClientSpec:
    wishes = {"topic": topic.name, "partition": _partitions(topic, random)}
    wishes["from"] = random.choice(("earliest", "earliest", "latest"))
    wishes["isolation"] = random.choice(("uncommitted", "committed"))
    wishes["sessions"] = random.choice(("yes", "yes", "no"))
    wishes["max-wait"] = random.choice(("50ms", "200ms", "500ms", "500ms"))
    if options.racks and random.random() < 0.5:
        wishes["rack"] = random.choice(options.racks)
    if random.random() < 0.3:
        wishes["partition-max-bytes"] = random.choice(("1", "100", "1000"))
    if random.random() < 0.2:
        wishes["min-bytes"] = random.choice(("200", "5000"))
    if random.random() < 0.3:
        wishes["pause"] = random.choice(("10ms", "100ms", "1s"))
    return ClientSpec("consumer", name, wishes | usual)


def _group(
    topics: tuple[TopicSpec, ...], usual: dict[str, str], random: Random
) -> list[ClientSpec]:
    wishes = {
        "group": GROUP,
        "topic": ",".join(topic.name for topic in topics[: random.choice((1, 1, 2))]),
        "max-wait": random.choice(("100ms", "200ms", "500ms")),
        "commit-every": random.choice(("200ms", "500ms", "1s")),
        "session": random.choice(("1s", "2s", "6s")),
        "rebalance": random.choice(("1s", "3s")),
    }
    members = []
    for number in range(random.choices((1, 2, 3), (40, 40, 20))[0]):
        mine = dict(wishes)
        if random.random() < 0.25:
            mine["static"] = "yes"
        if random.random() < 0.4:
            mine["stay"] = random.choice(("1s", "3s"))
            mine["away"] = random.choice(("300ms", "2s"))
            mine["goes"] = random.choice(("leave", "vanish"))
        members.append(ClientSpec("group", f"m{number + 1}", mine | usual))
    return members


def _ends(name: str, topic: TopicSpec, usual: dict[str, str], random: Random) -> ClientSpec:
    wishes = {
        "topic": topic.name,
        "partition": _partitions(topic, random),
        "every": random.choice(("100ms", "300ms", "1s")),
    }
    return ClientSpec("ends", name, wishes | usual)
