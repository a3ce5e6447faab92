"""The ZooKeeper store on a real server: what only it can do wrong. See also the store contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.authorization.acls import Operation as AclOperation
from strandline.broker import zookeeper_store
from strandline.broker.zookeeper_access import ZooKeeperAccess
from strandline.broker.zookeeper_requests import Multi
from strandline.broker.zookeeper_store import METADATA_ROOTS, ZooKeeperStore
from strandline.cluster.controller import bootstrap, create_acls
from strandline.cluster.controller.lifecycle import SKELETON
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import (
    Create,
    Delete,
    MultiTooLarge,
    Operation,
    OutcomeUnknown,
    SetData,
    StoreUnavailable,
)
from strandline.cluster.znodes import AclNode, acl_path
from strandline.config.load import load_broker_config
from strandline.errors import InvalidSetting
from tests.broker.store_worlds import (
    LONG_MS,
    PATIENCE_S,
    SHORT_MS,
    Follower,
    ZooKeeperWorld,
    outcome_of,
    store_of,
    until,
    written,
)
from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.proxy import TcpProxy
from tests.zookeeper.server import Ports

Scenario = Callable[[ZooKeeperWorld], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(ensemble: ZooKeeperEnsemble) -> Run:
    """Run a scenario and end what it made."""

    async def in_world(scenario: Scenario) -> None:
        world = ZooKeeperWorld(ensemble)
        async with asyncio.timeout(2 * PATIENCE_S):
            try:
                await scenario(world)
            finally:
                await world.close()

    return lambda scenario: asyncio.run(in_world(scenario))


@pytest.fixture
def admin(ensemble: ZooKeeperEnsemble) -> Iterator[KazooClient]:
    """A client of an operator, without a chroot."""
    client = KazooClient(hosts=ensemble.connect_string)
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


# Connecting.


@pytest.mark.parametrize("hosts", ["host:port", "", "host:1,:2", "host:99999999"])
def test_a_connect_string_that_names_no_servers_is_refused(hosts: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^zookeeper\.connect: "):
        ZooKeeperStore(hosts)


def test_no_server_within_the_limit_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unused = Ports.chosen()
    monkeypatch.setattr(zookeeper_store, "TOLD_AFTER_S", 0.05)

    async def scenario() -> None:
        store = ZooKeeperStore(f"{unused.host}:{unused.client}/app", connection_timeout_ms=300)
        with pytest.raises(
            StoreUnavailable,
            match=r"No .*/app served within 300 ms, the limit of zookeeper\.connection.*not con",
        ):
            await store.load(lambda changes: None)
        with pytest.raises(StoreUnavailable):
            await store.multi([Create("/a")])

    asyncio.run(scenario())
    assert f"Still waiting for a ZooKeeper server of {unused.host}" in caplog.text


def test_the_chroot_is_made_with_its_parents(
    ensemble: ZooKeeperEnsemble, admin: KazooClient
) -> None:
    async def scenario() -> None:
        hosts = f"{ensemble.connect_string}/made/for/us"
        first, second = Follower(ZooKeeperStore(hosts)), Follower(ZooKeeperStore(hosts))
        await asyncio.gather(first.load(), second.load())
        await first.store.multi([Create("/cluster"), Create("/cluster/id", b"1")])
        await until(lambda: second.data("/cluster/id") == b"1")
        await first.store.close()
        await second.store.close()

    asyncio.run(scenario())
    assert admin.get("/made/for/us/cluster/id")[0] == b"1"


def test_nodes_belong_to_the_login_that_made_them(
    ensemble: ZooKeeperEnsemble, admin: KazooClient
) -> None:
    def access(password: str) -> ZooKeeperAccess:
        digest = f"strandline.zookeeper.digest=broker:{password}"
        return ZooKeeperAccess.of(
            load_broker_config(None, [digest, "zookeeper.set.acl=true"]).config
        )

    async def scenario() -> None:
        hosts = f"{ensemble.connect_string}/owned"
        first = Follower(ZooKeeperStore(hosts, access=access("right")))
        await first.load()
        await first.store.multi(
            [Create(path, b"1") for path in ("/config", "/config/users", "/config/users/alice")]
        )
        second = Follower(ZooKeeperStore(hosts, access=access("right")))
        await second.load()
        assert second.data("/config/users/alice") == b"1"
        await second.store.multi([SetData("/config/users/alice", b"2")])
        await until(lambda: first.data("/config/users/alice") == b"2")
        await first.store.close()
        await second.store.close()
        stranger = ZooKeeperStore(hosts, roots=("/config/changes",), access=access("wrong"))
        await stranger.load(lambda changes: None)
        with pytest.raises(StoreUnavailable, match="belongs to another login") as caught:
            await stranger.multi([SetData("/config", b"3")])
        assert "wrong" not in str(caught.value)
        await stranger.close()

    asyncio.run(scenario())
    assert admin.get("/owned/config")[0] == b"1"
    with pytest.raises(NoAuthError):
        admin.get("/owned/config/users/alice")
    with pytest.raises(NoAuthError):
        admin.set("/owned/config", b"3")
    admin.add_auth("digest", "broker:right")
    admin.delete("/owned", recursive=True)  # others read the whole ensemble


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["zookeeper.set.acl=true"], "needs a login"),
        (["strandline.zookeeper.digest=secret"], "of the form USER:PASSWORD"),
        (["strandline.zookeeper.digest=file:/none"], "cannot be read"),
    ],
)
def test_logins_that_cannot_be(settings: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence) as caught:
        ZooKeeperAccess.of(load_broker_config(None, settings).config)
    assert "secret" not in str(caught.value)


def test_acls_lie_where_kafkas_tools_look(ensemble: ZooKeeperEnsemble, admin: KazooClient) -> None:
    """One broker writes them as Kafka does, another broker follows what Kafka's tool wrote."""
    reads = AclEntry("User:alice", "*", AclOperation.READ, Permission.ALLOW)
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    prefixed = ResourcePattern(ResourceType.GROUP, "g-", PatternType.PREFIXED)
    kafkas = (
        b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Deny",'
        b'"operation":"All","host":"10.0.0.1"}]}'
    )

    async def scenario() -> None:
        hosts = f"{ensemble.connect_string}/acls"
        first, second = Follower(ZooKeeperStore(hosts)), Follower(ZooKeeperStore(hosts))
        view = await first.load()
        await second.load()
        await first.store.multi(bootstrap([node.path for node in view.nodes], random=Random(1)))
        await first.store.multi(create_acls(ClusterImage(), [AclBinding(orders, reads)]).operations)
        await until(lambda: "/kafka-acl/Topic/orders" in second.nodes)
        admin.create("/acls/kafka-acl-extended/prefixed/Group/g-", kafkas)
        await until(lambda: "/kafka-acl-extended/prefixed/Group/g-" in second.nodes)
        found = AclNode.decode(prefixed, second.data(acl_path(prefixed)) or b"")
        assert [(each.principal, each.permission.word) for each in found.entries] == [
            ("User:bob", "Deny")
        ]
        await first.store.close()
        await second.store.close()

    asyncio.run(scenario())
    assert json.loads(admin.get("/acls/kafka-acl/Topic/orders")[0]) == {
        "version": 1,
        "acls": [
            {
                "principal": "User:alice",
                "permissionType": "Allow",
                "operation": "Read",
                "host": "*",
            }
        ],
    }


