"""Random lives of consumer groups: whatever happens, no partition has two owners, and all converge.

Members of both ways to lose touch (lost answers, silence), appends that are held up or refused,
coordinators that fail over with what was durable, topics that grow, subscriptions that change.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import ErrorCode
from tests.groups.consumer.world import Client, Cluster, ConsumerWorld

NAMES = ("a", "b", "c", "d")
TOPICS = (("orders",), ("clicks",), ("orders", "clicks"))
MEMBERS = st.sampled_from(NAMES)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), MEMBERS),
        st.tuples(st.just("beat"), MEMBERS),
        st.tuples(st.just("beat"), MEMBERS),
        st.tuples(st.just("lose"), MEMBERS),
        st.tuples(st.just("subscribe"), MEMBERS, st.sampled_from(TOPICS)),
        st.tuples(st.just("leave"), MEMBERS, st.sampled_from((-1, -2))),
        st.tuples(st.just("wait"), st.sampled_from((1, 2_000, 20_000))),
        st.tuples(st.just("refuse"), st.just(ErrorCode.NOT_ENOUGH_REPLICAS)),
        st.tuples(st.just("hold"), MEMBERS, MEMBERS),
        st.tuples(st.just("fail over"), st.booleans()),
        st.tuples(st.just("grow"), st.sampled_from(("orders", "clicks"))),
    ),
    max_size=40,
)

Step = tuple[Any, ...]
"""What happens, and to which members."""


class Life:
    """A group, its members, and what happens to them."""

    def __init__(self, world: ConsumerWorld) -> None:
        self.world = world
        self.epoch = 1
        self.clients: dict[str, Client] = {}
        for index, name in enumerate(NAMES):
            instance = {"instance_id": f"i-{name}"} if index % 2 else {}
            self.clients[name] = world.client(name, TOPICS[index % len(TOPICS)], **instance)
        self.incarnations: Counter[str] = Counter()

    def do(self, step: Step) -> None:
        match step:
            case ("beat", name):
                self.clients[name].beat()
            case ("lose", name):
                self.lose(self.clients[name])
            case ("subscribe", name, topics):
                client = self.clients[name]
                client.first["subscribed_topic_names"] = list(topics)
                client.beat(subscribed_topic_names=list(topics))
            case ("leave", name, epoch):
                self.leave(name, epoch)
            case ("wait", ms):
                self.world.advance(ms)
            case ("refuse", error):
                self.world.fail_with = error
            case ("hold", first, second):
                self.hold(first, second)
            case ("fail over", is_lossy):
                self.fail_over(is_lossy)
            case ("grow", topic):
                facts = self.world.cluster.topics[topic]
                if facts.partition_count < 9:
                    self.world.cluster.put(topic, facts.partition_count + 1)
                    self.world.topics_changed(topic)
        self.check()

    def lose(self, client: Client) -> None:
        """The coordinator hears a heartbeat, and its answer gets lost."""
        if client.epoch:
            self.world.answer(client.request(topic_partitions=client.reported()))

    def leave(self, name: str, epoch: int) -> None:
        client = self.clients[name]
        if epoch == -2 and client.instance_id is None:
            return
        client.leave(epoch)
        # Its process ends in any case; the next one has another member id.
        self.incarnations[name] += 1
        fresh = self.world.client(f"{name}{self.incarnations[name]}", None, **client.first)
        self.clients[name] = fresh

    def hold(self, first: str, second: str) -> None:
        """Two heartbeats while the log does not answer."""
        world, world.hold = self.world, True
        asked = []
        for name in dict.fromkeys((first, second)):
            client = self.clients[name]
            if client.epoch:
                request = client.request(topic_partitions=client.reported())
            else:
                request = client.request(topic_partitions=[], **client.first)
            asked.append((client, world.ask(request)))
        world.hold = False
        world.release()
        for client, token in asked:
            client.take(world.replies[token])

    def fail_over(self, is_lossy: bool) -> None:
        """Another broker takes over; what was appended and not durable is lost, or not."""
        self.epoch += 1
        world = self.world
        if is_lossy:
            world.hold = True
            kept = list(world.log[0])
            for client in self.clients.values():
                world.ask(client.request(topic_partitions=client.reported()))
            world.log[0] = kept
            world.held.clear()
        later = world.fail_over(self.epoch)
        for client in self.clients.values():
            client.world = later
        self.world = later

    def check(self) -> None:
        """No two members that the group knows believe to own the same partition."""
        self.world.coordinator.check()
        known = {member.member_id for member in self.world.describe().members}
        owned = Counter(
            each
            for client in self.clients.values()
            if client.member_id in known
            for each in client.owned
        )
        assert all(count == 1 for count in owned.values()), owned

    def converge(self) -> None:
        """With a quiet network every member ends up with its target assignment."""
        self.world.fail_with = None
        for _ in range(3):
            self.world.advance(16_000)
            self.world.settle(*self.clients.values(), rounds=2)
        self.world.advance(46_000)
        self.world.settle(*self.clients.values(), rounds=8)
        assert self.world.states()[0] == "Stable"
        owned = Counter(each for client in self.clients.values() for each in client.owned)
        wanted = {
            (topic, number)
            for client in self.clients.values()
            for topic in client.first["subscribed_topic_names"]
            for number in range(self.world.cluster.topics[topic].partition_count)
        }
        assert owned == Counter(wanted)


@given(steps=STEPS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_lives(
    steps: list[Step], consumer_world_type: type[ConsumerWorld], cluster: Cluster
) -> None:
    fresh = type(cluster)(orders=4, clicks=2)
    life = Life(consumer_world_type(cluster=fresh))
    for step in steps:
        life.do(step)
    life.converge()
