"""Starting on logs whose settings are unknown, and remembering that logs were adopted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from strandline.broker.running import Broker
from strandline.broker.startup import start_broker
from strandline.cluster.image import ClusterImage
from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.config.load import load_broker_config
from tests.storage.test_old_format import messages


def started_on(directory: Path) -> tuple[ClusterImage, list[str]]:
    """The image and the notices of one start that ended cleanly."""

    async def once() -> tuple[ClusterImage, list[str]]:
        config = load_broker_config(
            overrides=["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}"]
        ).config
        broker: Broker = await start_broker(config)
        image = broker.node.metadata.image
        assert await broker.stop()
        return image, list(broker.report.notices)

    return asyncio.run(once())


def overrides(image: ClusterImage, topic: str) -> dict[str, str]:
    return dict(image.overrides(ConfigResource(ResourceKind.TOPIC, topic)))


def test_unknown_settings_keep_records_for_ever(tmp_path: Path) -> None:
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(b"damaged" * 20)
    image, notices = started_on(tmp_path)
    assert image.topics["orders"].partitions.keys() == {0, 1}
    assert overrides(image, "orders") == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert any("cannot be read" in notice for notice in notices)
    assert any("kept for ever until retention.ms is set" in notice for notice in notices)
    again, notices = started_on(tmp_path)
    assert overrides(again, "orders") == overrides(image, "orders")
    assert not any("cannot be read" in notice for notice in notices)


def test_a_log_from_before_kafka_0_11_is_adopted_unread(tmp_path: Path) -> None:
    log = tmp_path / "orders-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(messages(3))
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version": 0, "brokerEpoch": 7}')
    image, notices = started_on(tmp_path)
    assert image.topics["orders"].partitions.keys() == {0}
    assert any("orders-0 cannot be used" in n and "message of format 1" in n for n in notices)
    assert (log.read_bytes(), [each.name for each in log.parent.iterdir()]) == (
        messages(3),
        [log.name],
    )


def test_a_log_that_appears_after_the_first_start_is_set_aside(tmp_path: Path) -> None:
    """It may be what is left of a deleted topic."""
    image, notices = started_on(tmp_path)
    assert (image.topics, notices) == ({}, [])
    (tmp_path / "orders-0").mkdir()
    image, notices = started_on(tmp_path)
    assert image.topics == {}
    assert any("orders-0" in notice and "-stray" in notice for notice in notices)
