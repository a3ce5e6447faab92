"""A world as a whole: it comes up, tells those who watch, and hears of bugs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.node.effects import Chunk, ConnectionId
from strandline.node.membership import Membership
from strandline.sim.bugs import quiet
from strandline.sim.machine import Machine
from strandline.sim.observer import Ending
from strandline.sim.plan import Options
from strandline.sim.schedule import START_US
from strandline.sim.settled import are_logs_equal
from strandline.sim.silent import Silent
from strandline.sim.world import NOTES_MAX, World
from strandline.types import BrokerId, TopicPartition
from tests.sim.callers import Writer, create_topic, values_of

T0 = TopicPartition("t", 0)
MIN_2 = {"min.insync.replicas": "2"}


class Told(Silent):
    """Writes down what an observer hears."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bugs: list[str] = []
        self.acted = 0
        self.news = 0
        self.sent_bytes = 0

    def node_acted(self, machine: Machine) -> None:
        assert machine.is_up
        assert machine.node.broker_id == machine.broker_id
        self.acted += 1

    def started(self, machine: Machine) -> None:
        assert machine.node.broker_epoch == -1  # it has not begun to work
        self.lines.append(f"{machine.broker_id} started")

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        assert not machine.is_running
        has_node = machine.last_node is not None
        self.lines.append(f"{machine.broker_id} ended by {how} {lossy} {has_node}")

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        assert changes.changes
        assert image.zxid == changes.zxid
        self.news += 1

    def sent(self, machine: Machine, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        self.sent_bytes += len(chunks)

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        self.bugs.append(f"{broker_id}: {sentence}")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def world(told: Told) -> Iterator[World]:
    world = World(Options(seed=5, settings=MIN_2))
    world.observers.append(told)
    yield world
    world.close()


def test_a_cluster_comes_up_and_takes_records(world: World, told: Told) -> None:
    assert not world.is_settled() or not world.machines
    world.start_all()
    assert world.run_until(world.is_settled)
    assert sorted(told.lines) == ["1 started", "2 started", "3 started"]
    create_topic(world, "t", (1, 2, 3))
    writer = Writer(world, "w", T0)
    world.run_for(3_000)
    writer.is_stopping = True
    assert world.run_until(lambda: writer.is_done)
    assert len(writer.acknowledged) > 10
    assert world.run_until(lambda: are_logs_equal(world, T0))
    for broker_id in world.machines:
        found = values_of(world, broker_id, T0)
        assert {value: offset for offset, value in found.items()} == writer.acknowledged
    assert told.acted > 100
    assert told.news > 5
    assert told.sent_bytes > 10
    assert told.bugs == []
    assert "t-0: leader 1 in epoch" in str(world)


def test_settings_racks_and_disks_are_as_the_options_say() -> None:
    options = Options(
        seed=1, brokers=2, racks=("r1", "r2"), disks=2, settings={"replica.lag.time.max.ms": "777"}
    )
    world = World(options)
    assert [machine.config.broker_rack for machine in world.machines.values()] == ["r1", "r2"]
    assert world[2].config.log_dirs == ("/data1", "/data2")
    assert world[2].config.replica_lag_time_max_ms == 777
    world.close()


def test_clocks_are_as_the_options_say() -> None:
    options = Options(seed=1, brokers=2, drifts_ppm=(0, 1_000), wall_offsets_ms=(0, 5_000))
    world = World(options)
    world.run_for(100_000)
    one, two = world[1].now, world[2].now
    assert two.monotonic_ms - one.monotonic_ms == 100
    assert two.wall_ms - one.wall_ms == 5_100
    world.close()


def test_waiting_in_vain_takes_its_time(world: World) -> None:
    assert not world.run_until(lambda: False, within_us=5_000)
    assert world.schedule.now_us == START_US + 5_000


def test_notes_have_their_times_and_are_bounded(world: World) -> None:
    heard: list[tuple[int, str]] = []
    world.on_note = lambda at_us, text: heard.append((at_us, text))
    world.run_for(1)
    for number in range(NOTES_MAX + 5):
        world.note(f"number {number}")
    assert len(world.notes) == NOTES_MAX
    assert world.notes[0] == "1001.000 ms: number 5"
    assert heard[0] == (START_US + 1000, "number 0")
    assert len(heard) == NOTES_MAX + 5


def test_a_traceback_in_a_log_is_a_bug_of_the_node_at_work(
    world: World, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_told, other = Told(), World(Options(seed=6))
    other.observers.append(other_told)
    log = logging.getLogger("strandline.node")

    def act(membership: Membership, _: object) -> None:
        if membership.broker_id == BrokerId(2) and not told.bugs:
            try:
                int("oops")
            except ValueError:
                log.exception("It went wrong")
        log.error("said without a traceback")

    world.start_all()
    world.run_until(lambda: world[2].is_up)
    monkeypatch.setattr(Membership, "act", act)
    world.run_for(1_000)
    assert len(told.bugs) == 1
    assert told.bugs[0].startswith("2: It went wrong: ValueError(")
    assert world[2].is_up  # it was told, and the node goes on
    assert other_told.bugs == []
    other.close()


def test_a_traceback_outside_of_any_node_is_not_heard(world: World, told: Told) -> None:
    try:
        int("not ours")
    except ValueError:
        logging.getLogger("strandline.client").exception("somebody else")
    assert told.bugs == []
    assert world.notes == []


def test_an_exception_out_of_a_node_ends_its_process_and_nothing_else(
    world: World, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start_all()
    assert world.run_until(world.is_settled)

    def act(membership: Membership, _: object) -> None:
        if membership.broker_id == BrokerId(3):
            raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Membership, "act", act)
        assert world.run_until(lambda: not world[3].is_running)
    assert len(told.bugs) == 1
    assert told.bugs[0].startswith("3: ZeroDivisionError: a bug at ")
    assert told.lines[-1] == "3 ended by bug False True"
    assert world[1].is_up
    world[3].start()
    assert world.run_until(world.is_settled)


def test_a_mistake_of_the_simulator_is_no_bug_of_a_node(
    world: World, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start_all()
    assert world.run_until(world.is_settled)
    monkeypatch.setattr(world[1].clock, "changed", None)
    with pytest.raises(TypeError):
        world[1].event(lambda node, now: world[1].clock.drift(1))
    assert told.bugs == []


def test_a_closed_world_is_over(world: World) -> None:
    world.start_all()
    world.close()
    world.run_for(1_000)
    assert world.schedule.events == 0
    assert world.observers == []


def test_quiet_lets_errors_through_only() -> None:
    logger = logging.getLogger("strandline.node.test")
    with quiet():
        assert not logger.isEnabledFor(logging.WARNING)
        assert logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.WARNING)
