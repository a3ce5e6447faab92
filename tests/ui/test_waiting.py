"""While a broker is down, or a leader is being elected, pages say so and go on by themselves: no
request of theirs fails, and nothing stands in the browser's console."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import strandline
from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.ui.browser import Tab
from tests.ui.server import Answer, Page

pytestmark = pytest.mark.xdist_group("ui")

BROKERS = (1, 2, 3)
ALONE = "alone"
ASKED = (
    "/api/topics/alone/0/records",
    "/api/topics/alone/0",
    "/api/topics/alone/settings",
    "/api/groups",
    "/api/transactions",
    "/api/why",
    "/api/ledger",
    "/api/tables",
    "/api/faults",
    "/api/moments",
    "/api/series",
)
"""What a page asks for by itself."""


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> int:
    """The broker that has the only replica of `alone`."""
    cluster.create_topic(ALONE, partitions=1, replication_factor=1)
    with strandline.Producer(cluster.client_config()) as producer:
        producer.send(ALONE, b"kept")
        producer.flush().raise_failure()
    with ClusterClient(cluster.bootstrap_servers) as client:
        GroupAdmin(client).set_offsets("readers", {TopicPartition(ALONE, 0): Offset(0)})
    broker = cluster.leader_of(ALONE, 0)
    assert broker is not None
    return broker


@pytest.fixture
def restarted(cluster: Cluster) -> Iterator[None]:
    """All brokers run in the end."""
    yield
    cluster.start(*(each.broker_id for each in cluster.brokers if each.state == "down"))


def test_a_leader_that_is_missing_is_a_state_and_no_failure(
    cluster: Cluster, page: Page, tab: Tab, alone: int, restarted: None
) -> None:
    """The page waits for the leader, and shows the record when it is there."""
    tab.complaints.clear()
    tab.open(f"{page.address}#/topics/{ALONE}/0")
    tab.wait_for(f"Leader {alone}, epoch 0")
    cluster.kill(alone)
    tab.open(f"{page.address}#/topics/{ALONE}/0/records")
    tab.wait_for("There is no leader: one is being elected")
    answers = asked(page)
    assert {path: each.text for path, each in answers.items() if each.status != 200} == {}
    assert "[LEADER_NOT_AVAILABLE]" in answers[ASKED[0]].json["not_now"]
    # The tab has its answer as well, and asks again.
    tab.wait_until(
        "performance.getEntriesByType('resource').some((each) => each.name.includes('/records?'))"
    )
    cluster.start(alone)
    tab.wait_for("offset 0")
    tab.wait_until("document.querySelector('main > [role=status]').textContent === ''")
    assert not tab.complaints


def test_without_any_broker_pages_keep_what_they_show(
    cluster: Cluster, page: Page, tab: Tab, alone: int, restarted: None
) -> None:
    tab.complaints.clear()
    tab.open(f"{page.address}#/groups")
    # Its card: the chart below, which has heard of the group before, shows its name as well.
    shown = "document.querySelector('details.card strong')?.textContent === 'readers'"
    tab.wait_until(shown)
    cluster.kill(*BROKERS)
    tab.wait_for("Below is what was heard before.")
    assert tab.value(shown)
    answers = asked(page)
    assert {path: each.text for path, each in answers.items() if each.status != 200} == {}
    assert page.get("/metrics").status == 503  # to what scrapes it, that is a failure
    assert not tab.complaints


def asked(page: Page) -> dict[str, Answer]:
    """All that pages ask for, at the same time: some of it takes as long as it may."""
    with ThreadPoolExecutor(len(ASKED)) as threads:
        return dict(zip(ASKED, threads.map(page.get, ASKED), strict=True))
