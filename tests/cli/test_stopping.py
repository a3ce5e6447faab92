"""Ctrl-C while a broker is silent: what the commands say, and that a second one ends them."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.cli.stopping import Stop
from tests.cli.conftest import COMMAND, DEADLINE_S, Ended, Serving, environment, run_here

_ESTABLISHED = "01"
QUICK = (
    *("--set", "group.initial.rebalance.delay.ms=0"),
    *("--set", "transaction.state.log.num.partitions=2"),
    *("--set", "share.coordinator.state.topic.num.partitions=2"),
)


@pytest.fixture
def broker(serve: Callable[..., Serving], tmp_path: Path) -> Iterator[Serving]:
    """A broker that each test may silence."""
    serving = serve("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *QUICK)
    run_here(["topics", "create", "lines"], serving.address)
    yield serving
    serving.process.send_signal(signal.SIGCONT)
    assert serving.stop().code == 0


class Command:
    """A command with pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def write(self, data: bytes) -> None:
        """Give it input, and wait until it has taken that in."""
        assert self.process.stdin is not None
        assert self.process.stdin.write(data) == len(data)
        while _unread(self.process.stdin.fileno()):
            assert self.process.poll() is None

    def printed(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def said(self) -> str:
        """The next line on standard error."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> Ended:
        """What is left to read, after its end."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return Ended(self.process.returncode, out.decode(), err.decode())


def _unread(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)


@contextmanager
def running(broker: Serving, *arguments: str) -> Iterator[Command]:
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what was not asked for yet is left to `ended`
        env=environment(broker.address),
    ) as process:
        yield Command(process)
        if process.poll() is None:
            process.kill()


def run(broker: Serving, *arguments: str) -> Ended:
    return run_here(arguments, broker.address)


def silence(broker: Serving) -> None:
    """Have it answer nothing from now on. A process of several threads stops in its own time."""
    broker.process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(broker.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def until_asked(broker: Serving) -> None:
    """Wait until there is a request that the silent broker has not read."""
    port = f":{int(broker.address.rpartition(':')[2]):04X}"
    while True:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        to_broker = [row for row in rows if row[1].endswith(port) and row[3] == _ESTABLISHED]
        if any(int(row[4].partition(":")[2], 16) for row in to_broker):
            return


def again(waits_for: str) -> str:
    return f"Stopping when {waits_for}. Ctrl-C again stops at once.\n"


def test_produce_says_that_it_waits_for_answers(broker: Serving) -> None:
    with running(broker, "produce", "lines") as command:
        command.write(b"first\n")
        assert run(broker, "consume", "lines", "--max", "1").out == "first\n"
        command.interrupt()
        assert command.said() == again("what was read is sent and acknowledged")
        ended = command.ended()
    assert ended.code == 0
    assert ended.err.startswith("1 record (5 bytes of values) written to 'lines' in ")
    assert len(ended.err.splitlines()) == 1


def test_a_second_interruption_ends_produce_and_tells_what_is_certain(broker: Serving) -> None:
    with running(broker, "produce", "lines") as command:
        command.write(b"first\n")
        assert run(broker, "consume", "lines", "--max", "1").out == "first\n"
        silence(broker)
        command.write(b"second one\n")
        until_asked(broker)
        command.interrupt()
        assert command.said() == again("what was read is sent and acknowledged")
        command.interrupt()
        ended = command.ended()
    assert (ended.code, ended.out) == (130, ""), ended.err
    summary, unknown = ended.err.strip().splitlines()
    assert summary.startswith("1 record (5 bytes of values) written to 'lines' in ")
    assert unknown == (
        "1 record was maybe not written: there was no answer before the command ended."
    )


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ("1", "Whether the transaction with the last 1 record was committed is not known."),
        (
            "2",
            "The transaction with the last 1 record was left open. Brokers abort it after 60 s.",
        ),
    ],
)
def test_a_second_interruption_tells_what_becomes_of_a_transaction(
    broker: Serving, records: str, left: str
) -> None:
    options = ("--transactional-id", "t", "--transaction-records", records)
    with running(broker, "produce", "lines", *options) as command:
        command.write(b"first\n" * int(records))
        read = ("consume", "lines", "--max", records, "--committed")
        assert run(broker, *read).out == "first\n" * int(records)
        silence(broker)
        command.write(b"second\n")
        until_asked(broker)
        command.interrupt()
        assert command.said() == again("the open transaction has ended")
        command.interrupt()
        ended = command.ended()
    assert ended.code == 130
    summary, sentence = ended.err.strip().splitlines()
    assert re.match(f"{records} records? .* written to 'lines' in ", summary)
    assert sentence == left


