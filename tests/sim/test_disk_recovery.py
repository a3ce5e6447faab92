"""One broker's logs, with the power cut or the process killed at every operation of its disk.

I-45: recovering again, also after a crash in a recovery, comes to the same. I-46: what is found is
a prefix of what was written, at least up to the recovery point. I-05: producers and aborted
transactions are those that the batches make. F-08, F-09, F-10, F-42 to F-44, F-52.
"""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from strandline.sim.disk import Disk
from strandline.storage.memory_files import MemoryFiles, ProcessEnded
from strandline.storage.memory_inodes import PowerCut
from strandline.types import TopicPartition
from tests.sim.shelf import (
    DATA,
    Opened,
    Past,
    Shelf,
    judge,
    rebuilt,
    same_state,
    shut,
)

ENDINGS: Final[tuple[PowerCut | None, ...]] = (None, "none", "prefix", "torn", "hole", "any")
"""How the process ends; None: it is killed."""

MARKER: Final = f"{DATA}/.kafka_cleanshutdown"


class Images:
    """Takes images of a disk in front of every operation, in all ways in which a life can end."""

    def __init__(self, disk: Disk, seed: int, share: float) -> None:
        self.disk = disk
        self.random = Random(f"{seed} images")
        self.share = share
        self.taken: list[tuple[str, PowerCut | None, MemoryFiles]] = []
        disk.on_operation = self._operation

    def _operation(self, operation: str, path: str) -> None:
        if self.random.random() < self.share:
            self.take(f"{operation} {path}")

    def take(self, where: str) -> None:
        """Take one now."""
        mode = self.random.choice(ENDINGS)
        self.taken.append((where, mode, self.disk.image(mode, self.random)))

    def give(self) -> list[tuple[str, PowerCut | None, MemoryFiles]]:
        """Those taken since the last call."""
        taken, self.taken = self.taken, []
        return taken


def _examine(
    image: MemoryFiles,
    mode: PowerCut | None,
    before: dict[TopicPartition, Past],
    after: dict[TopicPartition, Past],
    random: Random,
) -> None:
    opened = Opened(image)
    judge(opened, before, after)
    if mode is None and opened.directory.clean_shutdown is None:
        for at, log in opened.logs.items():
            kept = 0 if after[at].is_anew else min(before[at].end, after[at].end)
            assert log.log_end_offset >= kept, "a kill loses nothing"
    found = opened.contents()
    fresh = rebuilt(image)
    assert {at: batches for at, (_, _, batches) in fresh.contents().items()} == {
        at: batches for at, (_, _, batches) in found.items()
    }
    for at, log in opened.logs.items():
        same_state(log, fresh.logs[at])
    # What a killed process left in the page cache can still be lost, what came from disk cannot.
    following = shut(opened)
    again = following.kill_clone() if mode is None else following.crash_clone(random)
    assert Opened(again).contents() == found


def _run(seed: int, steps: int, share: float) -> int:
    shelf = Shelf(seed)
    random = Random(f"{seed} examine")
    images = Images(shelf.disk, seed, share)
    examined = 0
    for _ in range(steps):
        step = shelf.step()
        before = shelf.remember()
        for where, mode, image in images.give():
            try:
                _examine(image, mode, before, shelf.pasts, random)
            except BaseException as error:
                error.add_note(f"seed {seed}: {step}, before {where}, {mode or 'killed'}")
                raise
            examined += 1
    return examined


@pytest.mark.parametrize("seed", range(8))
def test_a_life_that_ends_at_any_operation_leaves_a_prefix(seed: int) -> None:
    assert _run(seed, steps=60, share=0.15) > 20


def _image_with_much_to_recover(seed: int) -> MemoryFiles:
    shelf = Shelf(seed)
    for _ in range(40):
        shelf.step()
    return shelf.disk.image("any", Random(seed))


