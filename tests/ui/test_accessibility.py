"""axe finds nothing wrong on any view of the live page, light and dark by turns, and all fit."""

from __future__ import annotations

import shutil

import pytest

from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.ui.axe import violations
from tests.ui.browser import Tab
from tests.ui.server import page_for

pytestmark = [
    pytest.mark.xdist_group("ui"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

VIEWS = (
    ("", "Who leads what"),
    ("charts", "in: "),
    ("topics/orders", "All 3"),
    ("topics/orders/0", "All that the brokers say"),
    ("topics/orders/0/records", "offset 0"),
    ("tables", "started without tables"),
    ("groups", "readers"),
    ("transactions", "No transaction is open."),
    ("ledger", "Nothing was cut off."),
    ("why", "What ends it"),
    ("scenarios", "Write one of your own"),
    ("scenarios/x-3", "Step 0 of"),
)
OPEN = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.fixture(scope="module")
def troubled(cluster: Cluster) -> Cluster:
    """A follower is down: there are colours for trouble on the page, and reasons."""
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        producer.send("orders", b'{"n": 1}', key=b"a", headers=[("who", b"me")], partition=0)
        producer.flush()
        GroupAdmin(client).set_offsets("readers", {TopicPartition("orders", 0): Offset(0)})
    leader = cluster.leader_of("orders", 0)
    cluster.kill(next(each for each in (1, 2, 3) if each != leader))
    return cluster


def test_axe_finds_nothing_wrong_with_the_live_page(troubled: Cluster, tab: Tab) -> None:
    tab.complaints.clear()
    wrong = {}
    with page_for(troubled.bootstrap_servers, "--edit") as page:
        for number, (view, text) in enumerate(VIEWS):
            tab.size(360, 900, dark=number % 2 == 1)
            tab.open(f"{page.address}#/{view}")
            tab.wait_for(text)
            tab.value(OPEN)
            if found := violations(tab):
                wrong[view] = found
            assert tab.overflow == 0, view
        tab.size(1200, 800)
        assert wrong == {}
        assert not tab.complaints
        tab.open("about:blank")
