"""Many clients doing anything, seeded: every request is answered once, nothing is left behind."""

from __future__ import annotations

from random import Random

import pytest

from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.storage.files import DiskFull
from tests.node.messages import batch, fetch, list_offsets, produce
from tests.node.world import Client, World, failing

TOPICS = ("orders", "second", "third")


class Workload:
    """Random requests; `rng` decides everything, so a seed repeats a run."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World("group.initial.rebalance.delay.ms=200", seed=seed)
        self.world.create_topic("__consumer_offsets", 2)
        self.clients: list[Client] = []
        self.sent = 0
        self.everyone: list[tuple[Client, int]] = []

    def step(self) -> None:
        rng, world = self.rng, self.world
        self.clients = [client for client in self.clients if client.closed is None]
        match rng.randrange(20):
            case 0 if len(self.clients) < 8:
                self.clients.append(world.connect())
            case 1 if self.clients and rng.random() < 0.3:
                self.clients.pop(rng.randrange(len(self.clients))).close()
            case 2:
                world.turn()
            case 3:
                world.advance(rng.choice([1, 50, 500, 6000]))
            case 4 if rng.random() < 0.2:
                world.turn()
                name = rng.choice(TOPICS)
                if name in world.node.metadata.image.topics:
                    world.delete_topic(name)
                else:
                    world.create_topic(name, rng.randint(1, 3))
            case 5 if rng.random() < 0.2:
                broken = {"append"} if rng.random() < 0.5 else set()
                world.files.on_call = failing(broken, f"/{rng.choice(TOPICS)}-0/", DiskFull)
            case 6 if self.clients and rng.random() < 0.2:
                rng.choice(self.clients).send_frame(rng.randbytes(rng.randrange(40)))
                world.turn()
            case _ if self.clients:
                self.request(rng.choice(self.clients))

    def request(self, client: Client) -> None:
        rng = self.rng
        if not client.connection.wants_input:
            self.world.turn()
            return
        topic = rng.choice(TOPICS)
        silent = False
        message: object
        match rng.randrange(8):
            case 0 | 1 | 2:
                acks = rng.choice([-1, -1, 1, 0])
                silent = acks == 0
                data = batch(*[rng.randbytes(30)] * rng.randint(1, 3))
                message, version = produce(data, topic, acks=acks), rng.choice([3, 7, 9])
            case 3 | 4:
                wanted = [(rng.choice(TOPICS), 0, rng.randrange(-1, 40)) for _ in range(2)]
                session = rng.choice([(0, -1), (0, 0), (rng.randrange(1, 9), 1)])
                message, version = (
                    fetch(
                        *wanted,
                        max_wait_ms=rng.choice([0, 10, 1000]),
                        min_bytes=rng.choice([1, 500]),
                        session=session,
                    ),
                    rng.choice([4, 11, 12]),
                )
            case 5:
                message, version = list_offsets(rng.choice([-1, -2, -3, 0]), topic), 7
            case 6:
                names = [MetadataRequestTopic(name=topic)]
                message = rng.choice(
                    [
                        MetadataRequest(topics=names),
                        MetadataRequest(topics=None),
                        ApiVersionsRequest(client_software_name="t", client_software_version="1"),
                        InitProducerIdRequest(transaction_timeout_ms=1),
                    ]
                )
                version = 4 if not isinstance(message, ApiVersionsRequest) else 3
            case _:
                message, version = (
                    JoinGroupRequest(
                        group_id=f"g{rng.randrange(2)}",
                        session_timeout_ms=6000,
                        rebalance_timeout_ms=1000,
                        member_id="",
                        protocol_type="consumer",
                        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                    ),
                    3,
                )
        client.send(message, version, silent=silent)


@pytest.mark.parametrize("seed", range(25))
def test_every_request_is_answered_once_or_its_connection_closed(seed: int) -> None:
    load = Workload(seed)
    for _ in range(600):
        load.step()
    world = load.world
    world.files.on_call = failing(set(), "")
    world.advance(120_000)
    for client in load.clients:
        assert client.closed is not None or not client.asked, client.asked
    world.check()
    assert len(world.node.purgatory) == 0
    for client in world.clients.values():
        client.close()
    world.check()
    for replica in world.node.replicas:
        assert not replica.waiters
        log = replica.log
        assert log.high_watermark == log.log_end_offset
    ends = {at.topic_partition: at.log.log_end_offset for at in world.node.replicas}
    world.kill_and_restart()
    after = {at.topic_partition: at.log.log_end_offset for at in world.node.replicas}
    # What could not be created on the full disk is there now.
    assert ends.items() <= after.items()
    assert all(after[at] == 0 for at in after.keys() - ends.keys())
