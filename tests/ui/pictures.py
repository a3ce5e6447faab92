"""Makes the pictures of docs/page.md: `python -m tests.ui.pictures docs/images`.

The machine needs a font with Chinese characters, such as Debian's fonts-wqy-microhei.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.client.admin import Admin
from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.cli.conftest import Serving
from tests.ui.browser import Tab, browser
from tests.ui.built import files
from tests.ui.built import page as built_page
from tests.ui.faulty import bootstrap, said, serving_in
from tests.ui.server import Page, page_for

KNOWS_LESS = """
(() => {
  const all = [...document.querySelectorAll('.replica')];
  const rows = all.filter((row) => row.querySelector('.cell'));
  const [leader, follower] = [true, false].map((leads) =>
    rows.find((row) => row.innerText.includes('leader') === leads));
  if (!follower?.querySelector('.cell.open') || leader?.querySelector('.cell.open')) return false;
  Object.defineProperty(document, 'hidden', { value: true });
  document.dispatchEvent(new Event('visibilitychange'));
  return true;
})()
"""
"""A follower does not know of a record yet that it is committed, and the leader does. The page then
stays as it is, since it takes itself for hidden."""


def main() -> None:
    """See the module."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with (
        Cluster(brokers=3) as cluster,
        page_for(cluster.bootstrap_servers) as page,
        browser() as tab,
    ):
        tab.size(1200, 640)
        _cluster(cluster, page, tab, target)
        _player(page, tab, target)
        with tempfile.TemporaryDirectory() as data, serving_in(Path(data)) as serving:
            _faults(serving, tab, target)
        tab.open("about:blank")
    with files(built_page()) as address, browser() as tab:
        tab.size(1200, 900)
        _lesson(address, tab, target)
        _lab(address, tab, target)
        tab.open("about:blank")


def _lesson(address: str, tab: Tab, target: Path) -> None:
    tab.open(f"{address}#/lessons/en/truncation-by-high-watermark")
    for _ in range(2):
        _press(tab, "Show me")
        _press(tab, "Next")
    tab.wait_for("Step 3 of 4")
    tab.picture(target / "lesson.png")


def _lab(address: str, tab: Tab, target: Path) -> None:
    tab.open(f"{address}#/lab")
    tab.wait_for("Step 0 of 0")
    for number, label in enumerate(["Produce", "Step", "Step", "Kill", "Step", "Produce", "Step"]):
        _press(tab, label)
        tab.wait_for(f"Step {number + 1} of {number + 1}")
    tab.picture(target / "lab.png")


def _press(tab: Tab, label: str) -> None:
    found = (
        f"[...document.querySelectorAll('button')].find((each) => each.textContent === {label!r})"
    )
    tab.wait_until(f"{found} && !{found}.disabled")
    tab.value(f"{found}.click()")


def _cluster(cluster: Cluster, page: Page, tab: Tab, target: Path) -> None:
    cluster.create_topic("flights", partitions=3, replication_factor=3, min_insync_replicas=2)
    cluster.create_topic("weather", partitions=2, replication_factor=2)
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        for number in range(60):
            value = f'{{"carrier": "UA", "flight": {number}, "delay": {number % 7}}}'
            producer.send("flights", value.encode(), partition=number % 3)
            producer.send("weather", value.encode(), partition=number % 2)
        producer.flush()
        GroupAdmin(client).set_offsets("reports", {TopicPartition("flights", 0): Offset(12)})
        leader = cluster.leader_of("flights", 0)
        cluster.kill(leader)
        cluster.wait_for_leader("flights", 0, other_than=leader)
        for number in range(6):
            producer.send("flights", f'{{"flight": {number}}}'.encode(), partition=0)
        producer.flush()
    tab.size(1200, 900)
    tab.open(f"{page.address}#/")
    tab.wait_for("under-replicated")
    tab.wait_for("This cluster does not allow faults")
    tab.picture(target / "cluster.png")
    tab.size(1200, 640)
    tab.open(f"{page.address}#/topics/flights/0")
    tab.wait_for("What changed, and why")
    tab.wait_until("document.querySelectorAll('.cell.e1').length > 0")
    with _written(cluster):
        tab.wait_until(KNOWS_LESS)
    tab.picture(target / "partition.png")
    tab.open("about:blank")
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        for number in range(60):  # so that there is something to be drawn
            producer.send("flights", b"x" * (20 * number), partition=0)
            producer.flush()
            time.sleep(0.2)
    tab.size(1200, 900)
    tab.open(f"{page.address}#/charts")
    tab.wait_until("document.querySelectorAll('.chart canvas').length === 7")
    tab.wait_until("document.querySelectorAll('.key').length > 9")  # the lag is asked for last
    tab.picture(target / "charts.png")
    tab.size(1200, 640, dark=True)
    tab.open(f"{page.address}#/why")
    tab.wait_for("What ends it")
    tab.picture(target / "why.png")
    tab.size(1200, 640)


@contextmanager
def _written(cluster: Cluster) -> Iterator[None]:
    """Records come in as long as the block lasts."""
    over = threading.Event()

    def write() -> None:
        with ClusterClient(cluster.bootstrap_servers) as client, Producer(client) as producer:
            while not over.wait(0.05):
                producer.send("flights", b"{}", partition=0)
                producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _player(page: Page, tab: Tab, target: Path) -> None:
    tab.open(f"{page.address}#/scenarios/x-3")
    tab.wait_for("Step 0 of")
    for number in range(1, 14):
        tab.press("ArrowRight")
        tab.wait_for(f"Step {number} of")
    tab.picture(target / "scenario.png")


def _faults(serving: Serving, tab: Tab, target: Path) -> None:
    page = Page(said(serving, "page"))
    with ClusterClient(bootstrap(serving)) as client:
        Admin(client).topics.create("flights", partitions=3, replication_factor=3)
    for fault in ({"fault": "slow-disk", "brokers": [1]}, {"fault": "kill", "brokers": [3]}):
        page.post("/api/faults", fault)
    tab.open(f"{page.address}#/")
    tab.wait_for("3 under-replicated")
    tab.wait_for("disk 500 ms slower")
    tab.size(1200, 900)
    tab.picture(target / "faults.png")


if __name__ == "__main__":
    main()
