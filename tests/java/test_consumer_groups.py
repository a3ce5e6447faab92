"""Groups of the consumer protocol (KIP-848) beside a real Kafka, and under Kafka's own tools."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from strandline.client.admin_groups import GroupAdmin, GroupDescription
from strandline.client.cluster import ClusterClient
from tests.java.kafka_broker import NODE_ID, Kafka
from tests.java.processes import PATIENCE_SECONDS, Broker, Process, ToolServer, Workshop
from tests.java.tables import CONFIGS, GROUPS, TOOLS, table

SETTINGS = (f"node.id={NODE_ID}", "offsets.topic.num.partitions=4")
QUICK = ("group.consumer.min.heartbeat.interval.ms=200", "group.consumer.heartbeat.interval.ms=200")
GROUP = "readers"


def description(address: str, group: str = GROUP) -> GroupDescription:
    """A group without what differs between brokers."""
    with ClusterClient(address) as client:
        found = GroupAdmin(client).describe(group)
    members = sorted(found.members, key=lambda member: member.member_id)
    return replace(found, coordinator="", members=tuple(members))


def consumer(address: str, **more: Any) -> Consumer:
    settings = {
        "bootstrap.servers": address,
        "group.id": GROUP,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return Consumer(settings | {name.replace("_", "."): value for name, value in more.items()})


def poll_until(members: list[Consumer], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        for member in members:
            member.poll(0.05)


def shares(members: list[Consumer]) -> list[int]:
    return sorted(len(member.assignment()) for member in members)


def make_topic(address: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": address})
    for number in range(partitions * 5):
        producer.produce(name, str(number), partition=number % partitions)
    assert producer.flush(PATIENCE_SECONDS) == 0


def test_a_group_of_kafkas_lives_on_in_strandline_and_back_in_kafka(
    workshop: Workshop, tools: ToolServer
) -> None:
    """Members, epochs, targets, patterns and offsets are the same; living members go on."""
    kafka = Kafka(workshop, tools, workshop.directory / "kafka-groups")
    kafka.start(*QUICK)
    make_topic(kafka.address, "orders", 6)
    members = [
        consumer(kafka.address, group_instance_id="static"),
        consumer(kafka.address, client_id="named"),
    ]
    members[0].subscribe(["orders"])
    members[1].subscribe(["^ord.*"])
    poll_until(members, lambda: shares(members) == [3, 3])
    mine = members[0].assignment()
    members[0].commit(offsets=[TopicPartition("orders", p.partition, 4) for p in mine])
    poll_until(members, lambda: all(p.offset == 4 for p in members[0].committed(mine, 30)))
    theirs = description(kafka.address)
    assert (theirs.group_type, theirs.state) == ("consumer", "Stable")
    assert [len(each.target or ()) for each in theirs.members] == [3, 3]
    kafka.kill()
    for member in members:
        member.close()

    data = workshop.directory / "groups-in-strandline"
    shutil.copytree(kafka.data, data)
    broker = workshop.broker(data, *SETTINGS, *QUICK)
    assert description(broker.address) == theirs
    with ClusterClient(broker.address) as client:
        offsets = GroupAdmin(client).offsets(GROUP)
        assert {at.partition: each.offset for at, each in offsets.items()} == {
            each.partition: 4 for each in mine
        }
    newcomer = consumer(broker.address, client_id="newcomer")
    newcomer.subscribe(["orders"])
    poll_until([newcomer], lambda: len(description(broker.address).members) == 3)
    ours = description(broker.address)
    broker.kill()
    newcomer.close()

    kafka.move_to(data)
    kafka.start(*QUICK, "log.cleaner.enable=false")
    assert description(kafka.address) == ours
    again = consumer(kafka.address, client_id="again")
    again.subscribe(["orders"])
    poll_until([again], lambda: len(description(kafka.address).members) == 4)
    again.close()
    kafka.stop()


def test_kafkas_tools_see_a_group_of_ours(
    workshop: Workshop, tools: ToolServer, broker: Broker
) -> None:
    make_topic(broker.address, "seen", 4)

    def tool(main: str, *arguments: str) -> str:
        return tools.run(main, *arguments, "--bootstrap-server", broker.address).succeeded()

    said = tool(
        CONFIGS,
        *("--alter", "--entity-type", "groups", "--entity-name", "watched"),
        *("--add-config", "consumer.session.timeout.ms=50000"),
    )
    assert "Completed updating" in said
    said = tool(CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "watched")
    assert "consumer.session.timeout.ms=50000" in said
    member: Process = workshop.java(
        TOOLS + "VerifiableConsumer",
        *("--bootstrap-server", broker.address, "--topic", "seen", "--group-id", "watched"),
        *("--group-protocol", "consumer", "--reset-policy", "earliest"),
        *("--group-remote-assignor", "range"),
    )
    read = 0
    while read < 20:
        line = member.line()
        assert line is not None, member.complaint()
        event = json.loads(line)
        read += event.get("count", 0) if event["name"] == "records_consumed" else 0
    (listed,) = (
        row for row in table(tool(GROUPS, "--list", "--type")) if row["GROUP"] == "watched"
    )
    assert listed["TYPE"] == "Consumer"
    said = tool(TOOLS + "GroupsCommand", "--list", "--group-type", "consumer")
    assert {"GROUP": "watched", "TYPE": "Consumer", "PROTOCOL": "consumer"} in table(said)
    (state,) = table(tool(GROUPS, "--describe", "--group", "watched", "--state", "--verbose"))
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "range")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] == "2"
    (row,) = table(tool(GROUPS, "--describe", "--group", "watched", "--members", "--verbose"))
    assert (row["CURRENT-EPOCH"], row["TARGET-EPOCH"], row["#PARTITIONS"]) == ("2", "2", "4")
    assert member.end() in (0, 143)
    (state,) = table(tool(GROUPS, "--describe", "--group", "watched", "--state"))
    assert state["STATE"] == "Empty"
    assert "successful" in tool(GROUPS, "--delete", "--group", "watched")
