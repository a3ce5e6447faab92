"""Fixtures for pytest, which finds this plugin by itself once Strandline is installed.

    def test_it(strandline_cluster): ...             # three brokers for this test
    def test_it(strandline_broker): ...              # one broker for this test

    @pytest.mark.strandline(brokers=5, settings={"min.insync.replicas": 2})
    def test_it(strandline_cluster): ...             # anything that `Cluster` takes

Both give a `Cluster` that is ready; it is gone when the test ends, however it ends. What fails is
reported with the states of the clusters of this process, whatever has started them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from strandline.testing.sightings import CLUSTERS

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
    parameter = getattr(request, "param", {})
    if not isinstance(parameter, dict):
        raise pytest.UsageError(
            f"A parameter of {request.fixturename} is a dict of what Cluster takes, "
            f"not {parameter!r}."
        )
    options |= parameter
    with Cluster(**options) as cluster:
        yield cluster


# A report tells of the clusters that run when its phase of the test has failed, and of those that
# ended within that phase: a `with` block in the test, a fixture before one whose teardown fails.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forget the clusters of other tests."""
    CLUSTERS.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Forget the clusters of the set-up."""
    CLUSTERS.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Forget the clusters that ended within the test itself."""
    CLUSTERS.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the states of clusters to the report of what failed."""
    report = yield
    if report.failed:
        report.sections += CLUSTERS.states()
    return report
