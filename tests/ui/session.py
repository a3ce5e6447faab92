"""`python -m tests.ui.session`: a page that stays open for minutes while its cluster is at work.

Three brokers take records and a group reads them; one broker is killed and started, again and
again. A tab goes through all views, wide and narrow, light and dark, and its last sight of each is
kept as a picture. Ends with 1 if the tab has logged an error, or needs more and more memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from itertools import cycle
from pathlib import Path

import strandline
from tests.ui.browser import Tab, browser
from tests.ui.server import page_for

VIEWS = ("", "topics/orders", "topics/orders/0", "topics/orders/0/records", "groups", "charts")
SIZES = ((1280, 900, False), (1280, 900, True), (360, 740, False), (360, 740, True))
STAY_S = 4.0
FAULT_EVERY_S = 60.0
GROWTH_MAX = 1.5
"""The heap at the end may be so many times that of the end of the second round, at most."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pictures", type=Path, default=Path(tempfile.mkdtemp()))
    options = parser.parse_args()
    over = threading.Event()
    with strandline.Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        at_work = [
            threading.Thread(target=work, args=(cluster, over)) for work in (_write, _read, _fail)
        ]
        for each in at_work:
            each.start()
        try:
            with page_for(cluster.bootstrap_servers) as page, browser() as tab:
                return _look(tab, page.address, 60 * options.minutes, options.pictures)
        finally:
            over.set()
            for each in at_work:
                each.join()


def _look(tab: Tab, address: str, seconds: float, pictures: Path) -> int:
    until = time.monotonic() + seconds
    heaps: list[int] = []
    rounds = 0
    for width, height, dark in cycle(SIZES):
        tab.size(width, height, dark=dark)
        for view in VIEWS:
            tab.open(f"{address}#/{view}")
            tab.wait_until("document.querySelector('main h1')")
            time.sleep(STAY_S)  # the view is looked at, as a person does
            scheme = "dark" if dark else "light"
            name = view.replace("/", "-") or "cluster"
            tab.picture(pictures / f"{name}-{width}-{scheme}.png")
            if tab.overflow > 0:
                tab.complaints.append(f"{name} is {tab.overflow} pixels too wide at {width}")
        rounds += 1
        heaps.append(tab.value("performance.memory.usedJSHeapSize"))
        print(f"round {rounds}: {heaps[-1] / 2**20:.1f} MiB, {len(tab.complaints)} complaints")
        if time.monotonic() > until:
            break
    for complaint in tab.complaints:
        print(complaint)
    print(f"{rounds} rounds through {len(VIEWS)} views; pictures are in {pictures}")
    grows = len(heaps) > len(SIZES) and heaps[-1] > GROWTH_MAX * max(heaps[: len(SIZES)])
    return 1 if tab.complaints or grows else 0


def _write(cluster: strandline.Cluster, over: threading.Event) -> None:
    with strandline.Producer(cluster.client_config()) as producer:
        number = 0
        while not over.wait(0.02):
            producer.send("orders", f"order {number}".encode(), key=str(number % 50).encode())
            producer.poll()
            number += 1


def _read(cluster: strandline.Cluster, over: threading.Event) -> None:
    settings = cluster.client_config() | {"group.id": "billing"}
    with strandline.Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        while not over.is_set():
            consumer.poll(500)


def _fail(cluster: strandline.Cluster, over: threading.Event) -> None:
    for broker in cycle((3, 2)):
        if over.wait(FAULT_EVERY_S / 2):
            return
        cluster.kill(broker)
        if over.wait(FAULT_EVERY_S / 2):
            return
        cluster.start(broker)


if __name__ == "__main__":
    sys.exit(main())
