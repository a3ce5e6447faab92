"""Stores on an ensemble of three real servers, of which some die, stop or are restarted."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from strandline.broker.zookeeper_store import ZooKeeperStore
from strandline.cluster.store import (
    BadVersion,
    Create,
    OutcomeUnknown,
    SetData,
    StoreUnavailable,
)
from tests.broker.store_worlds import PATIENCE_S, Follower, store_of, until, written
from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.server import missing

SESSION_MS = 40_000
"""No election of the ensemble takes as long."""
SHORT_MS = 3_000
CLIENT = Path(__file__).with_name("client_process.py")
ROOT = Path(__file__).parents[2]
_chroots = itertools.count()


@pytest.fixture(scope="module")
def servers() -> Iterator[ZooKeeperEnsemble]:
    """Three servers for all tests of the file."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeperEnsemble(3) as started:
        yield started


@pytest.fixture
def ensemble(servers: ZooKeeperEnsemble) -> ZooKeeperEnsemble:
    """All three servers running, whatever the test before has done."""
    for number, server in enumerate(servers.servers):
        if server.is_running:
            server.resume()
        else:
            servers.start(number, wait=False)
    for server in servers.servers:
        server.wait_until_serving()
    return servers


class Stores:
    """Stores below a chroot of their own."""

    def __init__(self, ensemble: ZooKeeperEnsemble) -> None:
        self._ensemble = ensemble
        self.chroot = f"/ensemble-{os.getpid()}-{next(_chroots)}"
        self._followers: list[Follower] = []

    async def join(
        self, server: int | None = None, session_timeout_ms: int = SESSION_MS
    ) -> Follower:
        """A loaded store on the whole ensemble or on one server only."""
        hosts = (
            self._ensemble.connect_string
            if server is None
            else self._ensemble.servers[server].address
        )
        store = ZooKeeperStore(
            hosts + self.chroot, session_timeout_ms=session_timeout_ms, roots=("/",)
        )
        follower = Follower(store)
        await follower.load()
        self._followers.append(follower)
        return follower

    async def close(self) -> None:
        for follower in self._followers:
            await follower.store.close()
            assert not follower.problems


def run(ensemble: ZooKeeperEnsemble, scenario: Callable[[Stores], Awaitable[None]]) -> None:
    """Run a scenario and close what it opened."""

    async def with_stores() -> None:
        stores = Stores(ensemble)
        async with asyncio.timeout(3 * PATIENCE_S):
            try:
                await scenario(stores)
            finally:
                await stores.close()

    asyncio.run(with_stores())


class Counter:
    """Writers that count up one node by compare-and-set, and what came of it."""

    def __init__(self, followers: list[Follower]) -> None:
        self._followers = followers
        self._is_over = False
        self.done = 0
        self.unknown = 0
        self._task = asyncio.create_task(self._run())

    async def reached(self, more: int) -> None:
        """Wait until that many more writes are done."""
        target = self.done + more
        await until(lambda: self.done >= target)

    async def stop(self) -> None:
        self._is_over = True
        await self._task

    def check(self) -> None:
        """No acknowledged write is lost, none is done twice, and all clients see the same."""
        values = {int(follower.data("/counter") or b"-1") for follower in self._followers}
        assert len(values) == 1
        assert self.done <= values.pop() <= self.done + self.unknown

    async def _run(self) -> None:
        await asyncio.gather(*(self._count(follower) for follower in self._followers))
        first = self._followers[0]
        await written(first.store, SetData("/end", b"x"))
        await until(lambda: all(follower.data("/end") == b"x" for follower in self._followers))

    async def _count(self, follower: Follower) -> None:
        while not self._is_over:
            node = follower.nodes["/counter"]
            data = str(int(node.data) + 1).encode()
            try:
                await follower.store.multi([SetData("/counter", data, node.stat.version)])
                self.done += 1
            except BadVersion:
                # The refusal came after the news, also from another server than the winner's.
                assert follower.nodes["/counter"].stat.version > node.stat.version
            except OutcomeUnknown:
                self.unknown += 1
            except StoreUnavailable:
                await asyncio.sleep(0.002)


async def counting(followers: list[Follower]) -> Counter:
    """A counter that has begun, so that all followers know it."""
    await written(followers[0].store, Create("/counter", b"0"), Create("/end"))
    await until(lambda: all("/end" in follower.nodes for follower in followers))
    counter = Counter(followers)
    await counter.reached(5)
    return counter


