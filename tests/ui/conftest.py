"""A cluster with a page for the tests of a module, and one browser for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.testing import Cluster
from tests.ui.browser import CHROMIUM, Tab, browser
from tests.ui.server import Page, page_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        running.create_topic("orders", partitions=1, replication_factor=3)
        yield running


@pytest.fixture(scope="module")
def page(cluster: Cluster) -> Iterator[Page]:
    with page_for(cluster.bootstrap_servers) as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Tab]:
    if CHROMIUM is None:
        pytest.skip("There is no Chromium on this machine.")
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def tab(chromium: Tab) -> Iterator[Tab]:
    """Empty at the end: what a page says of a server that is gone is no other module's affair."""
    yield chromium
    chromium.open("about:blank")