def test_only_the_clusters_own_nodes_are_read(
    ensemble: ZooKeeperEnsemble, admin: KazooClient
) -> None:
    """Without a chroot the ensemble may be full of what others keep there."""
    admin.create("/shared/hbase/table", makepath=True)
    admin.create("/shared/brokers/ids/1", b"1", makepath=True)

    async def scenario() -> None:
        follower = Follower(ZooKeeperStore(f"{ensemble.connect_string}/shared"))
        view = await follower.load()
        assert [node.path for node in view.nodes] == ["/brokers", "/brokers/ids", "/brokers/ids/1"]
        admin.set("/shared/hbase/table", b"2")
        await follower.store.multi([Create("/controller")])
        assert len(follower.heard) == 1
        await follower.store.close()

    asyncio.run(scenario())
    assert {"/" + path.split("/")[1] for path in SKELETON} < set(METADATA_ROOTS)
    assert {"/controller", "/controller_epoch"} < set(METADATA_ROOTS)


def test_at_the_root_of_all_zookeepers_own_nodes_are_left_alone(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def scenario() -> None:
        follower = Follower(ZooKeeperStore(ensemble.connect_string, roots=("/",)))
        view = await follower.load()
        assert not [node.path for node in view.nodes if node.path.startswith("/zookeeper")]
        await follower.store.multi([Create("/at-the-root")])
        assert "/at-the-root" in follower.nodes
        await follower.store.multi([Delete("/at-the-root")])
        await follower.store.close()

    asyncio.run(scenario())


def test_a_node_that_may_not_be_read_is_named(
    ensemble: ZooKeeperEnsemble, admin: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = [make_acl("digest", "nobody:nothing", read=True)]
    admin.create("/closed/brokers", makepath=True)

    async def scenario() -> None:
        hosts = f"{ensemble.connect_string}/closed"
        loaded = Follower(ZooKeeperStore(hosts))
        await loaded.load()
        # The server does not even tell that such a node was made.
        admin.create("/closed/brokers/secret", b"", acl=nobody)
        with pytest.raises(StoreUnavailable, match=r"read /brokers/secret \(its error -102\)"):
            await Follower(ZooKeeperStore(hosts)).load()
        ensemble.expire_session(loaded.store.session)
        await until(lambda: "/brokers/secret (its error -102)" in caplog.text)
        with pytest.raises(StoreUnavailable):
            await loaded.store.multi([Create("/controller")])
        admin.delete("/closed/brokers/secret")
        await written(loaded.store, Create("/controller"))
        await loaded.store.close()

    asyncio.run(scenario())


def test_a_root_that_may_not_be_made_fails_the_start(
    ensemble: ZooKeeperEnsemble, admin: KazooClient
) -> None:
    admin.create("/locked", acl=[make_acl("world", "anyone", read=True)])

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"refused to make the root of .* error -102"):
            await Follower(ZooKeeperStore(f"{ensemble.connect_string}/locked/in")).load()

    asyncio.run(scenario())


# Writes.


def test_a_multi_that_no_server_takes_is_refused_before_it_is_sent(run: Run) -> None:
    async def scenario(world: ZooKeeperWorld) -> None:
        follower = await world.join()
        session = follower.store.session
        with pytest.raises(MultiTooLarge, match="1048575 bytes") as refused:
            await follower.store.multi([Create("/a", b"x" * 1_100_000)])
        assert refused.value.definite
        # The largest that passes our check passes the server's, too.
        largest = 1_048_575 - len(Multi([Create("/a")], chroot=store_chroot(follower)).serialize())
        await follower.store.multi([Create("/a", b"x" * (largest - 8))])
        assert len(follower.data("/a") or b"") == largest - 8
        with pytest.raises(MultiTooLarge):
            await follower.store.multi([SetData("/a", b"x" * 1_048_570)])
        assert follower.store.session == session
        assert store_of(follower).is_ready

    run(scenario)


def store_chroot(follower: Follower) -> str:
    link = store_of(follower)._link
    assert link is not None
    return link.chroot


def test_many_writes_under_way_are_all_told_and_answered(run: Run) -> None:
    async def scenario(world: ZooKeeperWorld) -> None:
        follower = await world.join()
        await follower.store.multi([Create("/n")])

        async def create(number: int) -> None:
            await follower.store.multi([Create(f"/n/{number}", b"x")])
            assert f"/n/{number}" in follower.nodes

        await asyncio.gather(*(create(number) for number in range(500)))
        assert not follower.problems
        assert (await world.join()).nodes == follower.nodes

    run(scenario)


def test_a_cancelled_caller_leaves_the_others_alone(run: Run) -> None:
    async def scenario(world: ZooKeeperWorld) -> None:
        follower = await world.join()
        cancelled = asyncio.create_task(follower.store.multi([Create("/cancelled")]))
        kept = asyncio.create_task(follower.store.multi([Create("/kept")]))
        await asyncio.sleep(0)
        cancelled.cancel()
        await kept
        assert cancelled.cancelled()
        assert "/kept" in follower.nodes

    run(scenario)


def test_f37_a_write_that_never_arrived_has_not_happened(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def scenario() -> None:
        ports = ensemble.servers[0].ports
        with TcpProxy(ports.host, ports.client) as proxy:
            follower = Follower(ZooKeeperStore(f"{proxy.address}/f37", roots=("/",)))
            await follower.load()
            proxy.cut()
            writing = asyncio.create_task(outcome_of(follower.store.multi([Create("/lost")])))
            # The request must be on its way before the connection breaks under it.
            await until(lambda: is_sent(follower))
            proxy.drop()
            proxy.heal()
            assert isinstance(await writing, OutcomeUnknown)
            assert "/lost" not in follower.nodes
            await written(follower.store, Create("/lost"))
            assert not follower.problems
            await follower.store.close()

    asyncio.run(scenario())


def is_sent(follower: Follower) -> bool:
    """Whether a request has left and is not answered."""
    link = store_of(follower)._link
    assert link is not None
    return bool(link._client._pending)


def test_an_unanswered_write_has_a_limit(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario() -> None:
        ports = ensemble.servers[0].ports
        with TcpProxy(ports.host, ports.client) as proxy:
            store = ZooKeeperStore(f"{proxy.address}/limit", session_timeout_ms=SHORT_MS)
            await store.load(lambda changes: None)
            proxy.cut()
            with pytest.raises(OutcomeUnknown):
                await store.multi([Create("/controller")])
            proxy.heal()
            await written(store, Create("/controller_epoch"))
            await store.close()

    asyncio.run(scenario())


# Sessions.


def test_kafka_7165_what_a_former_session_left_behind_is_cleared_away(run: Run) -> None:
    """The old session seems over to us, but the ensemble has not yet deleted what it owns."""

    async def scenario(world: ZooKeeperWorld) -> None:
        victim, still_alive, other = [await world.join() for _ in range(3)]
        await still_alive.store.multi([Create("/id", ephemeral=True), Create("/kept")])
        await until(lambda: "/id" in victim.nodes)
        store_of(victim)._leftovers.session_ended(still_alive.store.session)
        world.expire(victim)
        await until(lambda: "/id" not in victim.nodes)
        assert victim.heard[-1].zxid >= other.zxid
        await written(victim.store, Create("/id", b"again", ephemeral=True))
        await until(lambda: other.data("/id") == b"again")
        assert "/kept" in other.nodes
        assert not victim.problems + other.problems

    run(scenario)


def test_a_session_outlives_a_broken_connection(run: Run) -> None:
    async def scenario(world: ZooKeeperWorld) -> None:
        follower = await world.join()
        await follower.store.multi([Create("/id", ephemeral=True)])
        session = follower.store.session
        for number in range(3):
            await world.cut(follower)
            world.heal(follower)
            await written(follower.store, SetData("/id", str(number).encode()))
        assert follower.store.session == session
        assert not follower.problems

    run(scenario)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_death_of_kazoos_thread_is_survived(run: Run) -> None:
    """A message that kazoo cannot read ends its thread, and the session with it."""

    async def scenario(world: ZooKeeperWorld) -> None:
        follower = await world.join()
        await follower.store.multi([Create("/id", ephemeral=True), Create("/kept")])
        session = follower.store.session
        link = store_of(follower)._link
        assert link is not None

        def fail(buffer: bytes, offset: int) -> None:
            raise LookupError("a bug")

        link._client._connection._read_watch_event = fail
        outcome = await outcome_of(follower.store.multi([Create("/a")]))
        assert isinstance(outcome, OutcomeUnknown)
        del link._client._connection._read_watch_event
        await written(follower.store, Create("/b"))
        assert follower.store.session != session
        assert set(follower.nodes) == {"/a", "/b", "/kept"}
        assert not follower.problems

    run(scenario)


def test_closing_while_no_server_answers_does_not_hang(ensemble: ZooKeeperEnsemble) -> None:
    async def scenario() -> None:
        ports = ensemble.servers[0].ports
        with TcpProxy(ports.host, ports.client) as proxy:
            store = ZooKeeperStore(f"{proxy.address}/hang", session_timeout_ms=LONG_MS)
            await store.load(lambda changes: None)
            proxy.cut()
            proxy.drop()
            await until(lambda: not store.is_ready)
            async with asyncio.timeout(PATIENCE_S):
                await store.close()

    asyncio.run(scenario())


def test_a_large_tree_is_read_with_few_requests(run: Run) -> None:
    async def scenario(world: ZooKeeperWorld) -> None:
        follower = await world.join()
        await follower.store.multi([Create("/brokers"), Create("/brokers/topics")])
        for topic in range(5):
            path = f"/brokers/topics/t{topic}"
            operations: list[Operation] = [Create(path), Create(f"{path}/partitions")]
            for partition in range(300):
                operations.append(Create(f"{path}/partitions/{partition}"))
                operations.append(Create(f"{path}/partitions/{partition}/state", b"{}"))
            await follower.store.multi(operations)
        other = await world.join()
        assert other.nodes == follower.nodes
        assert len(other.nodes) == 3012
        link = store_of(other)._link
        assert link is not None
        # 3012 nodes and 1512 lists of children in requests of 200, level by level.
        assert link._client._connection._xid < 60

    run(scenario)
