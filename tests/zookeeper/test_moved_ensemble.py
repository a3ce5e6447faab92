"""Servers that move to other addresses, one after the other, while stores and brokers go on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from strandline.broker.zookeeper_store import ZooKeeperStore
from strandline.cluster.store import Create
from tests.broker.store_worlds import PATIENCE_S, Follower, store_of, until, written
from tests.cli.conftest import run_here, start
from tests.cli.test_serve_cluster import create_on_three
from tests.faults.processes import until as eventually
from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.server import Ports, missing, own_address

__all__ = ["start"]

SESSION_MS = 20_000


@pytest.fixture
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeperEnsemble(3) as servers:
        yield servers


def roll(ensemble: ZooKeeperEnsemble, where: list[Ports]) -> None:
    """Stop each server and start it at its new address; a majority serves all the time."""
    for number, to in enumerate(where):
        ensemble.kill(number)
        ensemble.servers[number].move(to)
        ensemble.start(number)


class Names:
    """Names that the resolver knows, and where they point at the moment."""

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self._resolve: Callable[..., Any] = socket.getaddrinfo

    def resolve(self, host: Any, *arguments: Any, **named: Any) -> Any:
        return self._resolve(self.hosts.get(host, host), *arguments, **named)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.resolve)
    return found


def test_servers_move_behind_their_names(ensemble: ZooKeeperEnsemble, names: Names) -> None:
    """A name is looked up for every connection, and not once for all."""
    for number, server in enumerate(ensemble.servers):
        names.hosts[f"zookeeper-{number}.test"] = server.ports.host
    hosts = ",".join(
        f"zookeeper-{number}.test:{server.ports.client}"
        for number, server in enumerate(ensemble.servers)
    )

    async def scenario() -> None:
        follower = Follower(ZooKeeperStore(f"{hosts}/moved", session_timeout_ms=SESSION_MS))
        await follower.load()
        await follower.store.multi([Create("/brokers"), Create("/brokers/id", ephemeral=True)])
        session = follower.store.session
        for number, server in enumerate(ensemble.servers):
            to = Ports(own_address(), server.ports.client, 0, 0)
            await asyncio.to_thread(ensemble.kill, number)
            server.move(to)
            names.hosts[f"zookeeper-{number}.test"] = to.host
            await asyncio.to_thread(ensemble.start, number)
        # No server is left at an old address: what serves now was found behind a name.
        await written(follower.store, Create("/brokers/after"))
        await until(lambda: "/brokers/after" in follower.nodes)
        assert "/brokers/id" in follower.nodes
        assert follower.store.session == session
        assert store_of(follower).is_ready
        assert not follower.problems
        await follower.store.close()

    async def in_time() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await scenario()

    asyncio.run(in_time())


def broker_epochs(hosts: str) -> dict[str, int]:
    """The transactions that made the registrations."""
    client = KazooClient(hosts=hosts)
    client.start(timeout=PATIENCE_S)
    try:
        return {
            each: client.get(f"/brokers/ids/{each}")[1].czxid
            for each in client.get_children("/brokers/ids")
        }
    finally:
        client.stop()
        client.close()


def in_sync_of(topic: str, address: str) -> list[int] | None:
    """The in-sync replicas as one broker tells them, or None while it does not know the topic."""
    ended = run_here(["topics", "describe", topic, "--json"], address)
    if ended.code != 0:
        return None
    (described,) = ended.json
    return sorted(described["partitions"][0]["in_sync"])


def test_brokers_go_on_when_the_ensemble_has_moved_to_new_servers(
    ensemble: ZooKeeperEnsemble, start: Callable[..., Any], tmp_path: Path
) -> None:
    """`zookeeper.connect` names the old and the new servers, as during a migration."""
    where = [Ports.chosen() for _ in ensemble.servers]
    new = ",".join(f"{each.host}:{each.client}" for each in where)
    hosts = f"{ensemble.connect_string},{new}/moved"
    brokers = [
        start(
            *("broker", "--zookeeper", hosts, "--id", str(number), "--listen", "127.0.0.1:0"),
            *("--data-dir", str(tmp_path / str(number))),
            *("--set", f"zookeeper.session.timeout.ms={SESSION_MS}"),
        )
        for number in (1, 2, 3)
    ]
    create_on_three("before", brokers[0].address)
    registered = broker_epochs(hosts)
    assert registered.keys() == {"1", "2", "3"}
    roll(ensemble, where)
    create_on_three("after", brokers[1].address)
    # No session was lost on the way, so no broker had to register again.
    assert broker_epochs(f"{new}/moved") == registered

    def all_in_sync(name: str) -> bool:
        return in_sync_of(name, brokers[2].address) == [1, 2, 3]

    for name in ("before", "after"):
        # Brokers follow the metadata each at its own pace: this one may not know the topic yet.
        eventually(
            partial(all_in_sync, name),
            f"{name} in sync on all brokers",
            seconds=PATIENCE_S,
        )
    for each in brokers:
        ended = each.stop()
        assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err
