"""A small cluster with the topic `t`, to break things in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.cluster.image_parts import PartitionImage
from strandline.sim.clients.workload import Workload
from strandline.sim.faults.nemesis import Nemesis
from strandline.sim.faults.scene import Scene
from strandline.sim.machine import Machine
from strandline.sim.plan import STRICT, Action, ClientSpec, Options
from strandline.sim.world import World
from strandline.types import TopicPartition

T0 = TopicPartition("t", 0)


def action(line: str, at_us: int = 0) -> Action:
    """`kill 2 down=1s`."""
    verb, *rest = line.split()
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    return Action(at_us, verb, tuple(word for word in rest if "=" not in word), options)


class Stage:
    """See the module. Broker 1 leads `t-0`."""

    def __init__(self, world: World) -> None:
        self.world = world
        specs = [ClientSpec("producer", "p1", {"topic": "t", "acks": "all", "every": "20ms"})]
        self.scene = Scene(world, [spec.name for spec in specs])
        self.workload = Workload(world, specs)
        self.nemesis = Nemesis(self.scene, self.workload)

    def do(self, *lines: str) -> None:
        """Have these done now, one after the other."""
        for line in lines:
            self.nemesis.plan([action(line)])
            self.world.run_for(0)

    def run(self, ms: int) -> None:
        """Let time pass."""
        self.world.run_for(ms)

    def settle(self) -> None:
        """Wait until all is well."""
        assert self.world.run_until(self.world.is_settled), str(self.world)

    def __getitem__(self, broker_id: int) -> Machine:
        return self.world[broker_id]

    @property
    def state(self) -> PartitionImage:
        """The state of `t-0`."""
        found = self.world.image.partition(T0)
        assert found is not None
        return found

    def log_end(self, broker_id: int) -> int:
        """Where a broker's log of `t-0` ends; -1 if it has none now."""
        replica = self.world.replica(broker_id, T0)
        return -1 if replica is None else replica.log.log_end_offset

    @property
    def skipped(self) -> list[str]:
        """Why actions were not done."""
        return [note for note in self.world.notes if ": skipped" in note]


@contextmanager
def stage(
    profile: str = STRICT,
    brokers: int = 3,
    disks: int = 1,
    minimums: tuple[int, ...] = (),
    **settings: str,
) -> Iterator[Stage]:
    """A cluster that works, with a producer that writes to `t-0` with acks=all."""
    chosen = {
        "min.insync.replicas": "2",
        "zookeeper.session.timeout.ms": "1000",
        "replica.lag.time.max.ms": "1000",
        "replica.fetch.wait.max.ms": "50",
        "replica.fetch.backoff.ms": "20",
        "replica.socket.timeout.ms": "1000",
        "controller.socket.timeout.ms": "1000",
    }
    chosen |= {name.replace("_", "."): value for name, value in settings.items()}
    options = Options(
        seed=1, profile=profile, brokers=brokers, disks=disks, minimums=minimums, settings=chosen
    )
    world = World(options)
    try:
        made = Stage(world)
        world.start_all()
        made.settle()
        assignment = ":".join(str(number) for number in range(1, min(3, brokers) + 1))
        made.workload.perform(action(f"create-topic t assignment={assignment} within=9s"))
        assert world.run_until(lambda: "t" in world.image.topics)
        made.settle()
        made.workload.start()
        made.run(200)
        yield made
    finally:
        world.close()
