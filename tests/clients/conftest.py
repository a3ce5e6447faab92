"""Fixtures for the tests with foreign clients.

One broker per process of the test run serves all tests that neither stop it nor need settings of
their own; each test has topics and groups named after itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.librdkafka import create_topic
from tests.clients.support import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that many tests share. It must end cleanly after all of them."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running
        running.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for one test, which may stop and start it."""
    with BrokerProcess(tmp_path) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the test's topic and group that no other test of the run has."""
    module = request.node.path.stem.removeprefix("test_")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", f"{module}-{request.node.name}").strip("-")


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    """librdkafka's admin client of the shared broker."""
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture
def topic(admin: AdminClient, name: str) -> str:
    """A topic with four partitions."""
    return create_topic(admin, name, 4)
