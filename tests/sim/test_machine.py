"""What happens to one machine of a cluster: ends of processes, pauses, slow disks, starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.cluster.store import Delete
from strandline.cluster.znodes.brokers import path_of
from strandline.node.node import Node
from strandline.sim.machine import Machine
from strandline.sim.observer import Ending
from strandline.sim.plan import Options
from strandline.sim.settled import are_logs_equal
from strandline.sim.silent import Silent
from strandline.sim.world import World
from strandline.types import BrokerId, Instant, TopicPartition
from tests.current import current
from tests.node.messages import batch, produce, produced
from tests.sim.callers import Caller, Writer, create_topic, values_of

T0 = TopicPartition("t", 0)
SESSION_US = 6_000_000


class Ends(Silent):
    """The ends of processes, and bugs."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, Ending, bool]] = []
        self.bugs: list[str] = []

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        self.ends.append((machine.broker_id, how, lossy))

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        self.bugs.append(sentence)


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def world(ends: Ends) -> Iterator[World]:
    """Three brokers, and t-0 led by broker 1."""
    world = make_world(1, ends)
    yield world
    assert ends.bugs == []
    world.close()


def make_world(seed: int, ends: Ends, **configs: str) -> World:
    """Underscores in the names of topic settings stand for dots."""
    world = World(Options(seed=seed, settings={"min.insync.replicas": "2"}))
    world.observers.append(ends)
    world.start_all()
    settle(world)
    topic = {name.replace("_", "."): value for name, value in configs.items()}
    create_topic(world, "t", (1, 2, 3), configs=topic)
    return world


def settle(world: World) -> None:
    assert world.run_until(world.is_settled), f"{world}\n" + "\n".join(world.notes)


def finish(world: World, *writers: Writer) -> None:
    """Everything is right in the end: all is there that was acknowledged, once, everywhere."""
    settle(world)
    for writer in writers:
        writer.is_stopping = True
    assert world.run_until(lambda: all(writer.is_done for writer in writers)), str(world)
    assert world.run_until(lambda: are_logs_equal(world, T0)), str(world)
    found = values_of(world, 1, T0)
    assert len(set(found.values())) == len(found)
    for writer in writers:
        assert writer.acknowledged
        for value, offset in writer.acknowledged.items():
            assert found.get(offset) == value


# -- The ends of processes -------------------------------------------------------------------


def test_a_killed_process_keeps_what_it_wrote_and_comes_back(world: World, ends: Ends) -> None:
    writer = Writer(world, "w", T0)
    world.run_for(500)
    world[1].kill()
    assert ends.ends == [(1, "kill", False)]
    assert not world[1].is_running
    assert world[1].is_powered
    world.run_for(10_000)
    partition = world.image.partition(T0)
    assert partition is not None
    assert partition.leader in (2, 3)
    world[1].start()
    settle(world)
    assert world[1].life == 2
    assert not world[1].last_start_was_clean
    finish(world, writer)


def test_a_power_cut_takes_what_was_not_synced(world: World, ends: Ends) -> None:
    writer = Writer(world, "w", T0)
    world.run_for(2_000)
    replica = world.replica(3, T0)
    assert replica is not None
    before = replica.log.log_end_offset
    world[3].disk.write_back()
    assert world[3].power_cut("none")
    assert ends.ends == [(3, "power", True)]
    assert not current(world[3].is_powered)
    world.run_for(100)
    world[3].start()
    assert world[3].is_powered
    assert world.run_until(lambda: world[3].is_up)
    replica = world.replica(3, T0)
    assert replica is None or replica.log.log_end_offset < before
    finish(world, writer)


def test_power_can_be_cut_under_a_dead_process(world: World, ends: Ends) -> None:
    Writer(world, "w", T0)
    world.run_for(1_000)
    world[2].kill()
    assert world[2].power_cut("none")
    assert ends.ends == [(2, "kill", False)]  # it ended once
    assert not world[2].is_powered
    world[2].start()
    settle(world)


