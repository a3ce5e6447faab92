"""`python -m tests.ui.ready`: how soon the cluster in a browser tab can be used.

Milliseconds from the address to an answer of the node code, and to the first picture of a cluster:
once with nothing kept by the browser, then with its caches and the page's own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from tests.ui.browser import browser
from tests.ui.built import files, page

READY = "document.documentElement.dataset.ready"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="so often with warm caches")
    options = parser.parse_args()
    ready: list[float] = []
    shown: list[float] = []
    with files(page()) as address, browser() as tab:
        for number in range(options.times + 1):
            tab.open("about:blank")
            began = time.monotonic()
            tab.open(f"{address}#/lab")
            tab.wait_until(READY)
            ready.append(float(tab.value(READY)))
            tab.wait_for("Step 0 of 0")
            shown.append((time.monotonic() - began) * 1000)
            if number == 0:
                tab.wait_until("navigator.serviceWorker.controller !== null")
    load = os.getloadavg()[0]
    print(f"load of the machine: {load:.1f}, {os.cpu_count()} processors")
    for name, found in (("ready", ready), ("first picture", shown)):
        first, *warm = found
        print(
            f"{name}: first {first:.0f} ms; then {min(warm):.0f} to {max(warm):.0f} ms, "
            f"median {statistics.median(warm):.0f} ms"
        )


if __name__ == "__main__":
    main()
