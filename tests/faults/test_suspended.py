"""A laptop that sleeps: every process stops at once, and when they go on an hour has passed.

Nothing is lost and no retention comes early. The same with a wall clock that is set while all
runs, by a time server for instance: sessions and time-outs go by the monotonic clock. Clients keep
the real clock: librdkafka waits until wall clock times, which the kernel takes for real ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults import wall_clock
from tests.faults.run import TOPIC, under_load
from tests.faults.wall_clock import WallClock
from tests.faults.zookeeper_cluster import SETTINGS, STEADY, ZooKeeperCluster

HOUR_S = 3600
ASLEEP_S = 1.5 * int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000
"""Longer than any session lasts. Nothing runs meanwhile that a test could wait for."""
RETENTION = {"retention.ms": str(2 * HOUR_S * 1000), "segment.ms": "60000"}


@pytest.fixture
def clock(needs_zookeeper: None, tmp_path: Path) -> WallClock:
    """Of the brokers that are started with its environment."""
    reason = wall_clock.missing()
    if reason is not None:
        pytest.skip(reason)
    return WallClock(tmp_path)


def _cluster(clock: WallClock, home: Path, settings: Mapping[str, str]) -> ZooKeeperCluster:
    often = {"log.retention.check.interval.ms": "500"}
    cluster = ZooKeeperCluster(home, settings={**settings, **often})
    cluster.environment = clock.environment
    return cluster


def test_all_processes_are_suspended_for_an_hour(clock: WallClock, tmp_path: Path) -> None:
    with (
        _cluster(clock, tmp_path, {}) as cluster,
        under_load(cluster, with_group=True, config=RETENTION) as load,
    ):
        load.pause()
        for broker in cluster.ids:
            cluster.pause(broker)
        cluster.ensemble.servers[0].pause()
        clock.set_ahead(HOUR_S)
        time.sleep(ASLEEP_S)
        cluster.ensemble.servers[0].resume()
        for broker in cluster.ids:
            cluster.resume(broker)
        load.resume()
        load.wait_for_more(200)


def test_the_wall_clock_is_set_back_and_forth(clock: WallClock, tmp_path: Path) -> None:
    with (
        _cluster(clock, tmp_path, STEADY) as cluster,
        under_load(cluster, with_group=True, config=RETENTION) as load,
    ):
        state = cluster.state_of(TOPIC, 0)
        for seconds in (HOUR_S, -60, HOUR_S, 0):
            clock.set_ahead(seconds)
            load.wait_for_more(100)
        assert cluster.state_of(TOPIC, 0) == state
