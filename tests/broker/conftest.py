"""What several files of tests of the broker need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.certificates import Authority, Certificate
from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.server import missing


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom brokers and clients of the file trust."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    """That of a broker on this machine."""
    return authority.issue("broker", "127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    """One server for all tests of the file; each test has a chroot of its own."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeperEnsemble() as servers:
        yield servers
