"""The page beside a cluster with more partitions than a look asks for or a screen can show."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Generator
from typing import Any

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect
from strandline.testing import Cluster
from strandline.types import BrokerId
from strandline.ui.watcher import ROWS_PER_LOOK
from tests.ui.browser import Tab
from tests.ui.server import PATIENCE_S, Page

pytestmark = pytest.mark.xdist_group("ui")

WIDE = ROWS_PER_LOOK + 150
ROWS_DRAWN_MAX = 70


@pytest.fixture(scope="module")
def wide(cluster: Cluster) -> Cluster:
    """A topic that takes two looks, and forty small ones."""
    cluster.create_topic("wide", partitions=WIDE, replication_factor=1)
    for number in range(40):
        cluster.create_topic(f"small-{number:02d}", partitions=1, replication_factor=1)
    return cluster


def pictures(page: Page) -> Generator[dict[str, Any], None, None]:
    with urllib.request.urlopen(f"{page.address}api/events", timeout=PATIENCE_S) as stream:
        for line in stream:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


def test_all_partitions_come_in_pieces(wide: Cluster, page: Page) -> None:
    seen: set[tuple[str, int]] = set()
    stream = pictures(page)
    for looks, shown in enumerate(stream):
        # The first event has all that is known; from then on each has one look's worth at most.
        assert looks == 0 or len(shown["partitions"]) <= 3 * ROWS_PER_LOOK
        seen |= {(row[0], row[1]) for row in shown["partitions"]}
        if len(seen) == WIDE + 40 + 1:
            break
        assert looks < 50
    stream.close()


def inspections(cluster: Cluster) -> int:
    """How many inspections the first broker has answered."""
    with ClusterClient(cluster.bootstrap_servers) as client:
        told = inspect(client, BrokerId(1), "status", brief=True)
    return sum(each["count"] for each in told["requests"] if each["api"] == "INSPECT")


def test_more_pages_are_no_more_work(wide: Cluster, page: Page) -> None:
    streams = [pictures(page) for _ in range(8)]
    for stream in streams:
        next(stream)
    first, before = next(streams[0])["number"], inspections(wide)
    assert before > 0
    for _ in range(6):
        last = max(next(stream)["number"] for stream in streams)
    asked = inspections(wide) - before
    # One a look, this question itself, and looks that were under way.
    assert asked <= last - first + 4
    for stream in streams:
        stream.close()


def rows(tab: Tab) -> list[str]:
    """The first cells of the last long table's rows, as drawn."""
    found: list[str] = tab.value(
        "[...[...document.querySelectorAll('.long')].at(-1)"
        ".querySelectorAll('tbody tr:not([aria-hidden]) td:first-child')]"
        ".map((cell) => cell.innerText)"
    )
    return found


def type_into(tab: Tab, text: str) -> None:
    tab.value(
        "(() => { const find = document.querySelector('input[type=search]'); "
        f"find.value = {text!r}; find.dispatchEvent(new Event('input')); }})()"
    )


def test_only_what_is_in_sight_is_drawn(wide: Cluster, page: Page, tab: Tab) -> None:
    tab.complaints.clear()
    tab.open(f"{page.address}#/topics/wide")
    tab.wait_for(f"{WIDE} partitions")
    assert rows(tab)[:3] == ["0", "1", "2"]
    assert len(rows(tab)) < ROWS_DRAWN_MAX
    tab.value("document.querySelector('.long').scrollTop = 1e9")
    tab.wait_until(f"document.querySelector('.long').innerText.includes('{WIDE - 1}')")
    assert rows(tab)[-1] == str(WIDE - 1)
    assert len(rows(tab)) < ROWS_DRAWN_MAX
    counted = "document.querySelector('.long table').getAttribute('aria-rowcount')"
    assert tab.value(counted) == str(WIDE + 1)
    type_into(tab, "39")
    assert rows(tab) == ["39", *(str(number) for number in range(390, 400))]
    assert f"11 of {WIDE} partitions" in tab.text
    assert not tab.complaints


def test_a_topic_is_found_by_typing(wide: Cluster, page: Page, tab: Tab) -> None:
    tab.open(f"{page.address}#/")
    tab.wait_for("42 topics")
    assert len(rows(tab)) < ROWS_DRAWN_MAX
    type_into(tab, "L-3")
    assert rows(tab) == [f"small-3{number}" for number in range(10)]
    assert "10 of 42 topics with 10 partitions, nothing wrong" in tab.text
    type_into(tab, "nowhere")
    assert rows(tab) == []


def test_the_focus_stays_while_numbers_change(wide: Cluster, page: Page, tab: Tab) -> None:
    tab.open(f"{page.address}#/topics/orders")
    tab.wait_for("1 partition,")
    tab.value("document.querySelector('.long a').focus()")
    wide.kill(1)
    tab.wait_for("under-replicated")
    assert tab.value("document.activeElement.innerText") == "0"
    wide.restart(1)
    wide.wait_until_in_sync("orders")
    tab.wait_until("!document.body.innerText.includes('under-replicated')")
    assert tab.value("document.activeElement.innerText") == "0"


def test_a_hidden_page_gets_no_updates(wide: Cluster, page: Page, tab: Tab) -> None:
    tab.open(f"{page.address}#/")
    tab.wait_for("42 topics")

    def turn(hidden: str) -> None:
        tab.value(
            f"(() => {{ Object.defineProperty(document, 'hidden', {{ value: {hidden}, "
            "configurable: true }); document.dispatchEvent(new Event('visibilitychange')); })()"
        )

    turn("true")
    wide.create_topic("unseen", partitions=1, replication_factor=1)
    stream = pictures(page)
    assert any("unseen" in {row[0] for row in shown["partitions"]} for shown in stream)
    stream.close()
    assert "42 topics" in tab.text
    turn("false")
    tab.wait_for("43 topics")
