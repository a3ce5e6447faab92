"""Several nodes in virtual time: the whole cluster without sockets, threads or waiting.

Every broker is a real `Node` on files in memory; they share a metadata tree with sessions, and
speak with each other in real bytes over simulated links. A seed decides all delays. A test drives
time (`run`, `run_until`), breaks things (`kill`, `power_cut`, `pause`, `cut`, `hold`), and asks the
nodes as clients do. `check()` holds what must be true at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from strandline.cluster.image import ClusterImage
from strandline.cluster.image_parts import PartitionImage
from strandline.node.replica import Replica
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.types import BrokerId, TopicPartition
from tests.node.cluster_machine import Machine
from tests.node.cluster_metadata import MetadataService
from tests.node.cluster_network import Network
from tests.node.cluster_schedule import Schedule
from tests.node.world import BugWatch


class ClusterWorld:
    """See the module."""

    def __init__(self, brokers: int = 3, *settings: str, seed: int = 1, start: bool = True) -> None:
        self.seed = seed
        self.schedule = Schedule()
        self._random = Random(f"{seed} network")
        self.machines = {
            BrokerId(number): Machine(self, BrokerId(number), settings)
            for number in range(1, brokers + 1)
        }
        first = self.machines[BrokerId(1)]
        self.network = Network(self.schedule, self._delay_ms)
        self.store = MetadataService(
            self.schedule,
            Random(f"{seed} store"),
            self._delay_ms,
            first.config.zookeeper_session_timeout_ms,
        )
        self._cuts: frozenset[tuple[BrokerId, BrokerId]] = frozenset()
        self._held: frozenset[tuple[BrokerId, BrokerId]] = frozenset()
        self.bugs = BugWatch()
        if start:
            # The last one is the first, and so becomes the controller.
            for broker_id in reversed(self.machines):
                self.start(broker_id)
                self.run_until(lambda: self.image.controller is not None)
            self.run_until(self.is_settled)

    def _delay_ms(self) -> int:
        return self._random.choice((0, 0, 0, 1, 1, 2))

    def __getitem__(self, broker_id: int) -> Machine:
        return self.machines[BrokerId(broker_id)]

    # -- time --------------------------------------------------------------------------------

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.schedule.run_until(self.schedule.now_ms + milliseconds)

    def run_until(self, condition: Callable[[], bool], *, ms_max: int = 60_000) -> None:
        """Let things happen until the condition holds; fail if it takes longer than `ms_max`."""
        end_ms = self.schedule.now_ms + ms_max
        while not condition():
            next_ms = self.schedule.next_ms
            if next_ms is None or next_ms > end_ms:
                raise AssertionError(f"In vain for {ms_max} ms.\n{self}")
            self.schedule.step()

    # -- faults ------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        """Start a broker that is not running."""
        self[broker_id].start()

    def kill(self, broker_id: int, *, expire: bool = False) -> None:
        """End a process; what it wrote to its files stays. `expire` ends its session at once."""
        machine = self[broker_id]
        machine.end(at_once=expire)
        machine.files = machine.files.kill_clone()

    def power_cut(
        self, broker_id: int, *, keep: Random | None = None, expire: bool = False
    ) -> None:
        """End a machine; of what was not synced only what `keep` chooses stays."""
        machine = self[broker_id]
        machine.end(at_once=expire)
        machine.files = machine.files.crash_clone(keep)

    def stop(self, broker_id: int) -> bool:
        """Stop a broker as SIGTERM does; returns whether its files are in order."""
        machine = self[broker_id]
        machine.event(lambda node, now: node.begin_shutdown(now))
        self.run_until(lambda: machine.node.is_shutdown_complete)
        clean = machine.node.stop(machine.node.unbroken_since)
        machine.end(at_once=True)
        return clean

    def restart(self, broker_id: int) -> None:
        """Stop and start."""
        assert self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Stop a process in its tracks; its session runs out."""
        self[broker_id].is_paused = True
        self[broker_id].metadata.cut()

    def resume(self, broker_id: int) -> None:
        """Let it go on: it acts on what it knows before it hears what has changed."""
        self[broker_id].resume()
        self[broker_id].metadata.heal()

    def cut(
        self, some: Collection[int], others: Collection[int], *, and_metadata: bool = False
    ) -> None:
        """Cut brokers off from others, both ways; the first ones perhaps from the metadata too."""
        pairs = {(BrokerId(a), BrokerId(b)) for a in some for b in others}
        self._cuts |= pairs | {(b, a) for a, b in pairs}
        self._hold()
        if and_metadata:
            for broker_id in some:
                self[broker_id].metadata.cut()

    def heal(self) -> None:
        """End all cuts."""
        self._cuts = frozenset()
        self._hold()
        for machine in self.machines.values():
            if machine.is_up and not machine.is_paused:
                machine.metadata.heal()

    def hold(self, *pairs: tuple[int, int]) -> None:
        """Hold what goes from the first to the second broker of exactly these pairs."""
        self._held = frozenset((BrokerId(a), BrokerId(b)) for a, b in pairs)
        self._hold()

    def let_through(self, sender: int, receiver: int) -> None:
        """Deliver one held thing, and what follows from it at this moment and soon after."""
        assert self.network.let_through(BrokerId(sender), BrokerId(receiver)), "nothing is held"
        self.run(5)

    def _hold(self) -> None:
        self.network.hold(self._cuts | self._held)

    def sync(self, broker_id: int, topic: str, number: int = 0) -> None:
        """Bring one replica's log to the disk."""
        log = self.replica(broker_id, topic, number).log
        plan = log.flush_plan()
        assert plan is not None
        assert plan.carry_out(self[broker_id].files)
        assert log.mark_flushed(plan, self.schedule.now.wall_ms)

    # -- looking -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The metadata as the store has it."""
        return self.store.image

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        found = self.image.partition(TopicPartition(topic, number))
        assert found is not None
        return found

    def leader_of(self, topic: str, number: int = 0) -> Machine:
        """The broker that the metadata says leads."""
        return self.machines[self.partition(topic, number).leader]

    def replica(self, broker_id: int, topic: str, number: int = 0) -> Replica:
        """The replica on one broker, led or followed."""
        at = TopicPartition(topic, number)
        return next(each for each in self[broker_id].node.replicas if each.topic_partition == at)

    def offsets(self, broker_id: int, topic: str, number: int = 0) -> tuple[int, int]:
        """Log end and high watermark on one broker."""
        log = self.replica(broker_id, topic, number).log
        return log.log_end_offset, log.high_watermark

    def log_bytes(self, broker_id: int, topic: str, number: int = 0) -> bytes:
        """All bytes of a partition's log on one broker."""
        segments = self.replica(broker_id, topic, number).log.segments.all
        return b"".join(s.log.read_at(0, s.log.size) for s in segments)

    def is_settled(self) -> bool:
        """Whether all running brokers are registered and know the controller, and every partition
        is led by a live broker and in sync with all its live replicas."""
        image = self.image
        running = {b for b, m in self.machines.items() if m.is_running}
        if image.brokers.keys() != running or image.controller not in running:
            return False
        if not all(
            self[b].is_up and self[b].node.metadata.image.zxid == image.zxid for b in running
        ):
            return False
        present = {(b, broker.epoch) for b, broker in image.brokers.items()}
        return all(
            partition.leader in running
            and {*partition.replicas} & running == {*partition.in_sync_replicas}
            and partition.in_sync_epochs.items() <= present
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def are_logs_equal(self, topic: str, number: int = 0) -> bool:
        """Whether all running replicas hold the same bytes and offsets (I-21, I-49)."""
        replicas = [
            broker_id
            for broker_id in self.partition(topic, number).replicas
            if self[broker_id].is_running
        ]
        return (
            len({self.log_bytes(b, topic, number) for b in replicas}) == 1
            and len({self.offsets(b, topic, number) for b in replicas}) == 1
        )

    def check(self) -> None:
        """No bug was logged, no request was lost, every log is sound."""
        self.run(0)
        assert not self.bugs.found, self.bugs.found
        for machine in self.machines.values():
            if not machine.is_up or machine.is_paused:
                continue
            for client in machine.clients.values():
                client.check()
            for replica in machine.node.replicas:
                replica.log.check()

    def __str__(self) -> str:
        lines = [f"at {self.schedule.now_ms} ms, controller {self.image.controller}"]
        for topic in self.image.topics.values():
            for number, state in topic.partitions.items():
                lines.append(f"  {topic.name}-{number}: {state}")
                for broker_id in state.replicas:
                    machine = self.machines[broker_id]
                    for replica in machine.node.replicas if machine.is_up else ():
                        if replica.topic_partition == TopicPartition(topic.name, number):
                            log = replica.log
                            lines.append(
                                f"    {broker_id}: {'leads' if replica.is_leading else 'follows'} "
                                f"in epoch {replica.leader_epoch}, log {log.log_start_offset} to "
                                f"{log.log_end_offset}, high watermark {log.high_watermark}, "
                                f"epochs {[tuple(e) for e in log.leader_epochs.entries]}"
                            )
        return "\n".join(lines)

    # -- short ways --------------------------------------------------------------------------

    @property
    def controller(self) -> Machine:
        controller = self.image.controller
        assert controller is not None
        return self.machines[controller]

    def create_topic(
        self, name: str, *assignments: Collection[int], partitions: int = 1, **configs: str
    ) -> None:
        """Make a topic with the given replicas per partition, or spread over all brokers."""
        replicas = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(assignments)
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if replicas else partitions,
            replication_factor=-1 if replicas else len(self.machines),
            assignments=replicas,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        answer = self.controller.connect().ask(request, 5)
        assert [item.error_code for item in answer.topics] == [0], answer
        self.run_until(self.is_settled)
