"""Brokers and leaders that do not answer cost their own answers, and none of the others'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

import pytest

from strandline.client.admin import Admin
from strandline.client.aio.cluster import AsyncClusterClient
from strandline.client.clock import SystemClock
from strandline.client.cluster import ClusterClient
from strandline.client.offsets import LATEST, list_known_offsets
from strandline.client.settings import ClientSettings, parse_addresses
from strandline.errors import ErrorCode, ProtocolError
from strandline.testing import Cluster
from strandline.types import BrokerId
from tests.client.conftest import FAST
from tests.client.half_led import HEALTHY, ORPHAN, VALUES, half_led

T = TypeVar("T")
K = TypeVar("K")

NEVER_MS = 600_000
"""A session that lasts longer than any test."""
SHORT = replace(FAST, operation_timeout_ms=500)
"""How long what fails is tried again. One answer may take much longer."""
GONE = BrokerId(2)


class Run(Protocol):
    """Does something with a client, blocking or on an event loop."""

    def __call__(
        self, address: str, settings: ClientSettings, work: Callable[[ClusterClient], T]
    ) -> T: ...


class Impatient(SystemClock):
    """A clock of a client that must not wait."""

    def sleep_ms(self, duration_ms: int) -> None:
        raise AssertionError(f"It would wait for {duration_ms} ms.")


def blocking(address: str, settings: ClientSettings, work: Callable[[ClusterClient], T]) -> T:
    with ClusterClient(address, settings) as cluster:
        return work(cluster)


def on_a_loop(address: str, settings: ClientSettings, work: Callable[[ClusterClient], T]) -> T:
    async def run() -> T:
        cluster = AsyncClusterClient(parse_addresses(address), settings)
        try:
            return await cluster.run(work)
        finally:
            await cluster.close()

    return asyncio.run(run())


@pytest.fixture(params=[blocking, on_a_loop])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


@contextmanager
def two_brokers() -> Iterator[Cluster]:
    """Each has a partition; that one of them goes away is not noticed by the cluster."""
    with Cluster(brokers=2, session_timeout_ms=NEVER_MS) as running:
        running.create_topic("t", assignment={HEALTHY.partition: (1,), ORPHAN.partition: (GONE,)})
        yield running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of two brokers, one of which is dead."""
    with two_brokers() as running:
        running.kill(GONE)
        yield running.bootstrap_servers


@pytest.fixture(scope="module")
def address_of_silence() -> Iterator[str]:
    """Of two brokers, one of which is stopped as by SIGSTOP."""
    with two_brokers() as running:
        running.pause(GONE)
        yield running.bootstrap_servers
        running.resume(GONE)


def codes(errors: Mapping[K, ProtocolError]) -> dict[K, ErrorCode]:
    return {each: error.code for each, error in errors.items()}


def test_a_partition_without_a_leader_is_not_waited_for() -> None:
    with half_led(is_noticed=True) as running:
        address = running.brokers[0].address
        with ClusterClient(address, FAST) as cluster:
            while cluster.refresh(["t"]).topics["t"].partitions[ORPHAN.partition].leader >= 0:
                pass
        with ClusterClient(address, FAST, clock=Impatient()) as cluster:
            found, refused = list_known_offsets(cluster, {HEALTHY: LATEST, ORPHAN: LATEST})
            producers = Admin(cluster).transactions.hanging([HEALTHY, ORPHAN], 0)
    assert {at: each.offset for at, each in found.items()} == {HEALTHY: len(VALUES[HEALTHY])}
    assert codes(refused) == {ORPHAN: ErrorCode.LEADER_NOT_AVAILABLE}
    assert producers.looked_at == (HEALTHY,)
    assert codes(producers.unknown) == {ORPHAN: ErrorCode.LEADER_NOT_AVAILABLE}


def test_who_leads_may_be_the_first_thing_that_is_asked(address: str) -> None:
    with ClusterClient(address, FAST, clock=Impatient()) as cluster:
        assert cluster.partition(HEALTHY).leader == 1

    async def ask() -> None:
        cluster = AsyncClusterClient(parse_addresses(address), FAST)
        try:
            assert (await cluster.partition(HEALTHY)).leader == 1
        finally:
            await cluster.close()

    asyncio.run(ask())


def test_offsets_of_leaders_that_answer_are_told(address: str, run: Run) -> None:
    wanted = dict.fromkeys((HEALTHY, ORPHAN), LATEST)
    found, refused = run(address, SHORT, lambda cluster: list_known_offsets(cluster, wanted))
    assert {at: each.offset for at, each in found.items()} == {HEALTHY: 0}
    assert codes(refused) == {ORPHAN: ErrorCode.NETWORK_EXCEPTION}


def test_log_directories_of_brokers_that_answer_are_told(address: str, run: Run) -> None:
    told = run(address, SHORT, lambda cluster: Admin(cluster).cluster.log_directories())
    assert [each.broker for each in told.found] == [1]
    assert codes(told.unanswered) == {GONE: ErrorCode.NETWORK_EXCEPTION}
    moves = run(address, SHORT, lambda cluster: Admin(cluster).log_dirs.moves())
    assert (moves.found, {*moves.unanswered}) == ((), {GONE})


def test_only_the_brokers_that_are_named_are_asked(address: str, run: Run) -> None:
    stranger = BrokerId(7)
    wanted = [BrokerId(1), stranger]
    told = run(address, SHORT, lambda cluster: Admin(cluster).cluster.log_directories(wanted))
    assert [each.broker for each in told.found] == [1]
    assert codes(told.unanswered) == {stranger: ErrorCode.BROKER_NOT_AVAILABLE}


def test_a_search_for_hanging_transactions_says_where_it_could_not_look(
    address: str, run: Run
) -> None:
    everywhere = [HEALTHY, ORPHAN]
    told = run(address, SHORT, lambda cluster: Admin(cluster).transactions.hanging(everywhere, 0))
    assert (told.found, told.undecided, told.looked_at) == ((), (), (HEALTHY,))
    assert codes(told.unknown) == {ORPHAN: ErrorCode.NETWORK_EXCEPTION}


def test_who_wants_to_hear_of_all_partitions_hears_why_that_is_not_possible(
    address: str, run: Run
) -> None:
    everywhere = [HEALTHY, ORPHAN]
    with pytest.raises(ProtocolError) as failed:
        run(address, SHORT, lambda cluster: Admin(cluster).transactions.producers(everywhere))
    assert failed.value.code is ErrorCode.NETWORK_EXCEPTION


def test_a_broker_that_says_nothing_is_waited_for_as_long_as_a_request_may_take(
    address_of_silence: str, run: Run
) -> None:
    bounded = replace(SHORT, request_timeout_ms=3000)
    wanted = dict.fromkeys((HEALTHY, ORPHAN), LATEST)
    found, refused = run(
        address_of_silence, bounded, lambda cluster: list_known_offsets(cluster, wanted)
    )
    assert {at: each.offset for at, each in found.items()} == {HEALTHY: 0}
    assert codes(refused) == {ORPHAN: ErrorCode.REQUEST_TIMED_OUT}
    told = run(
        address_of_silence, bounded, lambda cluster: Admin(cluster).cluster.log_directories()
    )
    assert [each.broker for each in told.found] == [1]
    assert codes(told.unanswered) == {GONE: ErrorCode.REQUEST_TIMED_OUT}