def test_stores_on_different_servers_agree(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario(stores: Stores) -> None:
        followers = [await stores.join(server) for server in range(3)]
        counter = await counting(followers)
        await counter.reached(100)
        await counter.stop()
        counter.check()
        assert counter.unknown == 0

    run(ensemble, scenario)


def test_the_death_of_the_leader_costs_no_session(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario(stores: Stores) -> None:
        followers = [await stores.join() for _ in range(3)]
        sessions = [follower.store.session for follower in followers]
        for number, follower in enumerate(followers):
            await follower.store.multi([Create(f"/{number}", ephemeral=True)])
        counter = await counting(followers)
        ensemble.kill(ensemble.leader)
        await counter.reached(20)
        await counter.stop()
        counter.check()
        assert [follower.store.session for follower in followers] == sessions
        assert {"/0", "/1", "/2"} < set(followers[0].nodes)

    run(ensemble, scenario)


def test_f40_without_a_majority_nothing_is_written_and_nothing_lost(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def scenario(stores: Stores) -> None:
        followers = [await stores.join(session_timeout_ms=30_000) for _ in range(2)]
        await followers[0].store.multi([Create("/mine", ephemeral=True)])
        counter = await counting(followers)
        down = [number for number in range(3) if number != ensemble.leader]
        for number in down:
            ensemble.kill(number)
        await until(lambda: not any(store_of(follower).is_ready for follower in followers))
        done = counter.done
        with pytest.raises(StoreUnavailable):
            await followers[0].store.multi([Create("/nothing")])
        assert followers[0].data("/counter") is not None
        for number in down:
            ensemble.start(number, wait=False)
        await counter.reached(10)
        await counter.stop()
        counter.check()
        assert counter.done > done
        assert "/mine" in followers[1].nodes

    run(ensemble, scenario)


def test_a_rolling_restart_under_writes(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario(stores: Stores) -> None:
        followers = [await stores.join() for _ in range(2)]
        counter = await counting(followers)
        loop = asyncio.get_running_loop()
        for number in range(3):
            ensemble.kill(number)
            await counter.reached(5)
            await loop.run_in_executor(None, ensemble.start, number)
            await counter.reached(5)
        await counter.stop()
        counter.check()

    run(ensemble, scenario)


def test_a_server_that_stands_still_is_left_for_another(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario(stores: Stores) -> None:
        followers = [await stores.join(session_timeout_ms=3000) for _ in range(2)]
        counter = await counting(followers)
        loop = asyncio.get_running_loop()
        still = await loop.run_in_executor(None, lambda: ensemble.leader)
        ensemble.pause(still)
        await counter.reached(20)
        ensemble.resume(still)
        await counter.reached(5)
        await counter.stop()
        counter.check()

    run(ensemble, scenario)


def test_a_server_comes_back_with_its_data_and_sessions() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeperEnsemble() as alone:

        async def scenario(stores: Stores) -> None:
            # Longer than any restart takes: what is lost here may only be lost by the restart.
            follower = await stores.join(session_timeout_ms=60_000)
            await follower.store.multi([Create("/mine", ephemeral=True), Create("/kept")])
            session = follower.store.session
            alone.kill(0)
            await until(lambda: not store_of(follower).is_ready)
            alone.start(0, wait=False)
            await written(follower.store, SetData("/mine", b"still"))
            assert follower.store.session == session

        run(alone, scenario)


class ClientProcess:
    """A process that holds a node; its lines arrive in a queue."""

    def __init__(self, hosts: str, session_timeout_ms: int, path: str) -> None:
        arguments = [sys.executable, str(CLIENT), hosts, str(session_timeout_ms), path]
        sources = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": sources},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def line(self, word: str) -> str:
        """The rest of the next line that begins with a word; others are passed over."""
        while True:
            first, _, rest = self._lines.get(timeout=PATIENCE_S).partition(" ")
            if first == word:
                return rest

    def close(self) -> None:
        """Let the process end by itself, or kill it if it does not."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))


def test_f35_a_stopped_process_loses_its_session_and_learns_of_it(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def scenario(stores: Stores) -> None:
        watcher = await stores.join()
        client = ClientProcess(ensemble.connect_string + stores.chroot, SHORT_MS, "/controller")
        try:
            loop = asyncio.get_running_loop()
            first = int(await loop.run_in_executor(None, client.line, "made"))
            await until(lambda: "/controller" in watcher.nodes)
            assert watcher.nodes["/controller"].stat.owner == first
            client.process.send_signal(signal.SIGSTOP)
            await until(lambda: "/controller" not in watcher.nodes)
            # Another client takes its place; the zombie must not, and must hear of it.
            await watcher.store.multi([Create("/controller", b"other")])
            client.process.send_signal(signal.SIGCONT)
            session = int(await loop.run_in_executor(None, client.line, "gone"))
            assert session != first
            assert watcher.data("/controller") == b"other"
        finally:
            await asyncio.get_running_loop().run_in_executor(None, client.close)

    run(ensemble, scenario)


def test_a_killed_process_loses_its_node_after_the_session_timeout(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def scenario(stores: Stores) -> None:
        watcher = await stores.join()
        client = ClientProcess(ensemble.connect_string + stores.chroot, SHORT_MS, "/id")
        try:
            await until(lambda: "/id" in watcher.nodes)
            client.process.kill()
            await until(lambda: "/id" not in watcher.nodes)
        finally:
            await asyncio.get_running_loop().run_in_executor(None, client.close)

    run(ensemble, scenario)


def test_a_process_that_ends_says_good_bye(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario(stores: Stores) -> None:
        watcher = await stores.join(session_timeout_ms=60_000)
        client = ClientProcess(ensemble.connect_string + stores.chroot, 60_000, "/id")
        await until(lambda: "/id" in watcher.nodes)
        await asyncio.get_running_loop().run_in_executor(None, client.close)
        assert client.process.returncode == 0
        await until(lambda: "/id" not in watcher.nodes)

    run(ensemble, scenario)
