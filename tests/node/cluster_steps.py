"""Replication step by step: what goes between brokers is held and let through by the test.

Followers ask again and again without waiting at the leader, so that every fetch of a scenario is
one exchange: its request arrives and is answered (`arrives`), its answer is taken (`returns`).
"""

from __future__ import annotations

from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced
from tests.node.world import Client

IMPATIENT = "replica.fetch.wait.max.ms=0"


class Steps:
    """The topic `t`, led by the first replica at the beginning, and followers in slow motion.

    One broker more than there are replicas is the controller, whom nothing slows down.
    """

    def __init__(self, *replicas: int, settings: tuple[str, ...] = (IMPATIENT,)) -> None:
        self.world = ClusterWorld(len(replicas) + 1, *settings)
        self.world.create_topic("t", replicas)
        self.leader, self.followers = replicas[0], replicas[1:]
        self.follow(self.leader, *self.followers)

    def follow(self, leader: int, *followers: int) -> None:
        """From now on these followers fetch from that leader, when the test says so."""
        self.leader, self.followers = leader, followers
        self.world.run(10)
        self.world.hold(*self._pairs())
        self.world.run(10)
        for follower in followers:
            while self.world.is_held(leader, follower):
                self.world.let_through(leader, follower)

    def _pairs(self) -> list[tuple[int, int]]:
        return [
            pair for each in self.followers for pair in ((self.leader, each), (each, self.leader))
        ]

    def release(self) -> None:
        """Let the followers fetch as fast as they like."""
        self.world.hold()
        self.followers = ()

    def produce(self, value: bytes, *, acks: int = -1) -> Client:
        """Have a client write to the leader; it does not wait for the answer."""
        client = self.world[self.leader].connect()
        client.send(produce(batch(value), "t", acks=acks, timeout_ms=60_000), 9)
        self.world[self.leader].schedule_turn()
        self.world.run(5)
        return client

    def fetch(self, follower: int) -> None:
        """One whole fetch of a follower."""
        self.arrives(follower)
        self.returns(follower)

    def arrives(self, follower: int) -> None:
        """The follower's request reaches the leader, which answers it."""
        self.world.let_through(follower, self.leader)

    def returns(self, follower: int) -> None:
        """The answer reaches the follower, which sends the next request."""
        self.world.let_through(self.leader, follower)

    def at(self, broker_id: int) -> tuple[int, int]:
        """Log end and high watermark."""
        return self.world.offsets(broker_id, "t")

    @property
    def remote(self) -> dict[int, int]:
        """What the leader knows of its followers' log ends."""
        leader = self.world.replica(self.leader, "t").leader
        assert leader is not None
        return {each: state.log_end_offset for each, state in sorted(leader.progress.items())}

    def row(self) -> tuple[object, ...]:
        """Leader, remote log ends, followers: a line of the specification's tables."""
        return (
            self.at(self.leader),
            *(self.remote[each] for each in self.followers),
            *(self.at(each) for each in self.followers),
        )


def is_acknowledged(client: Client) -> bool:
    """Whether a produce was answered, and well."""
    return bool(client.answers) and produced(client.answers[-1]).error_code == 0
