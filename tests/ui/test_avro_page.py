"""Avro on the page: its server beside a real cluster and a registry, and what a browser shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.testing import Cluster
from tests.cli.conftest import Serving
from tests.schemas.values import LittleRegistry, avro, framed, little_registry
from tests.ui.browser import Tab
from tests.ui.server import Page, page_for

pytestmark = pytest.mark.xdist_group("ui")

KEY = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}
VALUE = {
    "type": "record",
    "name": "V",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[LittleRegistry]:
    with little_registry() as running:
        running.register(3, KEY)
        running.register(7, VALUE)
        yield running


@pytest.fixture(scope="module")
def avro_page(
    cluster: Cluster, registry: LittleRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    """A page that knows the registry, and a file for the topic `weather`."""
    directory = tmp_path_factory.mktemp("schemas")
    (directory / "weather-value.avsc").write_text(json.dumps(VALUE))
    environment = {"STRANDLINE_SCHEMA_REGISTRY": registry.address}
    with page_for(
        cluster.bootstrap_servers, "--schemas", str(directory), environment=environment
    ) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def written(cluster: Cluster) -> None:
    """Three framed records, one of an unknown schema, one with a byte too many; plain ones."""
    cluster.create_topic("flights", partitions=1, replication_factor=1)
    cluster.create_topic("weather", partitions=1, replication_factor=1)
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        for number in range(3):
            value = avro(VALUE, {"carrier": "UA", "delay": number or None})
            key = framed(3, avro(KEY, {"id": number}))
            producer.send("flights", framed(7, value), key=key, partition=0)
        producer.send("flights", framed(8, value), partition=0)
        producer.send("flights", framed(7, value + b"\x00"), partition=0)
        producer.send("weather", value, partition=0)
        producer.flush()


def records(page: Page, topic: str = "flights", **query: Any) -> Any:
    answer = page.get(f"/api/topics/{topic}/0/records", **query)
    assert answer.status == 200, answer.text
    return answer.json["records"]


def test_framed_records_are_decoded_by_the_registry(
    avro_page: Page, registry: LittleRegistry
) -> None:
    found = records(avro_page, at="earliest")
    assert found[1]["key"] == {"as": "avro", "schema": "schema 3", "text": '{\n  "id": 1\n}'}
    assert json.loads(found[1]["value"]["text"]) == {"carrier": "UA", "delay": 1}
    assert found[3]["value"]["as"] == "hex"
    assert (
        f"Schema 8 is not known to the schema registry at {registry.address}"
        in (found[3]["value"]["reason"])
    )
    assert found[4]["value"]["reason"] == "After the Avro value, 1 bytes are left."
    records(avro_page, at="earliest")
    assert sorted(registry.asked) == ["/schemas/ids/3", "/schemas/ids/7", "/schemas/ids/8"]


def test_plain_records_are_decoded_by_the_topics_file(avro_page: Page) -> None:
    (found,) = records(avro_page, "weather", values="avro")
    assert found["value"]["schema"] == "weather-value.avsc"
    assert json.loads(found["value"]["text"]) == {"carrier": "UA", "delay": 2}


def test_records_are_found_by_offset_time_and_decoded_key(avro_page: Page) -> None:
    for form in ("auto", "avro"):
        (found,) = records(avro_page, at=1, key='{"id": 2}', keys=form)
        assert found["offset"] == 2
    assert records(avro_page, at="earliest", key='{"id": 2}', keys="bytes") == []
    by_bytes = records(avro_page, at="earliest", key="00 00 00 00 03 04", keys="bytes")
    assert [each["offset"] for each in by_bytes] == [2]
    assert [each["offset"] for each in records(avro_page, at="latest", limit=2)] == [3, 4]
    assert [each["offset"] for each in records(avro_page, at="time:0", limit=1)] == [0]


def test_each_part_is_decoded_as_the_user_chose(page: Page, avro_page: Page) -> None:
    first = records(avro_page, at="earliest", keys="bytes", values="text")[0]
    assert first["key"] == {"as": "hex", "text": "00 00 00 00 03 00"}
    assert first["value"]["as"] == "text"
    answer = avro_page.get("/api/topics/flights/0/records", values="xml")
    assert answer.status == 400
    assert answer.json["error"] == "'values' is one of auto, json, text, bytes, avro, not 'xml'."
    # Nothing was named to this one.
    without = records(page, at="earliest")[0]["value"]
    assert "no schema registry was named (--schema-registry URL)" in without["reason"]


def test_serve_gives_the_registry_to_its_page_only(
    registry: LittleRegistry, tmp_path: Path
) -> None:
    url = registry.address.replace("http://", "http://reader:secret@")
    serving = Serving(
        "serve", "--ui", "--schema-registry", url, "--schemas", str(tmp_path),
        "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0",
    )  # fmt: skip
    try:
        (address,) = re.findall(r"^  page +(\S+)$", "\n".join(serving.said), re.MULTILINE)
        arguments = [
            Path(f"/proc/{number}/cmdline").read_bytes()
            for told in Path(f"/proc/{serving.process.pid}/task").glob("*/children")
            for number in told.read_text().split()
        ]
        assert any(b"strandline.ui" in each for each in arguments)
        assert not any(b"secret" in each for each in arguments)
        with ClusterClient(serving.address) as client:
            producer = Producer(client)
            producer.send("made", framed(7, avro(VALUE, {"carrier": "UA", "delay": 1})))
            producer.flush()
        (found,) = records(Page(address), "made", at="earliest")
        assert found["value"]["schema"] == "schema 7"
    finally:
        ended = serving.stop()
    assert ended.code == 0
    assert "secret" not in ended.out + ended.err + "\n".join(serving.said)


def test_a_browser_shows_avro_and_why_not(avro_page: Page, tab: Tab) -> None:
    tab.complaints.clear()
    for dark in (False, True):
        tab.size(360, 740, dark=dark)
        tab.open("about:blank")
        tab.open(f"{avro_page.address}#/topics/flights/0/records")
        tab.wait_for('"carrier": "UA"')
        tab.wait_for("Avro, schema 7")
        tab.wait_for("Schema 8 is not known to the schema registry")
        assert tab.overflow == 0
        tab.value(
            "(() => { document.querySelector('select[name=values]').value = 'bytes'; "
            "document.querySelector('form').requestSubmit(); })()"
        )
        tab.wait_until("!document.body.innerText.includes('Avro, schema 7')")
        assert "00 00 00 00 07 04 55 41" in tab.text
        assert "Avro, schema 3" in tab.text
        assert tab.overflow == 0
    tab.size(1200, 800)
    assert not tab.complaints
