"""A small cluster under all checkers, and the ways in which tests break it on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.cluster.store import Changes
from strandline.node.replica import Replica
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.replication.leader import Leader
from strandline.sim.checkers import Checkers, Violation
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.plan import Options
from strandline.sim.world import World
from strandline.types import BrokerId, TopicPartition
from tests.node.messages import batch, produce, produced
from tests.sim.callers import Caller, create_topic

AT = TopicPartition("t", 0)


class Checked:
    """Three brokers and the topic `t`, led by broker 1; nothing happens by itself but fetches."""

    def __init__(self, *, seed: int = 1, loss: bool = False, **settings: str) -> None:
        """Underscores in the names of settings stand for dots."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        named.setdefault("min.insync.replicas", "2")
        self.world = World(Options(seed=seed, settings=named), permute=False)
        self.checkers = Checkers(self.world, exceeds_budget=lambda: loss)
        self.world.observers.append(self.checkers)
        self.world.start_all()
        assert self.world.run_until(self.world.is_settled)
        create_topic(self.world, AT.topic, (1, 2, 3))
        assert self.world.run_until(self.world.is_settled)
        answer = Caller(self.world, "ids", 1).ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        )
        self.producer_id = answer.producer_id
        self._sequence = 0

    # -- the cluster -------------------------------------------------------------------------

    def replica(self, broker_id: int) -> Replica:
        found = self.world.replica(broker_id, AT)
        assert found is not None
        return found

    def leader(self, broker_id: int = 1) -> Leader:
        leader = self.replica(broker_id).leader
        assert leader is not None
        return leader

    def write(
        self,
        count: int = 1,
        *,
        to: int = 1,
        acks: int = -1,
        epoch: int = 0,
        settle: bool = True,
        is_idempotent: bool = True,
    ) -> Any:
        """Write batches of one record; returns the last answer."""
        answer = None
        for _ in range(count):
            value = b"%d" % self._sequence
            if is_idempotent:
                records = batch(
                    value, producer_id=self.producer_id, epoch=epoch, sequence=self._sequence
                )
            else:
                records = batch(value)
            self._sequence += 1
            caller = Caller(self.world, "writer", to)
            answer = produced(caller.ask(produce(records, *AT, acks=acks, timeout_ms=1_000), 9))
            caller.close()
        if settle:
            self.world.run_for(1_500)
        return answer

    def isolate(self, broker_id: int) -> None:
        """Cut the network between a broker and the other brokers, both ways."""
        for other in self.world.machines:
            if other != broker_id:
                self.world.network.cut(BrokerId(broker_id), other)
                self.world.network.cut(other, BrokerId(broker_id))

    def drop_out(self, broker_id: int) -> None:
        """Isolate a follower until it is not in sync any more; one record more is committed."""
        self.isolate(broker_id)
        self.write(acks=1, settle=False)
        staying = tuple(b for b in (1, 2, 3) if b != broker_id)
        assert self.world.run_until(lambda: self.state.in_sync_replicas == staying)
        assert self.world.run_until(lambda: self.replica(1).log.high_watermark == self.end)
        self.world.run_for(1_500)

    @property
    def end(self) -> int:
        """Where the leader's log ends."""
        return self.replica(1).log.log_end_offset

    def act(self, broker_id: int) -> None:
        """Let the checkers look at a broker, as after an event."""
        self.checkers.node_acted(self.world[broker_id])

    def settle(self, broker_id: int) -> None:
        """Let a broker end its turn, and the checkers look at it."""
        machine = self.world[broker_id]
        machine.node.purgatory.wake(machine.now)
        self.act(broker_id)

    # -- the metadata ------------------------------------------------------------------------

    @property
    def state(self) -> PartitionImage:
        found = self.world.image.partition(AT)
        assert found is not None
        return found

    def image_with(self, **changes: object) -> ClusterImage:
        """The image, if the partition's state were another one."""
        image = self.world.image
        topic = image.topics[AT.topic]
        changed = replace(self.state, **changes)  # type: ignore[arg-type]
        partitions = {**topic.partitions, 0: changed}
        topics = {**image.topics, AT.topic: replace(topic, partitions=partitions)}
        return replace(image, topics=topics)

    def tell(self, image: ClusterImage) -> None:
        """Have the checkers believe that this is the metadata."""
        self.checkers.metadata_changed(Changes(image.zxid, ()), image)

    # -- what was found ----------------------------------------------------------------------

    @property
    def found(self) -> list[str]:
        """The invariants that were broken, in the order in which that was seen."""
        return [violation.invariant for violation in self.checkers.violations]

    def only(self, invariant: str) -> Violation:
        """The one violation of an invariant; others may follow from the same cause."""
        [violation] = [v for v in self.checkers.violations if v.invariant == invariant]
        return violation

    def close(self) -> None:
        self.world.close()


def model_of(checked: Checked, broker_id: int) -> LogModel:
    """What the checkers know of a log."""
    return checked.checkers.rules.partitions.named(AT)[-1].models[BrokerId(broker_id)]


def always(value: Any) -> Callable[..., Any]:
    """A function that gives this whatever it is asked."""
    return lambda *_, **__: value
