"""`strandline status` and what cannot be used: replicas without room or disk, and certificates."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from strandline.cli.status import print_cluster, print_partitions
from strandline.errors import StorageError
from strandline.node.status.broker_document import Certificate
from strandline.protocol.messages.inspect import InspectRequest
from strandline.storage.files import DiskFull
from strandline.types import BrokerId
from tests.node.world import World, failing

Print = Callable[[Any], None]


def printed(show: Print, world: World, capsys: pytest.CaptureFixture[str]) -> str:
    """What is shown of the only broker."""
    answer = world.connect().ask(InspectRequest(subject="status"), 0)
    show({BrokerId(1): json.loads(answer.document)})
    return capsys.readouterr().out


def make(world: World, kind: type[StorageError], *topics: str) -> None:
    """Topics of which no log can be made."""
    for topic in topics:
        world.files.on_call = failing({"create"}, f"/{topic}-0/", kind)
        world.create_topic(topic)
    world.files.on_call = None


def row(text: str, topic: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(f"{topic} ")]
    return found


@pytest.mark.parametrize(
    ("begins_days", "expires_days", "told"),
    [(-9, 9, "expires 20"), (-9, -1, "HAS EXPIRED 20"), (1, 9, "DOES NOT COUNT before 20")],
)
def test_the_time_of_a_certificate_is_told(
    capsys: pytest.CaptureFixture[str], begins_days: int, expires_days: int, told: str
) -> None:
    world, day_ms = World(), 86_400_000
    now_ms = world.now.wall_ms
    own = Certificate(
        listener="SSL",
        subject="CN=broker",
        kept_in="/broker.pem",
        begins_wall_ms=now_ms + begins_days * day_ms,
        expires_wall_ms=now_ms + expires_days * day_ms,
    )
    world.node.parts.certificates = lambda: [own]
    text = printed(print_cluster, world, capsys)
    assert f"The certificate of the listener SSL of broker 1 {told}" in text


def test_a_partition_that_stands_still_on_a_full_disk_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    world.create_topic("well")
    make(world, DiskFull, "late")
    text = printed(print_cluster, world, capsys)
    assert "fully replicated" not in text
    assert row(text, "late").endswith("a replica on broker 1 that can be used")
    assert "Broker 1 cannot use late/0 until there is room again: Cannot create " in text
    text = printed(print_partitions, world, capsys)
    assert "broker 1 cannot use its replica until there is room again: Cannot create " in text
    world.advance(10_000)
    text = printed(print_cluster, world, capsys)
    assert "All 2 partitions are fully replicated." in text
    assert "cannot use" not in text + printed(print_partitions, world, capsys)


def test_a_partition_whose_disk_failed_waits_for_no_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    make(world, StorageError, "bad")
    text = printed(print_cluster, world, capsys)
    assert row(text, "bad").endswith("a leader")
    assert "Broker 1 cannot use bad/0: Cannot create " in text
    assert "room" not in text


def test_of_many_partitions_ten_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    make(world, DiskFull, *(f"late-{number:02}" for number in range(12)))
    text = printed(print_cluster, world, capsys)
    (line,) = [line for line in text.splitlines() if "cannot use" in line]
    assert "late-09/0 and 2 more until there is room again: Cannot create " in line
    assert "late-10" not in line


def test_a_broker_that_does_not_say_what_waits_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Brokers before 0.2 do not."""
    world = World()
    make(world, DiskFull, "late")
    answer = world.connect().ask(InspectRequest(subject="status"), 0)
    document = json.loads(answer.document)
    for partition in document["partitions"]:
        del partition["delayed"]
    print_cluster({BrokerId(1): document})
    assert "Broker 1 cannot use late/0: Cannot create " in capsys.readouterr().out
