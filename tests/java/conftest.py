"""Fixtures for the tests with Kafka's own Java code.

They need Kafka's jars (STRANDLINE_KAFKA_JARS names their directory) and a Java development kit.
A virtual machine costs a second or two to start, so the tests of a file share one for the tools and
one broker; each test has topics and groups of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.java.processes import JARS, JAVA, JAVAC, Broker, ToolServer, Workshop, compile_java

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests of this directory, with a reason, where Kafka or Java is missing."""
    reason = None
    if JARS is None:
        reason = "STRANDLINE_KAFKA_JARS does not name the directory of Kafka's jars"
    elif JAVA is None or JAVAC is None:
        reason = "there is no java and javac on the path"
    if reason is None:
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our Java programs, compiled."""
    return compile_java(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, classes: Path) -> Iterator[Workshop]:
    """Where processes are started; all of them have ended after the last test of the file."""
    made = Workshop(tmp_path_factory.mktemp("java"), classes)
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker(workshop: Workshop) -> Broker:
    """A broker that all tests of the file share. Retention never runs: some records are old."""
    return workshop.broker(
        None,
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=4",
        "log.initial.task.delay.ms=86400000",
    )


@pytest.fixture(scope="module")
def tools(workshop: Workshop) -> ToolServer:
    """A virtual machine that runs Kafka's tools."""
    return workshop.tools()
