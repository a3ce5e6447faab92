"""ZooKeeper's own TLS port, which asks for certificates of its clients.

ZooKeeper serves TLS by Netty only, of which its jars here are a part; PySpark brings all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from strandline.broker.zookeeper_access import ZooKeeperAccess
from strandline.broker.zookeeper_store import ZooKeeperStore
from strandline.cluster.store import Create, SetData, StoreUnavailable
from strandline.config.load import load_broker_config
from tests.broker.store_worlds import Follower
from tests.certificates import Authority
from tests.zookeeper.server import Ports, ZooKeeperServer, missing

NETTY = ":".join(
    str(each)
    for each in sorted((Path(pyspark.__file__).parent / "jars").glob("netty-*.jar"))
    if "tcnative" not in each.name
)


class Place:
    """A server, and who may speak with it."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        certificate = self.authority.issue("zookeeper", "localhost")
        self.port = Ports.chosen().client
        self.server = ZooKeeperServer(
            directory / "server",
            (Ports.chosen(),),
            0,
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPortAddress=127.0.0.1",
            f"secureClientPort={self.port}",
            "ssl.keyStore.type=PEM",
            f"ssl.keyStore.location={certificate.both()}",
            "ssl.trustStore.type=PEM",
            f"ssl.trustStore.location={self.authority.path}",
            "ssl.clientAuth=need",
            before=f"{NETTY}:",
        )

    def store(
        self, user: str | None, *more: str, host: str = "localhost", timeout_ms: int = 60_000
    ) -> ZooKeeperStore:
        """Of a broker with that name in its certificate, or without one."""
        settings = [
            "zookeeper.ssl.client.enable=true",
            f"zookeeper.ssl.truststore.location={self.authority.path}",
            *more,
        ]
        if user is not None:
            shown = self.authority.issue(user).both()
            settings.append(f"zookeeper.ssl.keystore.location={shown}")
        access = ZooKeeperAccess.of(load_broker_config(None, settings).config)
        address = f"{host}:{self.port}/tls"
        return ZooKeeperStore(address, access=access, connection_timeout_ms=timeout_ms)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    made = Place(tmp_path_factory.mktemp("tls"))
    made.server.start()
    try:
        made.server.wait_until_serving()
        yield made
    finally:
        made.server.kill()


def test_nodes_belong_to_the_name_in_a_certificate(place: Place) -> None:
    async def scenario() -> None:
        owner = Follower(place.store("broker", "zookeeper.set.acl=true"))
        await owner.load()
        # Many answers in one record of TLS, and one answer in many.
        large = b"x" * 300_000
        await asyncio.gather(
            owner.store.multi([Create("/config", large)]),
            *(owner.store.multi([Create(f"/admin{number}")]) for number in range(50)),
        )
        assert owner.data("/config") == large
        other = Follower(place.store("stranger"))
        await other.load()
        assert other.data("/config") == large
        with pytest.raises(StoreUnavailable, match="belongs to another login"):
            await other.store.multi([SetData("/config", b"2")])
        await owner.store.multi([SetData("/config", b"3")])
        await other.store.close()
        await owner.store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("user", "host"), [(None, "localhost"), ("broker", "127.0.0.1")])
def test_one_side_that_cannot_show_who_it_is_ends_it(
    place: Place, user: str | None, host: str
) -> None:
    async def scenario() -> None:
        store = place.store(user, host=host, timeout_ms=300)
        with pytest.raises(StoreUnavailable):
            await store.load(lambda changes: None)
        await store.close()

    asyncio.run(scenario())
