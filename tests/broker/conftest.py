"""What several files of tests of the broker need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.server import missing


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """One server for all tests of the file; each test has a chroot of its own."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeperEnsemble() as servers:
        yield servers
