"""The simulated network: streams that keep their order, and every way in which they can end."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from struct import pack

import pytest

from strandline.errors import StorageError
from strandline.sim.latency import End, Path, Tcp
from strandline.sim.network import Network, Wire
from strandline.sim.plan import LatencySpec
from strandline.sim.schedule import Schedule
from strandline.sim.streams import Streams
from strandline.storage.log_reader import LogSlice
from strandline.storage.memory_files import MemoryFiles
from strandline.types import BrokerId, Offset
from tests.current import current

ONE, TWO = BrokerId(1), BrokerId(2)
SECOND_US = 1_000_000
QUIET = Tcp(user_timeout_us=5 * SECOND_US, connect_timeout_us=3 * SECOND_US)


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


class Ear:
    """An end that remembers what it was told."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.was_opened = False
        self.frames: list[bytes] = []
        self.ended: str | None = None
        self.wants_input = True
        self.files: bytes | None = None

    def opened(self) -> None:
        assert not self.was_opened
        assert self.ended is None
        self.was_opened = True

    def received(self, frame: bytes) -> None:
        assert self.ended is None
        assert self.wants_input
        self.frames.append(frame)

    def closed(self, reason: str) -> None:
        assert self.ended is None
        self.ended = reason

    def read_late(self, chunk: LogSlice) -> bytes | None:
        try:
            return chunk.file.read_at(chunk.position, chunk.length)
        except StorageError:
            return None


class Machine:
    """A broker's machine, with a process that accepts every connection."""

    def __init__(self) -> None:
        self.is_powered = True
        self.is_listening = True
        self.connections_max = 100
        self.frame_bytes_max = 1_000_000
        self.served: list[Ear] = []

    def accept(self, wire: Wire, source: End) -> Ear | None:
        assert wire.other_end == source
        if not self.is_listening:
            return None
        end = Ear()
        end.wire = wire
        self.served.append(end)
        return end


class Setup:
    """A network with two machines."""

    def __init__(self, tcp: Tcp = QUIET, *, seed: int = 1) -> None:
        streams = Streams(seed)
        self.schedule = Schedule(streams("schedule"))
        self.network = Network(self.schedule, streams, LatencySpec(), tcp)
        self.machines = {ONE: Machine(), TWO: Machine()}
        for broker_id, machine in self.machines.items():
            self.network.attach(broker_id, machine)

    def dial(self, source: End = "client", target: BrokerId = ONE) -> tuple[Ear, Wire]:
        end = Ear()
        wire = end.wire = self.network.dial(source, target, end)
        return end, wire

    def connect(self, source: End = "client", target: BrokerId = ONE) -> tuple[Ear, Ear]:
        end, _ = self.dial(source, target)
        self.run()
        assert end.was_opened
        return end, self.machines[target].served[-1]

    def run(self, us: int = 500_000) -> None:
        self.schedule.run_until(self.schedule.now_us + us)


def send(end: Ear, *bodies: bytes) -> None:
    assert end.wire is not None
    for body in bodies:
        end.wire.send(framed(body))


