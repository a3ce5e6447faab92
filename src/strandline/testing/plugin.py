"""Fixtures for pytest, which finds this plugin by itself once Strandline is installed.

    def test_it(strandline_cluster): ...             # three brokers for this test
    def test_it(strandline_broker): ...              # one broker for this test

    @pytest.mark.strandline(brokers=5, settings={"min.insync.replicas": 2})
    def test_it(strandline_cluster): ...             # anything that `Cluster` takes

Both give a `Cluster` that is ready; it is gone when the test ends, however it ends. A test that
fails is reported with the state in which the cluster was.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from strandline.testing.cluster import Cluster

_MARKER = "strandline"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "strandline(brokers=3, session_timeout_ms=1000, settings={}, racks=(), ...): "
        "what the cluster of the fixtures strandline_cluster and strandline_broker is like; "
        "arguments are those of strandline.testing.Cluster",
    )


@pytest.fixture
def strandline_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three brokers, or as the marker `strandline` says."""
    yield from _running(request, 3)


@pytest.fixture
def strandline_broker(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of one broker, or as the marker `strandline` says."""
    yield from _running(request, 1)


def _running(request: pytest.FixtureRequest, brokers: int) -> Iterator[Cluster]:
    # A session whose tests need no cluster does not load one.
    from strandline.testing.cluster import Cluster

    options: dict[str, Any] = {"brokers": brokers}
    marker = request.node.get_closest_marker(_MARKER)
    if marker is not None:
        if marker.args:
            raise pytest.UsageError("The marker strandline takes keywords, as Cluster does.")
        options |= marker.kwargs
    with Cluster(**options) as cluster:
        request.node.stash[_CLUSTERS] = cluster
        yield cluster


_CLUSTERS: pytest.StashKey[Cluster] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cluster's state to the report of a test that failed."""
    report = yield
    if call.when == "call" and report.failed and _CLUSTERS in item.stash:
        try:
            state = str(item.stash[_CLUSTERS].status())
        except Exception as error:  # noqa: BLE001 -- the test's own failure must be reported
            state = f"not to be told: {error}"
        report.sections.append(("strandline cluster", state))
    return report
