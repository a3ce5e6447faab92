"""A process that compacts on real files is killed at each step of a swap (SIGKILL)."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from strandline.storage.log import Log
from strandline.storage.real_files import RealFiles
from tests.storage.compaction.conftest import COMPACTED, compact, map_of, put
from tests.storage.conftest import NOW_MS, World

# For each line, a process compacts the log in the directory that is named, and kills itself before
# the n-th call that changes a name or makes one durable.
CHILD = """\
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from strandline.storage.real_files import RealFiles
from tests.storage.compaction.conftest import COMPACTED, compact
from tests.storage.conftest import World

class Deadly(RealFiles):
    left = 0

    def die(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def rename(self, old_path, new_path):
        self.die()
        super().rename(old_path, new_path)

    def remove(self, path):
        self.die()
        return super().remove(path)

    def sync_directory(self, path):
        self.die()
        super().sync_directory(path)

def run(directory, calls):
    world = World(RealFiles(), directory, "real")
    world.config = COMPACTED
    log = world.load(clean=True, recovery_point=0)
    log.advance_high_watermark_to(log.log_end_offset)
    log.location.files = Deadly()
    log.files.left = calls
    compact(log.files, log)
    log.close_clean()

for line in sys.stdin:
    directory, calls = line.split()
    child = os.fork()
    if child == 0:
        run(directory, int(calls))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ROOT = Path(__file__).parents[3]


def _load(directory: Path, *, clean: bool) -> tuple[World, Log]:
    world = World(RealFiles(), str(directory), "real")
    world.config = COMPACTED
    log = world.load(clean=clean)
    log.advance_high_watermark_to(log.log_end_offset)
    return world, log


def test_kill_at_each_step_of_a_swap(tmp_path: Path) -> None:
    world = World(RealFiles(), f"{tmp_path}/made", "real")
    log, random = world.create(COMPACTED), Random(1)
    for number in range(30):
        value = None if random.random() < 0.2 else b"%d" % number * 9
        put(log, (b"key-%d" % random.randrange(9), value))
    log.roller.roll(NOW_MS)
    expected, size = map_of(log), log.size_bytes
    log.close_clean()
    half_done = 0
    with _killer() as killer:
        for calls in range(1, 400):
            copy = tmp_path / f"after-{calls}"
            shutil.copytree(tmp_path / "made", copy)
            status = _ask(killer, f"{copy} {calls}")
            names = {path.suffix for path in copy.glob("orders-0/*")}
            half_done += bool(names & {".cleaned", ".swap"})
            found, log = _load(copy, clean=status == 0)
            assert map_of(log) == expected
            log.check()
            compact(found.files, log, now_ms=NOW_MS)
            assert map_of(log) == expected
            assert log.size_bytes < size
            log.close()
            shutil.rmtree(copy)
            if status == 0:
                break
            assert status == -signal.SIGKILL
        assert calls > 30
    assert status == 0, "the round never came to its end"
    assert half_done > 15


@contextmanager
def _killer() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CHILD, str(ROOT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _ask(killer: subprocess.Popen[str], line: str) -> int:
    assert killer.stdin is not None
    assert killer.stdout is not None
    killer.stdin.write(line + "\n")
    killer.stdin.flush()
    return int(killer.stdout.readline())
