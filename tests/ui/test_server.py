"""What the page's server answers, and to whom."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

import strandline
from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from strandline.ui.decoding import decoded
from strandline.ui.questions import lags
from tests.ui.server import PATIENCE_S, Page

pytestmark = pytest.mark.xdist_group("ui")


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> Cluster:
    """Ten records with keys a and b in turn, and a tombstone."""
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        for number in range(10):
            value = json.dumps({"n": number}).encode() if number != 9 else None
            producer.send("orders", value, key=b"ab"[number % 2 :][:1], partition=0)
        producer.flush()
    return cluster


# -- Who may ask -------------------------------------------------------------------------------


def test_another_name_is_not_answered(page: Page) -> None:
    """A foreign name that resolves to this machine (DNS rebinding)."""
    assert page.get("/", headers={"Host": "evil.example:80"}).status == 421
    assert page.get("/api/scenarios", headers={"Host": "evil.example"}).status == 421


def test_another_site_cannot_ask_for_changes(page: Page) -> None:
    body = {"text": "title: t\nreplicas: A\n"}
    assert page.post("/api/scenarios", body, Origin="http://evil.example").status == 403
    assert page.post("/api/scenarios", body, Content_Type="text/plain").status == 415
    assert page.post("/api/scenarios", {"text": "x" * 70_000}).status == 413
    assert page.post("/api/scenarios", body).status == 200


def test_nothing_comes_from_elsewhere(page: Page) -> None:
    answer = page.get("/")
    assert answer.status == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "http://" not in answer.text
    assert "https://" not in answer.text


# -- The cluster -------------------------------------------------------------------------------


def events(page: Page, count: int) -> list[dict[str, Any]]:
    """The first pictures of a new stream."""
    found: list[dict[str, Any]] = []
    with urllib.request.urlopen(f"{page.address}api/events", timeout=PATIENCE_S) as stream:
        for line in stream:
            if line.startswith(b"data: {"):
                found.append(json.loads(line[6:]))
            if len(found) == count:
                break
    return found


def test_pages_are_told_of_all_and_then_of_changes(page: Page, written: Cluster) -> None:
    first, second = events(page, 2)
    assert [each["id"] for each in first["brokers"]] == [1, 2, 3]
    (row,) = [each for each in first["partitions"] if each[0] == "orders"]
    assert len(row[6]) == 3
    assert first["since"] is None
    assert second["since"] == first["number"]


def test_the_past_is_kept(page: Page, written: Cluster) -> None:
    events(page, 2)
    moments = page.get("/api/moments").json["moments"]
    assert len(moments) >= 2
    kept = page.get(f"/api/moments/{moments[-1][0]}").json
    assert kept["number"] == moments[-1][0]
    assert page.get("/api/moments/999999").status == 404


def records(page: Page, **query: Any) -> Any:
    return page.get("/api/topics/orders/0/records", **query).json


def test_records_by_offset_time_and_key(page: Page, written: Cluster) -> None:
    first = records(page, at="earliest", limit=3)
    assert [each["offset"] for each in first["records"]] == [0, 1, 2]
    assert (first["next"], first["end"]) == (3, 10)
    assert first["records"][0]["value"] == {"as": "json", "text": '{\n  "n": 0\n}'}
    last = records(page, at="latest", limit=2)
    assert [each["offset"] for each in last["records"]] == [8, 9]
    assert last["records"][1]["value"] is None
    of_a = records(page, at=1, key="a")
    assert [each["offset"] for each in of_a["records"]] == [2, 4, 6, 8]
    assert of_a["next"] == 10
    assert records(page, at="time:0", limit=1)["records"][0]["offset"] == 0


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/topics/orders/0/records?at=soon", 400, "'at' is a whole number, not 'soon'."),
        ("/api/topics/orders/0/records?limit=-1", 400, "'limit' is a whole number"),
        (f"/api/topics/orders/0/records?at={'9' * 5000}", 400, "'at' is a whole number"),
        ("/api/topics/orders/77/records", 404, "[UNKNOWN_TOPIC_OR_PARTITION]"),
        ("/api/topics/nowhere/settings", 404, "[UNKNOWN_TOPIC_OR_PARTITION]"),
        ("/api/scenarios/x-99", 400, "There is no scenario 'x-99'."),
    ],
)
def test_what_makes_no_sense_is_a_sentence(
    page: Page, path: str, status: int, sentence: str
) -> None:
    answer = page.get(path)
    assert (answer.status, sentence in answer.json["error"]) == (status, True), answer.text


def test_groups_have_their_lag(page: Page, written: Cluster) -> None:
    with ClusterClient(written.bootstrap_servers) as client:
        GroupAdmin(client).set_offsets("readers", {TopicPartition("orders", 0): Offset(4)})
    group = page.get("/api/groups").json["groups"][0]
    assert (group["group"], group["lag"]) == ("readers", 6)
    assert group["partitions"] == [["orders", 0, 4, 10, 6]]
    with ClusterClient(written.bootstrap_servers) as client:
        assert lags(client, {}, {("orders", 0): 10}) == {"readers": 6}
        assert lags(client, {}, {("orders", 0): None}) == {}  # and not 0


def test_share_groups_have_the_lag_that_they_tell(page: Page, written: Cluster) -> None:
    mine = {"bootstrap.servers": written.bootstrap_servers, "group.id": "workers"}
    with strandline.Admin({"bootstrap.servers": written.bootstrap_servers}) as admin:
        admin.alter_group_config("workers", set_to={"share.auto.offset.reset": "earliest"})
    with strandline.ShareConsumer(mine) as worker:
        worker.subscribe(["orders"])
        assert len(worker.poll(int(PATIENCE_S) * 1000)) == 10
        found = {each["group"]: each for each in page.get("/api/groups").json["groups"]}
        assert (found["workers"]["type"], found["workers"]["lag"]) == ("share", 10)
        assert found["workers"]["partitions"] == [["orders", 0, 0, None, 10]]
    with ClusterClient(written.bootstrap_servers) as client:
        assert lags(client, {}, {})["workers"] == 10


def test_open_transactions_say_who_waits_for_them(page: Page, written: Cluster) -> None:
    written.create_topic("till")
    mine = {"bootstrap.servers": written.bootstrap_servers, "transactional.id": "till-3"}
    with strandline.Producer(mine) as producer:
        producer.begin()
        producer.send("till", b"undecided")
        producer.flush().raise_failure()
        told = page.get("/api/transactions").json
        [found] = told["transactions"]
        assert (found["transactional_id"], found["state"]) == ("till-3", "Ongoing")
        assert found["partitions"] == [["till", 0]]
        assert told["waiting"] == [["till", 0, 0, 1, found["producer"]]]
    # Nor does the page cause what it then reports.
    brokers = page.get("/api/topics/till/0").json["brokers"].values()
    refused = {each["api"] for told in brokers for each in told["refusals"]}
    assert "DESCRIBE_TRANSACTIONS" not in refused


def test_metrics_are_those_of_all_brokers(page: Page, written: Cluster) -> None:
    answer = page.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {f'broker="{number}"' in answer.text for number in (1, 2, 3)} == {True}


def test_a_partition_is_told_by_every_broker(page: Page, written: Cluster) -> None:
    told = page.get("/api/topics/orders/0").json["brokers"]
    assert {each["replicas"][0]["log_end_offset"] for each in told.values()} == {10}


# -- Scripts that a user types -----------------------------------------------------------------


def test_a_typed_script_is_played(page: Page) -> None:
    answer = page.post("/api/scenarios", {"text": "title: t\nreplicas: A B\n\nfetch B\n"})
    assert answer.json["runs"][0]["frames"][-1]["text"] == "fetch B"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"text": "title: t\nreplicas: A B\n\nfly B\n"}, "script, line 4: There is no verb 'fly'."),
        ({"text": "x" * 20_001}, "at most 20000 characters"),
        ({"text": 7}, "A script is sent as"),
        ({"text": "title: \ud800\nreplicas: A\n"}, "The script is not text."),
        (
            {"text": "title: t\nreplicas: A\n\n" + "produce A m0..m999\n" * 1000},
            "was not at its end",
        ),
    ],
)
def test_a_script_that_cannot_be_played_is_a_sentence(
    page: Page, body: object, sentence: str
) -> None:
    answer = page.post("/api/scenarios", body)
    assert answer.status == 400
    assert sentence in answer.json["error"]


def test_bytes_are_shown_as_what_they_are() -> None:
    assert decoded(b"\xff\x00") == {"as": "hex", "text": "ff 00"}
    assert decoded(b"hello") == {"as": "text", "text": "hello"}
    assert decoded(b"{broken") == {"as": "text", "text": "{broken"}
    assert decoded(b"[" * 50_000) == {"as": "text", "text": "[" * 16_384, "size": 50_000}
    assert decoded(None) is None
