"""Brokers 2 and 3 beside the one node of a `World`: they exist in the metadata, and fetch by hand.

What a leader does with its followers is tested by requests that they might send, in the order that
a test wants, and by partition states written straight into the metadata store. Changes of in-sync
sets are recorded instead of being proposed to a controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from strandline.cluster.controller import register_broker
from strandline.cluster.features import SUPPORTED
from strandline.cluster.image import PartitionImage
from strandline.cluster.store import Operation, SessionId, SetData
from strandline.cluster.znodes import BrokerNode, Endpoint, PartitionStateNode, TopicNode
from strandline.cluster.znodes.topics import state_path, topic_path
from strandline.node.hosted_replica import HostedReplica
from strandline.node.replica import Replica
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from strandline.types import BrokerId, Instant, LeaderEpoch, TopicPartition
from tests.node.messages import batch, fetched, produce, produced
from tests.node.world import Client, World

ME: Final = BrokerId(1)
A: Final = BrokerId(1)
B: Final = BrokerId(2)
C: Final = BrokerId(3)
ALL: Final = (A, B, C)
FETCH_VERSION: Final = 17


@dataclass
class Recorder:
    """Stands for the way to the controller: what was proposed, oldest first."""

    proposed: list[tuple[HostedReplica, frozenset[int]]] = field(default_factory=list)

    def propose(self, replica: HostedReplica, now: Instant) -> None:
        """Note a proposal."""
        assert replica.leader is not None
        self.proposed.append((replica, frozenset(replica.leader.in_sync.proposed)))

    @property
    def sets(self) -> list[set[int]]:
        """The proposed sets."""
        return [set(members) for _, members in self.proposed]


class Cluster:
    """One node that is broker 1 of three."""

    def __init__(self, *settings: str, racks: dict[int, str] | None = None) -> None:
        self.world = World(*settings)
        self.recorder = Recorder()
        self.world.node.replicas.host.proposals = self.recorder
        self.clients: dict[int, Client] = {}
        self.racks = racks or {}
        for broker_id in (B, C):
            self.register(broker_id)

    # -- Metadata ----------------------------------------------------------------------------

    def register(self, broker_id: BrokerId, listener: str = "PLAINTEXT") -> None:
        """Broker 2 or 3 starts; a session that it had is over."""
        self.leave(broker_id)
        node = BrokerNode(
            broker_id,
            (Endpoint(listener, "localhost", 9092 + broker_id),),
            self.racks.get(broker_id),
            self.world.now.wall_ms,
            features=SUPPORTED,
        )
        self.write(register_broker(self.world.node.metadata.image, node), _session(broker_id))

    def leave(self, broker_id: BrokerId) -> None:
        """Broker 2 or 3 dies and is noticed."""
        changes = self.world.tree.expire_session(_session(broker_id)).changes
        if changes is not None:
            self.world.metadata_changed(changes)

    def epoch_of(self, broker_id: int) -> int:
        return self.world.node.metadata.image.brokers[BrokerId(broker_id)].epoch

    def write(self, operations: Any, session: SessionId | None = None) -> None:
        """Change the metadata as another broker or a controller would."""
        applied = self.world.tree.multi(
            list[Operation](operations), *(() if session is None else (session,))
        )
        if applied.changes is not None:
            self.world.metadata_changed(applied.changes)

    def create_topic(
        self, name: str = "orders", replicas: tuple[int, ...] = ALL, **configs: str
    ) -> None:
        """A topic with one partition on these brokers; the first leads, all are in sync."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer = self.world.connect().ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert [item.error_code for item in answer.topics] == [0], answer

    def state(self, topic: str = "orders") -> PartitionImage:
        found = self.world.node.metadata.image.partition(TopicPartition(topic, 0))
        assert found is not None
        return found

    def set_state(
        self,
        topic: str = "orders",
        *,
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        elr: tuple[int, ...] = (),
        new_epoch: bool = True,
    ) -> None:
        """The controller writes another state; under a new leader epoch unless told otherwise."""
        at = TopicPartition(topic, 0)
        former = self.world.node.metadata.image.topics[topic].states[0].value
        members = former.in_sync_replicas if isr is None else isr
        brokers = self.world.node.metadata.image.brokers
        node = PartitionStateNode(
            leader=former.leader if leader is None else BrokerId(leader),
            leader_epoch=LeaderEpoch(former.leader_epoch + new_epoch),
            in_sync_replicas=tuple(BrokerId(member) for member in members),
            controller_epoch=former.controller_epoch,
            in_sync_epochs={
                BrokerId(member): brokers[BrokerId(member)].epoch
                for member in (*members, *elr)
                if member in brokers
            },
            elr=tuple(BrokerId(member) for member in elr),
        )
        self.write([SetData(state_path(at), node.encode())])

    def reassign(self, replicas: tuple[int, ...], topic: str = "orders") -> None:
        """The controller writes another assignment."""
        former = self.world.node.metadata.image.topics[topic].node
        node = TopicNode(
            topic, former.topic_id, {0: tuple(BrokerId(replica) for replica in replicas)}
        )
        self.write([SetData(topic_path(topic), node.encode())])

    # -- The partition -----------------------------------------------------------------------

    def replica(self, topic: str = "orders") -> Replica:
        return self.world.node.replicas.hosted(topic, 0)

    def offsets(self, topic: str = "orders") -> tuple[int, int]:
        """Log end and high watermark, in the specification's way: LEO/HW."""
        log = self.replica(topic).log
        return log.log_end_offset, log.high_watermark

    def remote(self, topic: str = "orders") -> dict[int, int]:
        """What the leader knows of its followers' log ends."""
        leader = self.replica(topic).leader
        assert leader is not None
        return {int(broker): p.log_end_offset for broker, p in leader.progress.items()}

    def produce(self, *values: bytes, acks: int = 1, topic: str = "orders") -> Any:
        """Append one batch; the answer, which must come at once."""
        message = produce(batch(*(values or (b"m",))), topic, acks=acks)
        return produced(self.world.connect().ask(message, 9))

    def client_of(self, broker_id: int) -> Client:
        """The connection that a follower fetches on."""
        client = self.clients.get(broker_id)
        if client is None or client.closed is not None:
            client = self.clients[broker_id] = self.world.connect()
        return client

    def fetch(self, follower: int, offset: int, topic: str = "orders", **more: Any) -> Any:
        """What a follower is answered, at once, for its only partition."""
        client = self.client_of(follower)
        answer = client.ask(self.fetch_request(follower, offset, topic, **more), FETCH_VERSION)
        assert answer.error_code == 0, answer
        (partition,) = fetched(answer).values()
        return partition

    def fetch_request(
        self,
        follower: int,
        offset: int,
        topic: str = "orders",
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        leader_epoch: int | None = None,
        last_fetched_epoch: int = -1,
        log_start_offset: int = 0,
        broker_epoch: int | None = None,
        session: tuple[int, int] = (0, -1),
    ) -> FetchRequest:
        """A follower's request; by default with the right epochs."""
        epoch = self.epoch_of(follower) if broker_epoch is None else broker_epoch
        return FetchRequest(
            replica_state=ReplicaState(replica_id=follower, replica_epoch=epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=10_000_000,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchTopic(
                    topic_id=self.world.node.metadata.image.topics[topic].topic_id,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=(
                                self.state(topic).leader_epoch
                                if leader_epoch is None
                                else leader_epoch
                            ),
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            log_start_offset=log_start_offset,
                            partition_max_bytes=1_000_000,
                        )
                    ],
                )
            ],
        )


def from_leader(offset: int, *records: bytes, leader_epoch: int = 1, **producer: Any) -> bytes:
    """A batch as a leader in that epoch has it in its log."""
    data = bytearray(batch(*records, **producer))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = leader_epoch.to_bytes(4, "big")
    return bytes(data)


def _session(broker_id: int) -> SessionId:
    return SessionId(900_000 + broker_id)