@pytest.mark.parametrize("seed", range(6))
def test_a_recovery_that_crashes_anywhere_changes_nothing(seed: int) -> None:
    image = _image_with_much_to_recover(seed)
    expected = Opened(image.kill_clone()).contents()
    random = Random(f"{seed} crash")
    disk = Disk(random, data_dirs=[DATA])
    for crash_at in range(1, 1000, 1 + seed % 3):
        disk.files = image.kill_clone()
        disk.crash_in(crash_at)
        next_crash = crash_at
        while True:
            try:
                found = Opened(disk.files).contents()
                break
            except ProcessEnded:
                # Each start crashes a little later than the one before, until one gets through.
                next_crash += random.randint(1, 20)
                if random.random() < 0.5:
                    disk.killed()
                else:
                    disk.power_cut("any")
                disk.crash_in(next_crash)
        assert found == expected, (seed, crash_at)
        disk.killed()
        if next_crash == crash_at:
            assert crash_at > 1
            return
    pytest.fail("the start never came to its end")


@pytest.mark.parametrize("seed", range(6))
def test_a_clean_marker_means_that_everything_is_durable(seed: int) -> None:
    """F-10: a crash inside a clean shutdown; F-09: one inside the next start."""
    shelf = Shelf(seed)
    for _ in range(40):
        shelf.step()
        shelf.remember()
    images = Images(shelf.disk, seed, 1.0)
    assert shelf.directory.close_clean(broker_epoch=17)
    pasts = shelf.pasts
    images.take("the end")
    closed = shelf.disk.image("none")
    kinds = set()
    for where, mode, image in images.give():
        _check_marker(image.kill_clone(), pasts, where)
        kinds.add(image.exists(MARKER))
        opened = Opened(image)
        judge(opened, pasts, pasts)
        if opened.directory.clean_shutdown is None and mode is None:
            assert all(log.log_end_offset == pasts[at].end for at, log in opened.logs.items())
    assert kinds == {True, False}

    # The next start takes the marker away before it does anything else.
    disk = Disk(Random(seed), data_dirs=[DATA])
    disk.files = closed
    images = Images(disk, seed, 1.0)
    opened = Opened(disk.files)
    assert opened.directory.clean_shutdown is not None
    assert opened.directory.clean_shutdown.broker_epoch == 17
    expected = opened.contents()
    images.take("the end")
    taken = images.give()
    marked = [image.exists(MARKER) for _, _, image in taken]
    assert marked == sorted(marked, reverse=True)
    assert not marked[-1]
    for where, _, image in taken:
        _check_marker(image.kill_clone(), pasts, where)
        assert Opened(image).contents() == expected, where


def _check_marker(image: MemoryFiles, pasts: dict[TopicPartition, Past], where: str) -> None:
    opened = Opened(image)
    if opened.directory.clean_shutdown is None:
        return
    for at, log in opened.logs.items():
        assert log.log_end_offset == pasts[at].end, where
        assert log.log_start_offset == pasts[at].start, where
        assert not log.recovery_report.cuts, where


def _of_earlier_lives(past: Past) -> Past:
    ghosts = {**past.ghosts, **past.batches}
    return Past(high_watermark_max=past.high_watermark_max, ghosts=ghosts)


@pytest.mark.parametrize("seed", range(4))
def test_logs_live_through_many_endings(seed: int) -> None:
    """Lives follow one another on one disk: what one leaves is what the next builds upon."""
    shelf = Shelf(seed)
    random = Random(f"{seed} lives")
    for life in range(12):
        shelf.disk.crash_in(random.randint(1, 150))
        try:
            for _ in range(60):
                shelf.step()
                before = shelf.remember()
            shelf.disk.forget_crash()
            before = shelf.pasts
            if random.random() < 0.5:
                assert shelf.directory.close_clean(broker_epoch=life)
        except ProcessEnded:
            # What the interrupted step would have left is not known: ask the page cache.
            before = shelf.pasts
        shelf.disk.forget_crash()
        killed = Opened(shelf.disk.image())
        after = {at: shelf.past_of(at, log, before[at]) for at, log in killed.logs.items()}
        if random.random() < 0.5:
            shelf.disk.killed()
        else:
            shelf.disk.power_cut("any")
        shelf.opened = Opened(shelf.disk.files)
        judge(shelf.opened, before, after)
        fresh = rebuilt(shelf.disk.files)
        for at, log in shelf.logs.items():
            same_state(log, fresh.logs[at])
            shelf.after_cut(at, log)
            shelf.epoch += 1
        shelf.pasts = {
            at: shelf.past_of(at, log, _of_earlier_lives(before[at]))
            for at, log in shelf.logs.items()
        }
