"""Several brokers on one loop: started and stopped together, and what happens if one cannot."""

from __future__ import annotations

import asyncio
import socket
import threading
from itertools import groupby
from pathlib import Path

import pytest

import strandline
from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.local_cluster import LocalCluster
from strandline.broker.local_layout import broker_configs, metadata_directory
from strandline.broker.running import Broker
from strandline.broker.startup import start_broker
from strandline.cluster.store import StoreUnavailable
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.errors import InvalidSetting, InvariantViolated, StorageError
from strandline.storage.flush_plan import ClosePlan
from strandline.storage.log import Log
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId
from tests.alone import run_alone
from tests.broker.test_tls import secured
from tests.certificates import Certificate
from tests.descriptors import open_descriptors

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
PATIENCE_S = 120.0


def prepared(directory: Path, *more: str, count: int = 3) -> tuple[list[BrokerConfig], str]:
    settings = [
        f"log.dirs={directory}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "zookeeper.session.timeout.ms=500",
        *more,
    ]
    config = load_broker_config(None, settings).config
    return broker_configs(config, count, RealFiles()), metadata_directory(config)


def test_all_brokers_stop_together_without_a_last_election(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = await LocalCluster.start(*prepared(tmp_path))
        assert sorted(cluster.brokers) == [ONE, TWO, THREE]
        assert sorted(cluster.image.brokers) == [ONE, TWO, THREE]
        assert {each.cluster_id for each in cluster.reports.values()} == {cluster.image.cluster_id}
        assert await cluster.stop()
        assert not cluster.brokers
        again = await LocalCluster.start(*prepared(tmp_path))
        assert all(report.was_clean for report in again.reports.values())
        assert not any(report.notices for report in again.reports.values())
        assert await again.stop()

    asyncio.run(run())


def test_other_brokers_go_on_while_one_closes_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each log has several files to sync, and a broker may have hundreds of logs."""
    noted: list[str] = []
    threads: set[str] = set()
    begin_close, carry_out = Log.begin_close, ClosePlan.carry_out

    def begin(log: Log) -> ClosePlan:
        noted.append("a log")
        return begin_close(log)

    def sync(plan: ClosePlan) -> None:
        threads.add(threading.current_thread().name)
        carry_out(plan)

    async def go_on() -> None:
        while True:
            noted.append("a round of the loop")
            await asyncio.sleep(0)

    async def run() -> None:
        cluster = await LocalCluster.start(
            *prepared(tmp_path, "num.recovery.threads.per.data.dir=1")
        )
        at = cluster.image.brokers[ONE].endpoints[0]
        settings = {"bootstrap.servers": f"{at.host}:{at.port}"}
        async with strandline.AsyncAdmin(settings) as admin:
            await admin.create_topic("t", partitions=20, replication_factor=3)
        monkeypatch.setattr(Log, "begin_close", begin)
        monkeypatch.setattr(ClosePlan, "carry_out", sync)
        going_on = asyncio.create_task(go_on())
        assert await cluster.stop_brokers([TWO])
        going_on.cancel()
        monkeypatch.undo()
        assert await cluster.stop()

    asyncio.run(run())
    assert noted.count("a log") == 20
    assert max(len(list(run)) for what, run in groupby(noted) if what == "a log") == 4
    assert threads == {"strandline-close_0"}


def test_one_that_cannot_start_keeps_all_and_leaves_nothing(tmp_path: Path) -> None:
    run_alone(start_beside_a_taken_port, str(tmp_path))


def start_beside_a_taken_port(directory: str) -> None:
    async def run(taken: int) -> None:
        configs, metadata = prepared(Path(directory))
        static = {**configs[1].layers.static, "listeners": f"PLAINTEXT://127.0.0.1:{taken}"}
        static["advertised.listeners"] = static["listeners"]
        configs[1] = load_broker_config(None, [f"{k}={v}" for k, v in static.items()]).config
        before = open_descriptors()
        for _ in range(2):
            with pytest.raises(InvalidSetting, match=f"{taken} cannot be bound"):
                await LocalCluster.start(configs, metadata)
        assert open_descriptors() <= before

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        asyncio.run(run(listening.getsockname()[1]))


def test_f11_a_killed_broker_waits_for_the_end_of_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = await LocalCluster.start(*prepared(tmp_path))
        before = cluster.image.brokers[TWO]
        cluster.kill(TWO)
        assert cluster.image.brokers[TWO] == before, "no broker can know yet"
        again = await cluster.start_broker(TWO)
        assert again.node.broker_epoch == cluster.image.brokers[TWO].epoch > before.epoch
        with pytest.raises(InvariantViolated, match="runs already"):
            await cluster.start_broker(TWO)
        assert await cluster.stop()

    asyncio.run(run())


def test_f21_an_id_that_goes_on_living_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        configs, directory = prepared(tmp_path / "a")
        store = EmbeddedStore(RealFiles(), directory)
        first = await start_broker(
            configs[1], EmbeddedClient(store, session_timeout_ms=500), is_alone=False
        )
        same_id = prepared(tmp_path / "b")[0][1]
        with pytest.raises(InvalidSetting, match="A broker with the id 2 is running"):
            await start_broker(
                same_id, EmbeddedClient(store, session_timeout_ms=500), is_alone=False
            )
        assert await first.stop()
        second = await start_broker(
            same_id, EmbeddedClient(store, session_timeout_ms=500), is_alone=False
        )
        assert await second.stop()
        at_once = await asyncio.gather(
            *(
                start_broker(config, EmbeddedClient(store, session_timeout_ms=500), is_alone=False)
                for config in (configs[1], same_id)
            ),
            return_exceptions=True,
        )
        (refused,) = (each for each in at_once if isinstance(each, InvalidSetting))
        assert "A broker with the id 2 is running" in str(refused)
        (running,) = (each for each in at_once if isinstance(each, Broker))
        assert await running.stop()
        await store.close()

    asyncio.run(run())


def test_logs_of_another_cluster_are_refused_and_left_alone(tmp_path: Path) -> None:
    async def start_and_stop() -> None:
        cluster = await LocalCluster.start(*prepared(tmp_path))
        assert await cluster.stop()

    asyncio.run(start_and_stop())
    log = tmp_path / "broker-2" / "orders-0"
    log.mkdir()
    for metadata in tmp_path.glob("metadata.*"):
        metadata.unlink()
    with pytest.raises(StorageError, match="belongs to the cluster"):
        asyncio.run(start_and_stop())
    assert log.is_dir()


def test_a_broker_without_metadata_cannot_start(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = await LocalCluster.start(*prepared(tmp_path))
        cluster.kill(THREE)
        cluster.partition([{ONE, TWO}, {THREE}], {THREE})
        with pytest.raises(StoreUnavailable, match="Broker 3 is cut off"):
            await cluster.start_broker(THREE)
        cluster.heal()
        await cluster.start_broker(THREE)
        assert await cluster.stop()

    asyncio.run(run())


def test_a_session_that_ends_is_begun_anew(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = await LocalCluster.start(*prepared(tmp_path))
        epoch = cluster.image.brokers[ONE].epoch
        cluster.brokers[ONE].pause()
        assert await cluster.wait_until(
            lambda: ONE not in cluster.image.brokers, timeout_s=PATIENCE_S
        )
        cluster.brokers[ONE].resume()
        assert await cluster.wait_until(lambda: ONE in cluster.image.brokers, timeout_s=PATIENCE_S)
        assert cluster.image.brokers[ONE].epoch > epoch
        assert await cluster.stop()

    asyncio.run(run())


def test_a_killed_broker_leaves_no_client_in_the_budget_that_had_not_come_in_yet(
    tmp_path: Path, certificate: Certificate
) -> None:
    async def run() -> None:
        settings = secured(certificate, "inter.broker.listener.name=PLAINTEXT")
        cluster = await LocalCluster.start(*prepared(tmp_path, *settings, count=1))
        try:
            [address] = [each for each in cluster.reports[ONE].addresses if each.name == "SSL"]
            with socket.create_connection((address.host, address.port)):
                assert await cluster.wait_until(
                    lambda: cluster.handles.sockets == 1, timeout_s=PATIENCE_S
                )
                cluster.kill(ONE)
                assert cluster.handles.sockets == 0
        finally:
            await cluster.abandon()

    asyncio.run(run())