def test_an_emptied_disk_is_filled_again(world: World, ends: Ends) -> None:
    writer = Writer(world, "w", T0)
    world.run_for(1_000)
    assert world[2].swap_disk()
    assert ends.ends == [(2, "swap", True)]
    world.run_for(SESSION_US // 1000 + 2_000)
    world[2].start()
    finish(world, writer)


def test_a_controlled_shutdown_is_clean_and_moves_leadership_before(
    world: World, ends: Ends
) -> None:
    writer = Writer(world, "w", T0)
    world.run_for(300)
    outcome: list[bool] = []
    world[1].stop(outcome.append)
    assert world.run_until(lambda: bool(outcome), within_us=3_000_000)
    assert outcome == [True]
    assert ends.ends == [(1, "stop", False)]
    partition = world.image.partition(T0)
    assert partition is not None
    assert partition.leader in (2, 3)  # moved before the end, which closes the session
    assert 1 not in world.image.brokers
    world[1].start()
    settle(world)
    assert world[1].last_start_was_clean
    finish(world, writer)


def test_a_process_that_starts_can_be_stopped(world: World, ends: Ends) -> None:
    world[1].kill()
    world[1].start()
    world.run_for(100)
    outcome: list[bool] = []
    world[1].stop(outcome.append)
    assert outcome == [False]
    assert ends.ends[-1] == (1, "failed", False)


def _fail(node: Node, now: Instant) -> None:
    raise AssertionError("There is no process that an event could reach.")


def test_all_calls_on_a_machine_without_a_process_do_nothing(world: World, ends: Ends) -> None:
    machine = world[1]
    machine.kill()
    machine.kill()
    machine.pause()
    machine.resume()
    machine.stop()
    machine.event(_fail)
    machine.schedule_turn()
    world.run_for(10)
    assert ends.ends == [(1, "kill", False)]
    machine.start()
    life = machine.life
    machine.start()
    assert machine.life == life


def test_what_was_held_for_a_process_is_dropped_when_it_ends_as_it_goes_on(
    world: World, ends: Ends
) -> None:
    """Seed 2003595: an answer was handled after a kill by the answer before it."""
    machine = world[1]
    handled: list[str] = []
    machine.pause()
    machine.event(lambda node, now: machine.kill())
    machine.event(lambda node, now: handled.append("after the end"))
    machine.resume()
    assert ends.ends == [(1, "kill", False)]
    assert handled == []


# -- Starts ----------------------------------------------------------------------------------


def test_a_restart_waits_until_the_session_of_the_former_life_is_over(world: World) -> None:
    world[2].kill()
    killed_us = world.schedule.now_us
    world.run_for(50)
    world[2].start()
    assert world.run_until(lambda: world[2].is_up)
    # Not before its last sign of life has been silent for the time-out.
    assert world.schedule.now_us - killed_us > SESSION_US // 2
    settle(world)


def test_a_start_without_the_store_is_tried_again(world: World, ends: Ends) -> None:
    world[3].kill()
    world.store.cut(BrokerId(3))
    world[3].start()
    world.run_for(3_000)
    assert not world[3].is_up
    assert (3, "failed", False) in ends.ends
    assert any("3 cannot start: No server" in note for note in world.notes)
    world.store.heal(BrokerId(3))
    settle(world)


def test_a_start_on_a_dead_disk_says_so(world: World, ends: Ends) -> None:
    world[3].kill()
    world[3].disk.break_dir("/data1")
    world[3].start()
    world.run_for(20_000)
    assert any("3 cannot start" in note or "is offline" in note for note in world.notes)
    world[3].disk.heal()
    world[3].kill()
    world[3].start()
    settle(world)


def test_a_process_can_be_killed_and_paused_in_the_middle_of_its_start(world: World) -> None:
    writer = Writer(world, "w", T0)
    world.run_for(200)
    for delay_ms in (0, 1, 2, 4, 6_000, 7_000):
        world[1].kill()
        world[1].start()
        world.run_for(delay_ms)
        world[1].pause()
        world.run_for(20)
        world[1].resume()
    finish(world, writer)


def test_the_id_of_a_live_broker_is_not_taken(world: World) -> None:
    intruder = world.intrude(2)
    intruder.start()
    world.run_for(20_000)
    assert not intruder.is_up
    assert any("a broker with the id 2 is running" in note.lower() for note in world.notes)
    assert world.is_settled()


def test_a_broker_whose_id_is_taken_stops(world: World) -> None:
    """The registration is there, but not that of this process."""
    intruder = world.intrude(2)
    world[2].pause()
    intruder.start()
    assert world.run_until(lambda: intruder.is_up, within_us=20_000_000)
    world[2].resume()
    assert world.run_until(lambda: not world[2].is_running, within_us=20_000_000)
    assert any("finds its id taken" in note for note in world.notes)
    intruder.stop()
    assert world.run_until(lambda: not intruder.is_running)
    world[2].start()
    settle(world)


# -- Crashes at disk operations --------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_crash_at_any_operation_of_a_recovery(how: str, ends: Ends) -> None:
    """F-08, F-09, I-45: however often and wherever a start is cut off, the next one comes up."""
    world = make_world(2, ends)
    writer = Writer(world, "w", T0)
    world.run_for(2_000)
    world[1].kill()
    world.run_for(8_000)
    crashes = 0
    for operations in range(1, 20):
        world[1].crash_in(operations, "kill" if how == "kill" else "power")
        world[1].start()
        world.run_until(lambda: world[1].is_up or not world[1].is_running, within_us=20_000_000)
        crashes += not world[1].is_running
        world[1].disarm()
        world[1].kill()
        world.store.expire(BrokerId(1))
    assert crashes > 6
    world[1].start()
    finish(world, writer)
    assert ends.bugs == []
    world.close()


@pytest.mark.parametrize("operations", [*range(1, 25)])
def test_a_crash_at_any_operation_of_a_clean_shutdown(operations: int, ends: Ends) -> None:
    """F-10: after it the marker is not there, or everything is durable."""
    world = make_world(3, ends)
    writer = Writer(world, "w", T0)
    world.run_for(500)
    world[1].stop()
    world.run_until(lambda: world.image.brokers[BrokerId(1)].is_shutting_down)
    world[1].crash_in(operations, "power", mode="none")
    world.run_until(lambda: not world[1].is_running, within_us=20_000_000)
    _, how, lossy = ends.ends[-1]
    assert how in ("power", "stop")
    world[1].disarm()
    world[1].start()
    world.run_until(lambda: world[1].is_up, within_us=20_000_000)
    assert not (world[1].last_start_was_clean and lossy)
    finish(world, writer)
    assert ends.bugs == []
    world.close()


@pytest.mark.parametrize("operations", [1, 2, 3, 5, 8, 13, 21, 34, 55])
def test_a_crash_at_some_operation_under_load(operations: int, ends: Ends) -> None:
    """F-52: in the middle of rolls, checkpoints, snapshots and role changes."""
    world = make_world(operations, ends, internal_segment_bytes="500", flush_messages="3")
    writers = [Writer(world, f"w{number}", T0) for number in range(2)]
    for machine in (world[1], world[2], world[3]):
        world.run_for(700)
        machine.crash_in(operations, "power")
        assert world.run_until(lambda machine=machine: not machine.is_running)  # type: ignore[misc]
        world.run_for(300)
        machine.start()
        settle(world)  # a second loss before the first is made good may cost more
    finish(world, *writers)
    assert ends.bugs == []
    world.close()


def test_a_crash_between_append_and_answer(ends: Ends) -> None:
    """F-03: the record is in the log, the producer does not know, and sends it again."""
    world = make_world(4, ends)
    writer = Writer(world, "w", T0)
    world.run_for(300)
    world[1].crash_in(1, "kill", operation="append", path_part="t-0/")
    assert world.run_until(lambda: not world[1].is_running)
    world.run_for(1_000)
    world[1].start()
    finish(world, writer)


def test_a_disarmed_crash_does_not_come(world: World) -> None:
    world[1].crash_in(1)
    world[1].disarm()
    Writer(world, "w", T0)
    world.run_for(2_000)
    assert world[1].is_up


# -- Pauses and slow disks -------------------------------------------------------------------


def test_a_pause_lets_the_session_run_out_and_requests_wait(world: World) -> None:
    writer = Writer(world, "w", T0)
    world.run_for(300)
    world[1].pause()
    caller = Caller(world, "c", 1)
    caller.send(produce(batch(b"late"), *T0, acks=1), 9)
    world.run_for(12_000)
    assert world[1].is_up
    assert world[1].is_paused
    assert 1 not in world.image.brokers
    assert caller.answers == []
    world[1].resume()
    assert world.run_until(lambda: bool(caller.answers))
    settle(world)
    writer.is_stopping = True
    assert world.run_until(lambda: writer.is_done)
    assert world.run_until(lambda: are_logs_equal(world, T0))
    found = values_of(world, 1, T0)
    assert all(found.get(offset) == value for value, offset in writer.acknowledged.items())


def test_a_short_pause_costs_nothing(world: World) -> None:
    epoch = world[2].node.broker_epoch
    world[2].pause()
    world.run_for(1_000)
    world[2].resume()
    settle(world)
    assert world[2].node.broker_epoch == epoch
    assert world.schedule.now_us < 20_000_000


def test_a_process_on_a_slow_disk_is_busy(world: World) -> None:
    """F-49: an append that takes a second delays what comes after it, and its own answer."""
    world[1].disk.slow(1_000_000, "t-0/", ("append",))
    one, two = Caller(world, "c1", 1), Caller(world, "c2", 1)
    before_us = world.schedule.now_us
    answer = one.ask(produce(batch(b"a"), *T0, acks=1, timeout_ms=30_000), 9)
    assert produced(answer).error_code == 0
    assert world.schedule.now_us - before_us >= 1_000_000
    two.send(produce(batch(b"b"), *T0, acks=1, timeout_ms=30_000), 9)
    world.run_for(500)
    assert two.answers == []
    one.send(produce(batch(b"c"), *T0, acks=1, timeout_ms=30_000), 9)
    world[1].disk.fast()
    assert world.run_until(lambda: bool(two.answers) and len(one.answers) == 2)
    assert 1 in world.image.brokers  # its session is kept all the while
    assert set(values_of(world, 1, T0).values()) == {b"a", b"b", b"c"}


def test_a_slow_sync_holds_up_no_other_request(ends: Ends) -> None:
    """F-49: the disk's thread waits, the node does not; the recovery point waits with it."""
    world = make_world(6, ends, flush_messages="1")
    world[1].disk.slow(2_000_000, "t-0/", ("sync",))
    caller = Caller(world, "c", 1)
    for value in (b"a", b"b", b"c"):
        before_us = world.schedule.now_us
        answer = caller.ask(produce(batch(value), *T0, acks=-1), 9)
        assert produced(answer).error_code == 0
        assert world.schedule.now_us - before_us < 500_000
    replica = world.replica(1, T0)
    assert replica is not None
    assert replica.log.recovery_point < 3
    world.run_for(15_000)  # three syncs, one behind the other
    assert replica.log.recovery_point == 3
    assert ends.bugs == []
    world.close()


def test_a_sync_under_way_at_a_power_cut_promises_nothing(ends: Ends) -> None:
    lossy = set()
    for seed in range(4):
        world = make_world(seed, ends, flush_messages="1")
        caller = Caller(world, "c", 1)
        replica = world.replica(1, T0)
        assert replica is not None
        # The table of epochs is synced before the first records are.
        caller.ask(produce(batch(b"a"), *T0, acks=1), 9)
        assert world.run_until(lambda replica=replica: replica.log.recovery_point == 1)  # type: ignore[misc]
        world[1].disk.slow(1_000_000, "t-0/", ("sync",))
        caller.ask(produce(batch(b"b"), *T0, acks=1), 9)
        assert replica.log.recovery_point == 1
        lossy.add(world[1].power_cut("none"))
        world[1].disk.fast()
        world[1].start()
        settle(world)
        world.close()
    assert lossy == {False, True}  # the sync had happened, or it had not


def test_a_paused_process_syncs_nothing_and_goes_on_afterwards(ends: Ends) -> None:
    world = make_world(7, ends, flush_messages="1")
    caller = Caller(world, "c", 1)
    replica = world.replica(1, T0)
    assert replica is not None
    for number in range(1, 5):
        caller.ask(produce(batch(b"v%d" % number), *T0, acks=1), 9)
        world[1].pause()
        before = replica.log.recovery_point
        world.run_for(1_000)
        assert replica.log.recovery_point == before
        world[1].resume()
        assert world.run_until(lambda number=number: replica.log.recovery_point == number)  # type: ignore[misc]
    world.close()


# -- What others learn of an end -------------------------------------------------------------


def test_clients_of_a_killed_process_hear_of_it_at_once(world: World) -> None:
    caller = Caller(world, "c", 1)
    caller.ask(produce(batch(b"a"), *T0, acks=1), 9)
    world[1].kill()
    assert world.run_until(lambda: caller.ending is not None, within_us=1_000_000)
    late = Caller(world, "d", 1)
    assert world.run_until(lambda: late.ending is not None, within_us=1_000_000)
    assert late.ending is not None
    assert "refused" in late.ending


def test_clients_of_a_dark_machine_hear_nothing_until_it_is_back(world: World) -> None:
    caller = Caller(world, "c", 1)
    caller.ask(produce(batch(b"a"), *T0, acks=1), 9)
    world[1].power_cut()
    world.run_for(5_000)
    assert caller.ending is None
    world[1].start()
    assert world.run_until(lambda: world[1].is_up)
    caller.send(produce(batch(b"b"), *T0, acks=1), 9)
    assert world.run_until(lambda: caller.ending is not None, within_us=30_000_000)


def test_a_broker_that_only_begins_to_start_takes_connections_and_answers_later(
    world: World,
) -> None:
    world[2].kill()
    world[2].start()
    world.run_for(100)
    caller = Caller(world, "c", 2)
    caller.send(produce(batch(b"a"), *T0, acks=1), 9)
    world.run_for(100)
    assert caller.ending is None
    assert caller.answers == []
    assert world.run_until(lambda: bool(caller.answers))
    assert world[2].node.membership.is_registered


def test_losing_the_registration_is_made_good(world: World) -> None:
    world.store.apply([Delete(path_of(BrokerId(3)))])
    settle(world)
