"""The document that the live page shows of tables, of real stores and a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.service import showing
from strandline.lakehouse.service.showing import TablesShown
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import open_store
from tests.lakehouse.tables.table_world import TableWorld


def table_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in document["tables"] if each["name"] == name]
    return dict(found)


def test_tables_beside_their_logs(
    client: ClusterClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(2)
    with Producer(client) as producer:
        for number in range(5):
            producer.send(topic, b'{"n": %d}' % number, partition=number % 2)
        producer.flush().raise_failure()
    world = TableWorld(tmp_path / "orders", name="orders", topics=(topic,))
    save_spec(world.spec)
    written = world.task([{"n": 1}, b"{"], partition=0, topic=topic)
    world.store.commit(BatchIdentity("q", 0, (OffsetRange(topic, 0, 0, 2),)), [written])
    save_spec(TableWorld.spec_in(tmp_path / "never", name="never", topics=(topic,)))
    broken = TableWorld.spec_in(tmp_path / "gone", name="gone", topics=("no-such-topic",))
    open_store(broken, create=True)
    save_spec(broken)

    shown = TablesShown(Location.parse(tmp_path))
    document = shown.document(client, {})
    orders = table_of(document, "orders")
    assert orders["trouble"] is None
    assert orders["partitions"] == [[topic, 0, 0, 2, 1], [topic, 1, 0, 0, 2]]
    assert orders["lag"]["records"] == 3
    assert orders["lag"]["seconds"] >= 0
    assert orders["held"]["rows"]["rows"] == 1
    [commit] = orders["commits"]
    assert (commit["kind"], commit["rows"], commit["dead"], commit["offsets"]) == ("batch", 1, 1, 2)
    assert orders["letters"]["classes"] == {"BadValue": 1}
    [letter] = orders["letters"]["newest"]
    assert (letter["offset"], letter["class"]) == (1, "BadValue")
    assert letter["error"]
    assert "never run" in table_of(document, "never")["trouble"]
    assert "no-such-topic" in table_of(document, "gone")["trouble"]

    with monkeypatch.context() as unchanged:
        unchanged.setattr(showing, "_contents", None)  # what has not changed is not read again
        assert table_of(shown.document(client, {}), "orders")["commits"] == orders["commits"]
    later = world.task([{"n": 3}], start=2, partition=0, topic=topic)
    world.store.commit(BatchIdentity("q", 1, (OffsetRange(topic, 0, 2, 3),)), [later])
    orders = table_of(shown.document(client, {}), "orders")
    assert [each["commit"] for each in orders["commits"]] == [2, 1]
    assert orders["lag"]["records"] == 2