@pytest.mark.parametrize(
    ("reader", "waits_for"),
    [
        (("--group", "g"), "what was printed is committed and the group is left"),
        (("--group", "g", "--partition", "0"), "what was printed is committed"),
        (
            ("--group", "g", "-X", "enable.auto.commit=false"),
            "the group is left",
        ),
        (("--share-group", "g"), "what was printed is accepted and the group is left"),
    ],
)
def test_consume_says_what_it_waits_for_and_ends_at_the_second(
    broker: Serving, reader: tuple[str, ...], waits_for: str
) -> None:
    run(broker, "configs", "alter", "--group", "g", "--set", "share.auto.offset.reset=earliest")
    with running(broker, "produce", "lines") as command:
        command.write(b"1\n")
        command.interrupt()
        assert command.ended().code == 0
    with running(broker, "consume", "lines", *reader) as command:
        assert command.printed() == "1\n"
        silence(broker)
        command.interrupt()
        assert command.said() == again(waits_for)
        command.interrupt()
        ended = command.ended()
    assert (ended.code, ended.out) == (130, ""), ended.err
    assert "Stopping" not in ended.err


def test_consume_without_a_group_has_nothing_to_wait_for(broker: Serving) -> None:
    with running(broker, "produce", "lines") as command:
        command.write(b"1\n")
        command.interrupt()
        assert command.ended().code == 0
    with running(broker, "consume", "lines") as command:
        assert command.printed() == "1\n"
        command.interrupt()
        assert command.ended() == (0, "", "")


def test_a_member_that_is_ended_at_once_leaves_no_word(broker: Serving) -> None:
    """To leave the group would be to wait for it: the group notices that it is silent."""
    with running(broker, "produce", "lines") as command:
        command.write(b"1\n")
        command.interrupt()
        assert command.ended().code == 0
    with running(broker, "consume", "lines", "--group", "g") as command:
        assert command.printed() == "1\n"
        silence(broker)
        command.interrupt()
        command.said()
        command.interrupt()
        assert command.ended().code == 130
    broker.process.send_signal(signal.SIGCONT)
    assert len(run(broker, "groups", "describe", "g", "--json").json["members"]) == 1


def break_off(interruptions: int) -> None:
    """Be interrupted in the middle of what then fails in its own way."""
    with Stop() as stop:
        try:
            for number in range(interruptions):
                assert not stop.is_abandoned
                signal.raise_signal(signal.SIGINT)
                assert (stop.is_set, number) == (True, 0)
        finally:
            assert stop.is_abandoned == (interruptions > 1)
            threading.RLock().release()


def test_seeds_that_have_begun_are_run_to_their_end() -> None:
    with subprocess.Popen(
        [*COMMAND, "sim", "--seeds", "100000", "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        command = Command(process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            assert process.poll() is None
        command.interrupt()
        assert command.said() == again("the seeds that have begun are over")
        ended = command.ended()
    assert ended.code == 0
    assert " until it was stopped; " in ended.out


def test_what_a_second_interruption_breaks_is_an_interruption() -> None:
    """It comes in the middle of anything, such as a condition that takes its lock again."""
    with pytest.raises(KeyboardInterrupt) as raised:
        break_off(2)
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_an_error_after_one_interruption_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError):
        break_off(1)
