"""What the page may change with `--edit`, charts, the map and the tail: one server, one tab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from strandline.cli.main import cli
from strandline.testing import Cluster
from tests.ui.browser import Tab
from tests.ui.server import Page, page_for

pytestmark = pytest.mark.xdist_group("ui")


@pytest.fixture(scope="module")
def editable(cluster: Cluster) -> Iterator[Page]:
    cluster.create_topic("notes", partitions=2, replication_factor=1, retention_ms=7_200_000)
    with page_for(cluster.bootstrap_servers, "--edit") as server:
        yield server


def test_nothing_is_changed_without_edit(page: Page) -> None:
    assert page.get("/api/edit").json == {"allowed": False}
    refused = page.post("/api/topics/orders/records", {"value": "x"})
    assert (refused.status, "--edit" in refused.json["error"]) == (403, True)
    assert page.post("/api/groups/g/offsets", {"topic": "orders", "to": "latest"}).status == 403


def test_a_record_is_produced_and_a_group_is_reset(editable: Page) -> None:
    assert editable.get("/api/edit").json == {"allowed": True}
    record = {"key": "k", "value": "grüße", "headers": [["who", "me"]], "partition": 1}
    done = editable.post("/api/topics/notes/records", record).json
    assert done == {"partition": 1, "offset": 0}
    assert editable.post("/api/topics/notes/records", {"partition": 1}).json["offset"] == 1
    first, second = editable.get("/api/topics/notes/1/records", at="earliest").json["records"]
    assert (first["key"]["text"], first["value"]["text"]) == ("k", "grüße")
    assert (first["headers"][0][0], second["value"]) == ("who", None)
    found = editable.get("/api/topics/notes/1/records", at="earliest", contains="GRÜ").json
    assert [each["offset"] for each in found["records"]] == [0]
    reset = editable.post("/api/groups/late/offsets", {"topic": "notes", "to": "latest"})
    assert reset.json["partitions"] == [["notes", 0, None, 0], ["notes", 1, None, 2]]
    reset = editable.post(
        "/api/groups/late/offsets", {"topic": "notes", "to": "offset", "value": 1}
    )
    assert reset.json["partitions"] == [["notes", 0, 0, 0], ["notes", 1, 2, 1]]


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("topics/notes/records", [], 400, "The body is a JSON object."),
        ("topics/notes/records", {"value": 7}, 400, "The text of 'value' is no text."),
        ("topics/notes/records", {"value": "x", "partition": "1"}, 400, "'partition'"),
        ("topics/notes/records", {"value": "x", "headers": ["a"]}, 400, "A header is a pair"),
        ("topics/notes/records", {"value": "x", "partition": 9}, 404, "partition 9"),
        ("topics/nowhere/records", {"value": "x"}, 404, "[UNKNOWN_TOPIC_OR_PARTITION]"),
        ("groups/late/offsets", {"topic": "notes", "to": "shift"}, 400, "'to' is one of"),
        ("groups/late/offsets", {"topic": "notes", "to": "offset"}, 400, "'value' is a whole"),
        ("groups/late/offsets", {"topic": "nowhere", "to": "latest"}, 404, "nowhere"),
    ],
)
def test_changes_that_make_no_sense_are_sentences(
    editable: Page, path: str, body: object, status: int, sentence: str
) -> None:
    answer = editable.post(f"/api/{path}", body)
    assert (answer.status, sentence in answer.json["error"]) == (status, True), answer.text


def test_series_are_told_by_kind(page: Page) -> None:
    told = page.get("/api/series", of="coarse").json
    assert told["columns"][0] == "wall_ms"
    assert page.get("/api/series", of="weekly").status == 400


def test_edit_goes_with_a_page() -> None:
    refused = CliRunner().invoke(cli, ["serve", "--edit"])
    assert (refused.exit_code, "add --ui" in refused.output) == (2, True)


# -- In a browser ------------------------------------------------------------------------------


def found(selector: str, condition: str) -> str:
    """An expression: the first such element of which a condition is true."""
    return f"[...document.querySelectorAll({selector!r})].find((each) => {condition})"


def type_into(tab: Tab, selector: str, text: str) -> None:
    tab.value(f"document.querySelector({selector!r}).value = {text!r}")


def test_a_form_produces_what_the_tail_shows(editable: Page, tab: Tab) -> None:
    tab.complaints.clear()
    tab.open(f"{editable.address}#/topics/notes/0/records")
    tab.wait_until("document.querySelector('.edit textarea')")
    follow = found("label", "each.innerText.includes('follow')")
    tab.value(f"{follow}.querySelector('input').click()")
    for number in range(2):
        tab.value("document.querySelector('.edit').open = true")
        type_into(tab, ".edit textarea", f"a note, number {number}")
        tab.value("document.querySelector('.edit button').click()")
        tab.wait_until(f"document.querySelector('pre')?.innerText === 'a note, number {number}'")
    assert not tab.complaints


def test_a_group_is_reset_while_its_numbers_change(
    cluster: Cluster, editable: Page, tab: Tab
) -> None:
    cluster.create_topic("four", partitions=1, replication_factor=1)
    for number in range(4):
        editable.post("/api/topics/four/records", {"value": str(number)})
    editable.post("/api/groups/early/offsets", {"topic": "four", "to": "latest"})
    tab.open(f"{editable.address}#/groups")
    tab.wait_until("document.querySelectorAll('main details.card form').length >= 1")
    card = found("main details.card", "each.innerText.startsWith('early')")
    tab.value(f"{card}.open = true")
    tab.value(f"{card}.querySelector('.edit').open = true")
    tab.value(f"{card}.querySelector('form button').click()")
    tab.wait_for("Done.")
    tab.wait_until(f"{card}.querySelector('summary').innerText.includes('lag 4')")
    assert tab.value(f"{card}.open")  # what was opened stays so
    assert not tab.complaints


def test_charts_are_read_by_keys_and_as_tables(page: Page, tab: Tab) -> None:
    tab.complaints.clear()
    tab.size(1200, 800)
    tab.open(f"{page.address}#/charts")
    chart = "document.querySelector('div.chart')"
    tab.wait_until(f"{chart}.querySelector('canvas')")
    tab.wait_until(f"{chart}.querySelector('.now').innerText.includes('in: ')")
    tab.value(f"{chart}.focus()")
    tab.press("ArrowLeft")
    tab.wait_until(f"{chart}.querySelector('.caption').innerText.includes('UTC: in ')")
    tab.value(f"{chart}.querySelector('details').open = true")
    tab.wait_until(f"{chart}.querySelectorAll('tbody tr').length > 1")
    lag = "[...document.querySelectorAll('div.chart')].at(-1)"
    tab.wait_until(f"{lag}.innerText.includes('Nothing was seen yet.')")  # no groups
    assert tab.value(f"{lag}.querySelector('.plot').hidden")
    assert not tab.complaints


def test_the_map_is_walked_by_keys(editable: Page, tab: Tab) -> None:
    tab.complaints.clear()
    tab.open(f"{editable.address}#/")
    tab.wait_until("document.querySelectorAll('.maprow canvas').length === 3")
    full = found(".maprow canvas", "!each.getAttribute('aria-label').includes(': 0,')")
    tab.wait_until(full)
    tab.value(f"{full}.focus()")
    tab.wait_until("document.querySelector('.told').innerText.includes(', partition ')")
    told = tab.value("document.querySelector('.told').innerText").split(":")[0]
    tab.press("Enter")
    tab.wait_until(f"document.querySelector('h1').innerText === {told!r}")
    tab.open(f"{editable.address}#/topics/notes")
    tab.wait_for("retention.ms")
    row = found("tr", "each.innerText.startsWith('retention.ms')")
    assert tab.value(f"{row}.innerText").split("\t")[1:3] == ["7200000", "604800000"]
    assert not tab.complaints