class TestStreams:
    def test_frames_arrive_both_ways_in_their_order(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        bodies = [b"%d" % number for number in range(100)]
        send(client, *bodies)
        send(server, *reversed(bodies))
        assert server.frames == []
        setup.run()
        assert server.frames == bodies
        assert client.frames == bodies[::-1]

    def test_frames_are_cut_out_of_the_stream_wherever_it_was_divided(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        stream = b"".join(framed(body) for body in (b"", b"one", b"two" * 50, b"three"))
        assert client.wire is not None
        position = 0
        for size in (1, 2, 3, 1, 9, 80, 20, 1000):
            client.wire.send(stream[position : position + size])
            position += size
        setup.run()
        assert server.frames == [b"", b"one", b"two" * 50, b"three"]

    @pytest.mark.parametrize("size", [-1, 1_000_001])
    def test_a_frame_that_may_not_be_ends_the_connection_on_both_sides(self, size: int) -> None:
        setup = Setup()
        client, server = setup.connect()
        assert client.wire is not None
        client.wire.send(framed(b"good") + pack(">i", size) + b"rest")
        setup.run()
        assert server.frames == [b"good"]
        assert server.ended == f"a frame of {size} bytes was announced; 1000000 are allowed"
        assert client.ended is not None

    def test_closing_comes_behind_what_was_sent_and_is_not_told_to_who_closed(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        assert client.wire is not None
        send(client, b"last")
        client.wire.close()
        client.wire.close()
        send(client, b"too late")
        setup.run()
        assert server.frames == [b"last"]
        assert server.ended == "it closed the connection"
        assert client.ended is None
        assert setup.network.wires_of("client") == setup.network.wires_of(ONE) == []

    def test_large_frames_take_longer_and_small_ones_wait_behind_them(self) -> None:
        slow = replace(QUIET, bytes_per_us=1)
        setup = Setup(slow)
        client, server = setup.connect()
        other, _ = setup.connect()
        send(client, bytes(200_000))
        send(other, b"small")
        setup.run(100_000)
        assert server.frames == setup.machines[ONE].served[-1].frames == []
        setup.run(300_000)
        assert len(server.frames) == len(setup.machines[ONE].served[-1].frames) == 1

    def test_lost_packets_cost_time_only(self) -> None:
        setup = Setup(replace(QUIET, lost_per_mille=200))
        client, server = setup.connect()
        bodies = [b"%d" % number for number in range(100)]
        send(client, *bodies)
        setup.run(10 * SECOND_US)
        assert server.frames == bodies
        assert setup.network.counters["retransmissions"] > 5
        assert setup.network.counters["frames"] == 100

    def test_a_healed_network_is_a_healthy_one(self) -> None:
        setup = Setup(replace(QUIET, lost_per_mille=500, slow_pairs_per_mille=1000))
        client, server = setup.connect()
        setup.run(10 * SECOND_US)
        setup.network.heal()
        lost = setup.network.counters["retransmissions"]
        before_us = setup.schedule.now_us
        other, other_server = setup.connect("another")
        for each in (client, other):
            send(each, *(b"%d" % number for number in range(200)))
        while len(server.frames) + len(other_server.frames) < 400:
            setup.schedule.step()
        assert setup.network.counters["retransmissions"] == lost
        assert setup.schedule.now_us - before_us < 600_000

    def test_there_is_no_order_between_connections(self) -> None:
        setup = Setup()
        arrivals: list[bytes] = []
        setup.network.trace = lambda source, target, data: arrivals.append(data)
        first, _ = setup.connect()
        second, _ = setup.connect()
        for _ in range(50):
            send(first, b"first")
            send(second, b"second")
            setup.run()
        assert set(arrivals[::2]) == {framed(b"first"), framed(b"second")}


class TestDialling:
    def test_no_process_listens(self) -> None:
        setup = Setup()
        setup.machines[ONE].is_listening = False
        client, _ = setup.dial()
        setup.run()
        assert client.ended == "it cannot be reached: Connection refused"
        assert not client.was_opened

    def test_too_many_connections_are_accepted_and_ended(self) -> None:
        setup = Setup()
        setup.machines[ONE].connections_max = 1
        first, _ = setup.connect()
        second, _ = setup.dial()
        setup.run()
        assert second.was_opened
        assert second.ended == "it closed the connection"
        assert len(setup.machines[ONE].served) == 1
        assert first.ended is None

    @pytest.mark.parametrize("way", [("client", ONE), (ONE, "client"), ("client", None)])
    def test_a_dial_over_a_cut_path_times_out(self, way: tuple[End, End | None]) -> None:
        setup = Setup()
        setup.network.cut(*way)
        client, _ = setup.dial()
        setup.run(2 * SECOND_US)
        assert current(client.ended) is None
        setup.run(2 * SECOND_US)
        assert client.ended == "it cannot be reached: Connection timed out"
        setup.network.heal()
        setup.run(60 * SECOND_US)
        assert setup.machines[ONE].served == []

    def test_a_dial_succeeds_when_the_cut_ends_in_time(self) -> None:
        setup = Setup(replace(QUIET, connect_timeout_us=20 * SECOND_US))
        setup.network.cut("client", ONE)
        client, _ = setup.dial()
        setup.run(2 * SECOND_US)
        setup.network.mend("client", ONE)
        setup.run(5 * SECOND_US)
        assert client.was_opened

    def test_a_machine_without_power_does_not_even_refuse(self) -> None:
        setup = Setup()
        setup.network.died(ONE, silent=True)
        client, _ = setup.dial()
        setup.run(2 * SECOND_US)
        assert client.ended is None
        setup.run(2 * SECOND_US)
        assert client.ended == "it cannot be reached: Connection timed out"

    def test_hanging_up_while_dialling(self) -> None:
        setup = Setup()
        client, wire = setup.dial()
        wire.close()
        setup.run()
        assert (client.was_opened, client.ended) == (False, None)
        assert setup.machines[ONE].served == []

    def test_hanging_up_before_the_answer_has_come_is_told_to_the_other_side(self) -> None:
        setup = Setup()
        setup.network.clog(ONE, "client")
        client, wire = setup.dial()
        setup.run()
        (server,) = setup.machines[ONE].served
        wire.close()
        setup.run()
        assert server.ended == "it closed the connection"
        setup.network.unclog(ONE, "client")
        setup.run()
        assert (client.was_opened, client.ended) == (False, None)


class TestCuts:
    def test_what_was_sent_in_a_short_cut_arrives_afterwards(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.cut("client", ONE)
        send(client, b"one", b"two")
        setup.run(3 * SECOND_US)
        assert server.frames == []
        send(server, b"back")
        setup.run()
        assert client.frames == [b"back"]
        setup.network.mend("client", ONE)
        setup.run(3 * SECOND_US)
        assert server.frames == [b"one", b"two"]
        assert client.ended is server.ended is None
        setup.run(60 * SECOND_US)
        send(client, b"three")
        setup.run()
        assert server.frames == [b"one", b"two", b"three"]

    def test_data_that_is_stuck_for_long_ends_the_connection(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.cut("client", ONE)
        send(client, b"one")
        setup.run(6 * SECOND_US)
        assert client.ended == "writing failed: Connection timed out"
        assert server.ended is None  # its RST was lost like everything else
        setup.network.heal()
        setup.run(20 * SECOND_US)
        assert server.frames == []
        assert server.ended is None
        send(server, b"are you there?")
        setup.run()
        assert server.ended == "reading failed: Connection reset by peer"

    def test_lost_acknowledgements_end_a_connection_too(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.cut(ONE, "client")
        send(client, b"one")
        setup.run(4 * SECOND_US)
        assert server.frames == [b"one"]
        assert current(client.ended) is None
        setup.run(2 * SECOND_US)
        assert client.ended == "writing failed: Connection timed out"
        setup.run()
        assert server.ended == "reading failed: Connection reset by peer"  # that way was open

    def test_an_idle_connection_does_not_notice_a_cut(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.cut(None, None)
        setup.run(100 * SECOND_US)
        assert client.ended is server.ended is None

    def test_a_close_in_a_cut_comes_after_it(self) -> None:
        """F-29: an old connection's requests come when a new one has long been in use."""
        setup = Setup(replace(QUIET, user_timeout_us=60 * SECOND_US))
        old, old_server = setup.connect(TWO)
        setup.network.cut(TWO, ONE)
        send(old, b"old")
        assert old.wire is not None
        old.wire.close()
        setup.run(SECOND_US)
        setup.network.mend(TWO, ONE)
        new, _ = setup.dial(TWO)
        setup.run(4 * SECOND_US)
        assert old_server.frames == [b"old"]
        assert old_server.ended == "it closed the connection"
        assert new.was_opened

    def test_causes_of_a_cut_add_up(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.cut("client", ONE)
        setup.network.cut("client", ONE)
        setup.network.cut(None, ONE)
        send(client, b"one")
        for way in (("client", ONE), (None, ONE)):
            setup.network.mend(*way)
            setup.run(SECOND_US)
            assert server.frames == []
        setup.network.mend("client", ONE)
        setup.network.mend("client", ONE)
        setup.run(3 * SECOND_US)
        assert server.frames == [b"one"]


class TestOtherFaults:
    def test_a_clogged_path_gives_everything_at_once_in_the_end(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.clog("client", ONE)
        for number in range(5):
            send(client, b"%d" % number)
            setup.run(10 * SECOND_US)
        assert server.frames == []
        assert client.ended is None
        setup.network.unclog("client", ONE)
        setup.run(10)
        assert server.frames == [b"0", b"1", b"2", b"3", b"4"]

    def test_what_is_held_can_be_let_through_one_by_one(self) -> None:
        setup = Setup()
        network = setup.network
        client, server = setup.connect()
        other, other_server = setup.connect()
        network.clog("client", ONE)
        assert not network.is_waiting("client", ONE)
        assert not network.let_one_through("client", ONE)
        send(client, b"1")
        setup.run()
        send(other, b"2")
        send(client, b"3")
        assert network.is_waiting("client", ONE)
        setup.run()
        seen = []
        while network.let_one_through("client", ONE):
            seen.append([*server.frames, *other_server.frames])
        assert seen == [[b"1"], [b"1", b"3"], [b"1", b"3", b"2"]]
        assert not network.is_waiting("client", ONE)
        send(client, b"4")
        setup.run()
        assert server.frames == [b"1", b"3"]
        network.unclog("client", ONE)
        setup.run()
        assert server.frames == [b"1", b"3", b"4"]

    def test_a_reset_ends_both_sides_and_the_frame_under_way(self) -> None:
        seen = set()
        for seed in range(30):
            setup = Setup(seed=seed)
            client, server = setup.connect()
            bystander, _ = setup.connect("another")
            send(client, b"whole")
            setup.run()
            send(client, bytes(1000), bytes(1000))
            send(server, bytes(1000))
            setup.run(setup.schedule.now_us % 200)
            assert setup.network.reset(ONE, "client") == 1
            setup.run()
            assert server.frames[0] == b"whole"
            assert all(len(frame) == 1000 for frame in server.frames[1:] + client.frames)
            assert client.ended == server.ended == "reading failed: Connection reset by peer"
            assert bystander.ended is None
            send(client, b"more")
            setup.run()
            seen.add(len(server.frames))
        assert 1 in seen

    def test_slow(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        setup.network.slow(None, ONE, 1000)
        send(client, b"one")
        setup.run(99_000)
        assert server.frames == []
        setup.run(30 * SECOND_US)
        assert server.frames == [b"one"]
        setup.network.slow(None, ONE, 1)
        send(client, b"two")
        setup.run(20_000)
        assert server.frames == [b"one", b"two"]

    def test_faults_are_for_one_direction_between_two_ends(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        other, other_server = setup.connect("another")
        elsewhere, elsewhere_server = setup.connect("client", TWO)
        setup.network.clog("client", ONE)
        for end in (client, server, other, other_server, elsewhere, elsewhere_server):
            send(end, b"x")
        setup.run()
        assert server.frames == []
        for end in (client, other, other_server, elsewhere, elsewhere_server):
            assert end.frames == [b"x"]


class TestDeath:
    def test_a_killed_process_is_told_to_its_peers_behind_what_it_sent(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        send(server, b"last words")
        setup.network.died(ONE, silent=False)
        setup.machines[ONE].is_listening = False
        setup.run()
        assert client.frames == [b"last words"]
        assert client.ended == "it closed the connection"
        assert server.ended is None

    def test_nothing_reaches_the_dead(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        send(client, b"on its way")
        setup.network.died(ONE, silent=False)
        send(client, b"still unaware")
        setup.run()
        assert server.frames == []
        assert client.ended is not None

    def test_a_kill_with_unread_input_may_cut_an_answer_in_two(self) -> None:
        outcomes = set()
        for seed in range(40):
            setup = Setup(seed=seed)
            client, server = setup.connect()
            server.wants_input = False
            send(client, b"unread")
            setup.run()
            send(server, b"first", b"second")
            setup.network.died(ONE, silent=False)
            setup.run()
            assert client.ended == "reading failed: Connection reset by peer"
            assert client.frames == [b"first", b"second"][: len(client.frames)]
            outcomes.add(len(client.frames))
        assert outcomes == {0, 1, 2}

    def test_no_peer_learns_of_a_power_cut_until_the_machine_is_back(self) -> None:
        setup = Setup(replace(QUIET, user_timeout_us=100 * SECOND_US))
        idle, _ = setup.connect("idle")
        client, server = setup.connect()
        setup.network.died(ONE, silent=True)
        setup.run(10 * SECOND_US)
        send(client, b"hello?")
        setup.run(10 * SECOND_US)
        assert current(client.ended) is None
        setup.network.powered_on(ONE)
        setup.run(5 * SECOND_US)
        assert client.ended == "reading failed: Connection reset by peer"
        assert server.frames == []
        assert idle.ended is None
        send(idle, b"hello?")
        setup.run()
        assert idle.ended == "reading failed: Connection reset by peer"

    def test_a_machine_that_stays_dark_is_given_up(self) -> None:
        setup = Setup()
        client, _ = setup.connect()
        setup.network.died(ONE, silent=True)
        send(client, b"hello?")
        setup.run(6 * SECOND_US)
        assert client.ended == "writing failed: Connection timed out"

    def test_a_machine_without_power_does_not_send_again(self) -> None:
        setup = Setup(replace(QUIET, user_timeout_us=100 * SECOND_US))
        client, server = setup.connect()
        setup.network.cut(ONE, "client")
        send(server, b"lost in the cut")
        setup.run()
        setup.network.died(ONE, silent=True)
        setup.network.mend(ONE, "client")
        setup.run(10 * SECOND_US)
        assert client.frames == []


class TestBackPressure:
    SMALL = replace(QUIET, window_bytes=1000)

    def test_a_server_that_wants_no_input_leaves_it_in_the_socket(self) -> None:
        setup = Setup(self.SMALL)
        client, server = setup.connect()
        server.wants_input = False
        bodies = [bytes(300) + b"%d" % number for number in range(20)]
        send(client, *bodies)
        setup.run()
        assert server.frames == []
        assert client.wire is not None
        assert server.wire is not None
        assert client.wire.bytes_under_way <= 1000
        assert client.wire.bytes_under_way + client.wire.unsent_bytes == sum(
            len(body) + 4 for body in bodies
        )
        server.wants_input = True
        server.wire.go_on()
        setup.run()
        assert server.frames == bodies
        assert (client.wire.bytes_under_way, client.wire.unsent_bytes) == (0, 0)

    def test_input_that_is_refused_one_by_one(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        server.wants_input = False
        send(client, b"1", b"2", b"3")
        setup.run()
        keep = server.received

        def one(frame: bytes) -> None:
            keep(frame)
            server.wants_input = False

        server.received = one  # type: ignore[method-assign]
        assert server.wire is not None
        for expected in ([b"1"], [b"1", b"2"], [b"1", b"2", b"3"]):
            server.wants_input = True
            server.wire.go_on()
            setup.run()
            assert server.frames == expected

    def test_a_client_that_does_not_take_its_answers_is_not_read(self) -> None:
        """F-34: what waits for it is bounded by its own requests."""
        setup = Setup(self.SMALL)
        client, server = setup.connect()
        setup.network.stall(ONE, "client")
        send(server, bytes(3000))
        send(client, b"one more")
        setup.run(60 * SECOND_US)
        assert server.wire is not None
        assert server.wire.unsent_bytes >= 2000
        assert server.frames == client.frames == []
        setup.network.unstall(ONE, "client")
        setup.run()
        assert client.frames == [bytes(3000)]
        assert server.frames == [b"one more"]
        assert setup.network.counts.stuck_writes > 0

    def test_a_dialler_reads_while_it_writes(self) -> None:
        setup = Setup(self.SMALL)
        client, server = setup.connect(TWO)
        server.wants_input = False
        send(client, bytes(3000))
        send(server, b"answer")
        setup.run()
        assert client.frames == [b"answer"]

    def test_a_client_can_stop_reading(self) -> None:
        setup = Setup(self.SMALL)
        client, server = setup.connect()
        assert client.wire is not None
        client.wire.stop_reading()
        send(server, b"one", b"two")
        setup.run()
        assert client.frames == []
        client.wire.go_on()
        setup.run()
        assert client.frames == [b"one", b"two"]

    def test_an_end_waits_behind_what_is_unread(self) -> None:
        setup = Setup()
        client, server = setup.connect()
        assert client.wire is not None
        assert server.wire is not None
        server.wants_input = False
        send(client, b"one")
        client.wire.close()
        setup.run()
        assert server.ended is None
        server.wants_input = True
        server.wire.go_on()
        setup.run()
        assert server.frames == [b"one"]
        assert server.ended == "it closed the connection"

    def test_who_answers_a_client_that_is_gone_hears_it(self) -> None:
        setup = Setup(self.SMALL)
        client, server = setup.connect()
        assert client.wire is not None
        setup.network.clog("client", ONE)
        client.wire.close()
        send(server, bytes(3000))
        setup.run()
        assert server.ended == "reading failed: Connection reset by peer"


class TestLogRanges:
    def slice_of(self, data: bytes) -> LogSlice:
        files = MemoryFiles()
        file = files.open("/log", create=True)
        file.append(data)
        return LogSlice(file, 0, len(data), Offset(0), Offset(0))

    def serve(self, tcp: Tcp, size: int) -> tuple[Setup, Ear, Ear, LogSlice]:
        setup = Setup(tcp)
        client, server = setup.connect()
        chunk = self.slice_of(b"\x01" * size)
        return setup, client, server, chunk

    def test_a_small_range_is_copied_at_once(self) -> None:
        setup, client, server, chunk = self.serve(QUIET, 5000)
        assert server.wire is not None
        server.wire.send_chunks([pack(">i", 5002), bytearray(b"a"), chunk, memoryview(b"b")])
        chunk.file.truncate(0)
        setup.run()
        assert client.frames == [b"a" + b"\x01" * 5000 + b"b"]

    def test_a_large_range_is_read_when_it_leaves(self) -> None:
        setup, client, server, chunk = self.serve(QUIET, 20_000)
        assert server.wire is not None
        server.wire.send_chunks([pack(">i", 20_000), chunk])
        chunk.file.truncate(6000)
        chunk.file.append(b"\x02" * 100)
        setup.run()
        expected = b"\x01" * 6000 + b"\x02" * 100 + bytes(8192 - 6100) + b"\x01" * (20_000 - 8192)
        assert client.frames == [expected]
        assert setup.network.counts.late_changes == 1

    def test_a_large_range_of_a_file_that_was_closed_or_whose_process_died(self) -> None:
        setup, client, server, chunk = self.serve(QUIET, 20_000)
        assert server.wire is not None
        server.wire.send_chunks([pack(">i", 20_000), chunk])
        chunk.file.close()
        setup.run()
        assert client.frames == [b"\x01" * 20_000]
        server.wire.send_chunks([framed(b"x")])
        setup.network.died(ONE, silent=False)
        setup.run()
        assert client.frames == [b"\x01" * 20_000, b"x"]

    def test_a_range_that_was_cut_and_has_grown_again_is_not_sent(self) -> None:
        """Other records may stand there by then (note 0022)."""
        setup, client, server, chunk = self.serve(replace(QUIET, window_bytes=8192), 20_000)
        assert server.wire is not None
        setup.network.stall(ONE, "client")
        server.wire.send_chunks([pack(">i", 20_000), chunk])
        setup.run()
        chunk.file.truncate(15_000)
        chunk.file.append(b"\x02" * 10_000)
        setup.network.heal()
        setup.run()
        assert client.frames == []
        assert client.ended is not None
        assert setup.network.counts.cut_ranges == 1

    def test_a_range_that_was_cut_while_it_waited_ends_the_connection(self) -> None:
        tcp = replace(QUIET, window_bytes=8192)
        setup, client, server, chunk = self.serve(tcp, 20_000)
        assert server.wire is not None
        setup.network.stall(ONE, "client")
        server.wire.send_chunks([pack(">i", 20_000), chunk])
        setup.run()
        chunk.file.truncate(100)
        setup.network.unstall(ONE, "client")
        setup.run()
        assert client.frames == []
        assert client.ended == "it closed the connection"
        assert server.ended is not None
        assert server.ended == "a log range was cut before it was sent"

    def test_a_range_that_cannot_be_read_ends_the_connection(self) -> None:
        setup, client, server, chunk = self.serve(QUIET, 100)
        assert server.wire is not None
        chunk.file.truncate(99)
        server.wire.send_chunks([pack(">i", 100), chunk])
        assert not server.wire.is_open
        setup.run()
        assert client.ended == "it closed the connection"
        assert server.ended is not None
        assert server.ended.startswith("reading a log failed")

    def test_a_range_larger_than_the_window_goes_in_pieces(self) -> None:
        tcp = replace(QUIET, window_bytes=3000)
        setup, client, server, chunk = self.serve(tcp, 20_000)
        assert server.wire is not None
        server.wire.send_chunks([pack(">i", 20_003), chunk, b"end"])
        setup.run()
        assert client.frames == [b"\x01" * 20_000 + b"end"]
        assert server.wire.bytes_under_way == 0

    def test_an_observer_gets_what_servers_send(self) -> None:
        setup, _, server, chunk = self.serve(QUIET, 100)
        seen: list[bytes] = []
        setup.network.on_sent = lambda wire, data: seen.append(data)
        assert server.wire is not None
        server.wire.send_chunks([pack(">i", 100), chunk])
        assert b"".join(seen) == framed(b"\x01" * 100)


def storm(seed: int) -> tuple[int, int, list[object]]:
    """Random traffic under random faults; returns how much came, and a trace."""
    random = Random(seed)
    setup = Setup(Tcp.draw(random), seed=seed)
    trace: list[object] = []
    setup.network.trace = lambda source, target, data: trace.append((source, target, data))
    network, machines = setup.network, setup.machines
    names: list[End] = ["a", "b", ONE, TWO]
    dialled: list[tuple[Ear, BrokerId]] = []
    sent: dict[int, list[bytes]] = {}
    for step in range(300):
        setup.run(random.randrange(200_000))
        some, other = random.sample(names, 2)
        kind = random.randrange(14)
        live = [
            end
            for end in [*(e for e, _ in dialled), *machines[ONE].served, *machines[TWO].served]
            if end.wire is not None and end.wire.is_open
        ]
        if kind < 2:
            target = random.choice((ONE, TWO))
            end, _ = setup.dial(random.choice(names), target)
            dialled.append((end, target))
        elif kind < 8 and live:
            end = random.choice(live)
            body = b"%d " % step + bytes(random.choice((0, 10, 5000, 100_000)))
            sent.setdefault(id(end), []).append(body)
            send(end, body)
        elif kind == 8:
            random.choice((network.cut, network.clog, network.stall))(some, other)
        elif kind == 9:
            network.heal()
        elif kind == 10:
            network.reset(some, other)
        elif kind == 11:
            broker = random.choice((ONE, TWO))
            silent = random.random() < 0.5
            for end in machines[broker].served:
                end.wants_input = True
            network.died(broker, silent=silent)
            if silent:
                network.powered_on(broker)
        elif kind == 12 and live:
            wire = random.choice(live).wire
            assert wire is not None
            wire.close()
        elif live:
            end = random.choice(live)
            assert end.wire is not None
            end.wants_input = not end.wants_input or not end.wire.is_accepted
            end.wire.go_on()
    network.heal()
    served = [*machines[ONE].served, *machines[TWO].served]
    for end in served:
        end.wants_input = True
        assert end.wire is not None
        end.wire.go_on()
    setup.run(200 * SECOND_US)
    served = [*machines[ONE].served, *machines[TWO].served]
    complete = 0
    ends = {id(end.wire): end for end in [*(e for e, _ in dialled), *served]}
    for end in ends.values():
        assert end.wire is not None
        other_wire = end.wire.other
        if other_wire is None:
            assert end.frames == []
            continue
        source = ends[id(other_wire)]
        expected = sent.get(id(source), [])
        assert end.frames == expected[: len(end.frames)], "the order was broken"
        if end.wire.is_open and other_wire.is_open:
            assert end.frames == expected, "something was lost without an error at an end"
            assert other_wire.bytes_under_way == 0
            complete += 1
    return complete, setup.network.counts.frames, trace


@pytest.mark.parametrize("seed", range(20))
def test_streams_stay_whole_under_all_faults(seed: int) -> None:
    complete, frames, trace = storm(seed)
    assert frames > 0
    assert complete >= 0
    assert storm(seed)[2] == trace


def test_the_storm_reaches_complete_and_broken_connections() -> None:
    outcomes = [storm(seed) for seed in range(100, 110)]
    assert sum(complete for complete, _, _ in outcomes) > 20
    assert sum(frames for _, frames, _ in outcomes) > 500


def test_the_mean_delay_is_as_specified() -> None:
    path = Path(ONE, TWO, LatencySpec(least_us=100, mean_us=600), QUIET, Random(1))
    delays = [path.arrival_us(now_us := 1000 * turn, 0) - now_us for turn in range(4000)]
    assert min(delays) >= 100
    assert 560 < sum(delays) / len(delays) < 640


def test_spikes() -> None:
    spec = LatencySpec(least_us=1, mean_us=2, spike_us=1_000_000, spikes_per_mille=100)
    path = Path(ONE, TWO, spec, QUIET, Random(1))
    delays = [path.arrival_us(0, 0) for _ in range(2000)]
    assert 140 < sum(delay > 1000 for delay in delays) < 260


def test_tcp_is_drawn_from_the_seed() -> None:
    drawn = [Tcp.draw(Random(seed)) for seed in range(50)]
    assert drawn == [Tcp.draw(Random(seed)) for seed in range(50)]
    assert len(set(drawn)) > 40
