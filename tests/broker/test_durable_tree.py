"""The durable tree on disks that fail, fill up, lose power, or lie."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.broker.durable_tree import JOURNAL, SNAPSHOT, DurableTree, Write
from strandline.cluster.journal_format import JOURNAL_HEADER, DamagedJournal
from strandline.cluster.store import (
    NO_SESSION,
    Create,
    Created,
    Delete,
    Deleted,
    NodeExists,
    NoNode,
    Operation,
    OutcomeUnknown,
    SetData,
    StoreError,
    StoreUnavailable,
)
from strandline.cluster.tree import NodeTree
from strandline.errors import InvariantViolated, StorageError
from strandline.storage import real_files
from strandline.storage.files import DiskFull, OutOfHandles
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.memory_inodes import Contents
from strandline.storage.real_files import RealFiles

DIRECTORY = "/meta"
SMALL_JOURNAL = 400


def new_files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    return files


def durable(files: MemoryFiles, journal_bytes_max: int = 1 << 20) -> DurableTree:
    return DurableTree(files, DIRECTORY, journal_bytes_max=journal_bytes_max)


def write(tree: DurableTree, *operations: Operation) -> None:
    pending = tree.submit(operations)
    tree.write_now()
    pending.result()


def contents(tree: NodeTree) -> list[object]:
    return [tree.zxid, *tree.walk()]


def history() -> list[list[Operation]]:
    """Multis that make, change and delete nodes, and outgrow a small journal several times."""
    multis: list[list[Operation]] = [[Create("/t")]]
    for number in range(12):
        multis.append([Create(f"/t/{number}", b"x" * 40), SetData("/t", str(number).encode())])
        if number % 3 == 2:
            multis.append([Delete(f"/t/{number - 1}"), Create("/t/s-", sequential=True)])
    return multis


def test_a_store_is_the_same_after_reopening() -> None:
    files = new_files()
    tree = durable(files)
    for multi in history():
        write(tree, *multi)
    expected = contents(tree.tree)
    tree.close()
    again = durable(files)
    assert contents(again.tree) == expected
    assert again.recovery.replayed == len(history())
    assert (again.recovery.cut_bytes, again.recovery.snapshot_zxid) == (0, 0)


def test_a_journal_that_has_grown_becomes_a_snapshot() -> None:
    files = new_files()
    tree = durable(files, SMALL_JOURNAL)
    for multi in history():
        write(tree, *multi)
    assert files.size_of(f"{DIRECTORY}/{JOURNAL}") <= SMALL_JOURNAL
    again = durable(files, SMALL_JOURNAL)
    assert contents(again.tree) == contents(tree.tree)
    assert again.recovery.snapshot_zxid > 0


def test_multis_that_wait_together_share_one_sync_and_see_each_other() -> None:
    calls: list[str] = []
    files = new_files()
    tree = durable(files)
    files.on_call = lambda operation, path: calls.append(operation)
    pendings = [
        tree.submit([Create("/a")]),
        tree.submit([Create("/a")]),
        tree.submit([Create("/a/b")]),
        tree.submit([Delete("/x")]),
        tree.submit([SetData("/a", b"2", 0)]),
    ]
    changes = tree.write_now()
    assert calls == ["append", "sync"]
    assert [change.zxid for change in changes] == [1, 2, 3]
    assert pendings[0].result() == (Created("/a"),)
    assert isinstance(pendings[1].outcome, NodeExists)
    assert pendings[2].result() == (Created("/a/b"),)
    assert isinstance(pendings[3].outcome, NoNode)
    assert pendings[4].outcome


def test_what_changes_nothing_does_not_touch_the_disk() -> None:
    files = new_files()
    tree = durable(files)

    def refuse(operation: str, path: str) -> None:
        raise StorageError(f"unexpected {operation}")

    files.on_call = refuse
    refused, empty = tree.submit([Delete("/x")]), tree.submit([])
    assert tree.write_now() == []
    assert isinstance(refused.outcome, NoNode)
    assert empty.result() == ()


def test_a_withdrawn_multi_is_not_done() -> None:
    tree = durable(new_files())
    pending = tree.submit([Create("/a")])
    assert tree.withdraw(pending)
    assert tree.write_now() == []
    assert not tree.withdraw(pending)
    with pytest.raises(InvariantViolated):
        pending.result()


def test_the_tree_is_not_read_during_a_write() -> None:
    tree = durable(new_files())
    tree.submit([Create("/a")])
    begun = tree.begin()
    with pytest.raises(InvariantViolated):
        _ = tree.tree
    with pytest.raises(InvariantViolated):
        tree.begin()
    tree.carry_out(begun)
    assert len(tree.finish(begun)) == 1
    with pytest.raises(InvariantViolated):
        tree.finish(begun)


def test_opening_ends_the_sessions_of_the_process_before() -> None:
    files = new_files()
    tree = durable(files)
    tree.submit([Create("/e", ephemeral=True), Create("/p")], session_of(5))
    tree.submit([Create("/f", ephemeral=True)], session_of(6))
    tree.write_now()
    again = durable(files)
    assert again.recovery.expired_sessions == 2
    assert [path for path, _ in again.tree.walk()] == ["/", "/p"]
    assert again.tree.zxid == 4
    third = durable(files)
    assert third.recovery.expired_sessions == 0
    assert contents(third.tree) == contents(again.tree)


def session_of(number: int) -> Any:
    return type(NO_SESSION)(number)


def test_a_session_that_has_ended_writes_nothing_more() -> None:
    """Its ephemeral nodes would outlive it."""
    tree = durable(new_files())
    first = tree.submit([Create("/e", ephemeral=True)], session_of(5))
    end = tree.submit_end_of(session_of(5))
    late = tree.submit([Create("/late", ephemeral=True)], session_of(5))
    other = tree.submit([Create("/other", ephemeral=True)], session_of(6))
    assert len(tree.write_now()) == 3
    assert first.result() == (Created("/e"),)
    assert end.result() == (Deleted(),)
    assert other.result() == (Created("/other"),)
    with pytest.raises(StoreUnavailable):
        late.result()
    assert [path for path, _ in tree.tree.walk()] == ["/", "/other"]


class FailingAt:
    """Fails the n-th file call from now on, once."""

    def __init__(self, files: MemoryFiles, number: int) -> None:
        self.remaining = number
        self.failed: str | None = None
        files.on_call = self

    def __call__(self, operation: str, path: str) -> None:
        self.remaining -= 1
        if self.remaining == 0:
            self.failed = operation
            raise StorageError(f"Cannot {operation} {path}: injected.")


def run_history(
    tree: DurableTree, multis: list[list[Operation]], after: Callable[[NodeTree], None]
) -> StoreError | None:
    """Write each multi by itself until one fails; `after` sees the tree after each success."""
    for multi in multis:
        pending = tree.submit(multi)
        tree.write_now()
        if isinstance(pending.outcome, StoreError):
            return pending.outcome
        after(tree.tree)
    return None


def _note(states: list[list[object]], now: NodeTree) -> None:
    states.append(contents(now))


def test_the_failure_of_any_file_call_leaves_the_old_or_the_new_state() -> None:
    seen: set[str | None] = set()
    for number in range(1, 200):
        files = new_files()
        tree = durable(files, SMALL_JOURNAL)
        states = [contents(tree.tree)]
        failing = FailingAt(files, number)
        error = run_history(tree, history(), partial(_note, states))
        seen.add(failing.failed)
        files.on_call = lambda operation, path: None
        if failing.failed is None:
            break
        if error is None:  # only the snapshot failed: nothing was lost, so no caller gets an error
            assert contents(durable(files).tree) == states[-1]
            continue
        for clone in (files.kill_clone(), files.crash_clone(), files.crash_clone(Random(number))):
            recovered = contents(durable(clone).tree)
            reference = NodeTree()
            for multi in history()[: len(states)]:
                reference.multi(multi)
            allowed = [states[-1]] if error.definite else [states[-1], contents(reference)]
            assert recovered in allowed, (number, failing.failed)
    assert seen >= {"append", "sync", "truncate", None}


def test_a_write_that_certainly_failed_can_be_tried_again() -> None:
    files = new_files()
    tree = durable(files)
    write(tree, Create("/a"))
    FailingAt(files, 1)
    lost = [tree.submit([Create("/a/b")]), tree.submit([Create("/a/b")])]
    assert tree.write_now() == []
    assert all(isinstance(pending.outcome, StoreUnavailable) for pending in lost)
    write(tree, Create("/a/b"))
    assert contents(durable(files).tree) == contents(tree.tree)
    assert tree.tree.zxid == 2


def test_after_a_failed_sync_the_store_refuses_until_it_is_opened_again() -> None:
    files = new_files()
    tree = durable(files)
    FailingAt(files, 2)
    unknown = tree.submit([Create("/a")])
    tree.write_now()
    assert isinstance(unknown.outcome, OutcomeUnknown)
    assert not unknown.outcome.definite
    later = tree.submit([Create("/b")])
    tree.write_now()
    assert isinstance(later.outcome, StoreUnavailable)
    write(durable(files), Create("/b"))


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    files = new_files()
    tree = durable(files)
    write(tree, Create("/a"))
    files.capacity_bytes = files.used_bytes + 20
    with pytest.raises(StoreUnavailable):
        write(tree, SetData("/a", b"x" * 100))
    files.capacity_bytes = 1 << 20
    write(tree, SetData("/a", b"y", 0))


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_at_any_moment_keeps_everything_acknowledged(seed: int) -> None:
    """Crash at every file call in turn, with a disk that keeps any part of what was not synced."""
    files = MemoryFiles()
    clones: list[tuple[int, MemoryFiles]] = []
    acknowledged = 0
    random = Random(seed)

    def crash(operation: str, path: str) -> None:
        clones.append((acknowledged, files.crash_clone(random)))

    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    files.on_call = crash
    tree = durable(files, SMALL_JOURNAL)
    states = [contents(tree.tree)]
    groups = history()
    for group in groups:
        write(tree, *group)
        acknowledged += 1
        states.append(contents(tree.tree))
    assert len(clones) > 2 * len(groups)
    for count, clone in clones:
        recovered = durable(clone, SMALL_JOURNAL)
        assert contents(recovered.tree) in states[count : count + 2]
        write(recovered, Create("/alive"))
        assert "/alive" in durable(clone, SMALL_JOURNAL).tree


def test_every_torn_end_is_cut_and_reported() -> None:
    files = new_files()
    tree = durable(files)
    write(tree, Create("/a"))
    whole = files.size_of(f"{DIRECTORY}/{JOURNAL}")
    write(tree, Create("/b", b"data"))
    journal = files.read_bytes(f"{DIRECTORY}/{JOURNAL}")
    for size in range(whole, len(journal)):
        files.write_atomically(f"{DIRECTORY}/{JOURNAL}", journal[:size])
        again = durable(files)
        assert [path for path, _ in again.tree.walk()] == ["/", "/a"]
        assert again.recovery.cut_bytes == size - whole
        again.close()


def test_damage_before_the_end_is_refused_and_not_cut() -> None:
    files = new_files()
    tree = durable(files)
    write(tree, Create("/a"))
    first = files.size_of(f"{DIRECTORY}/{JOURNAL}")
    write(tree, Create("/b"))
    journal = files.read_bytes(f"{DIRECTORY}/{JOURNAL}")
    for position in range(first):
        damaged = bytearray(journal)
        damaged[position] ^= 0x55
        files.write_atomically(f"{DIRECTORY}/{JOURNAL}", bytes(damaged))
        with pytest.raises(DamagedJournal):
            durable(files)
        assert files.read_bytes(f"{DIRECTORY}/{JOURNAL}") == damaged


def test_every_damaged_byte_of_a_snapshot_is_noticed() -> None:
    files = new_files()
    tree = durable(files, 1)
    write(tree, Create("/a", b"data"))
    path = f"{DIRECTORY}/{SNAPSHOT}"
    snapshot = files.read_bytes(path)
    for position in range(len(snapshot)):
        damaged = bytearray(snapshot)
        damaged[position] ^= 1
        files.write_atomically(path, bytes(damaged))
        with pytest.raises(DamagedJournal):
            durable(files)
    for size in range(len(snapshot)):
        files.write_atomically(path, snapshot[:size])
        with pytest.raises(DamagedJournal):
            durable(files)


def test_a_snapshot_without_its_journal_is_refused() -> None:
    files = new_files()
    write(durable(files, 1), Create("/a"))
    files.remove(f"{DIRECTORY}/{JOURNAL}")
    with pytest.raises(DamagedJournal, match="missing"):
        durable(files)


def test_a_journal_whose_header_was_torn_starts_over() -> None:
    for size in range(len(JOURNAL_HEADER)):
        files = new_files()
        files.write_atomically(f"{DIRECTORY}/{JOURNAL}", JOURNAL_HEADER[:size])
        tree = durable(files)
        assert tree.recovery.cut_bytes == size
        write(tree, Create("/a"))
        assert "/a" in durable(files).tree


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_a_journal_that_could_not_be_opened_is_used_again_when_it_can(operation: str) -> None:
    """It was given up for good ("The metadata journal failed before"), though no disk failed."""
    files = new_files()
    tree = durable(files)
    write(tree, Create("/a"))
    starving = True

    def starve(called: str, path: str) -> None:
        if starving and called == operation:
            raise OutOfHandles(f"Cannot {called} {path}: Too many open files.")

    files.on_call = starve
    for _ in range(2):
        with pytest.raises(StoreUnavailable if operation == "append" else OutcomeUnknown):
            write(tree, Create("/refused"))
    starving = False
    write(tree, Create("/b"))
    expected = contents(tree.tree)
    assert not any("refused" in str(each) for each in expected)
    for each in (files.kill_clone(), files.crash_clone()):
        assert contents(durable(each).tree) == expected


def _starve_by_seed(seed: int) -> None:
    """Writes while handles run out again and again: what is acknowledged stays, and all that is
    refused for want of a handle can be written later. Raises `StoreError` if it cannot."""
    random = Random(seed)
    files = new_files()
    tree = durable(files, SMALL_JOURNAL)
    starved = 0.0

    def starve(operation: str, path: str) -> None:
        takes_handle = operation in ("append", "sync", "create", "sync directory")
        if takes_handle and random.random() < starved:
            raise OutOfHandles(f"Cannot {operation} {path}: Too many open files.")

    files.on_call = starve
    acknowledged = []
    for number in range(60):
        starved = random.choice((0.0, 0.0, 0.1, 0.5, 1.0)) if number % 6 == 0 else starved
        try:
            write(tree, Create(f"/{number}", b"x" * random.randrange(50)))
        except StoreError:
            if not starved:
                raise
        else:
            acknowledged.append(f"/{number}")
    starved = 0.0
    write(tree, Create("/after"))
    expected = contents(tree.tree)
    for disk in (files.kill_clone(), files.crash_clone(Random(seed))):
        again = durable(disk, SMALL_JOURNAL).tree
        assert contents(again) == expected
        assert {*acknowledged, "/after"} <= {node.path for node in again.view().nodes}


@pytest.mark.parametrize("seed", range(40))
def test_handles_that_run_out_never_close_the_journal_for_good(seed: int) -> None:
    _starve_by_seed(seed)


@pytest.mark.parametrize("mutant", ["append", "sync"])
def test_seeds_notice_a_journal_that_is_closed_for_good(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is left out: whatever fails is taken for a failure of the disk."""
    true_sync = DurableTree._settle_failed_sync
    true_finish = DurableTree.finish

    def settles(self: DurableTree, error: StorageError, size: int) -> None:
        true_sync(self, StorageError(str(error)), size)

    def closes(self: DurableTree, done: Write) -> Any:
        if done.error is not None:
            true_sync(self, StorageError("Input/output error."), 0)
        return true_finish(self, done)

    if mutant == "sync":
        monkeypatch.setattr(DurableTree, "_settle_failed_sync", settles)
    else:
        monkeypatch.setattr(DurableTree, "finish", closes)
    with pytest.raises(StoreUnavailable, match="failed before"):
        list(map(_starve_by_seed, range(40)))


def _fill_by_seed(seed: int) -> None:
    """Writes to a disk that is full again and again, which some syncs only notice (quotas, thin
    volumes): their pages are gone, and later syncs of the file say that all is well.

    Now and then the process ends, and the next one begins with the page cache as it is; or the
    power goes. What is acknowledged stays, and with room everything can be written again.
    """
    random = Random(seed)
    files = new_files()
    tree = durable(files, SMALL_JOURNAL)
    share_full = 0.0

    def fill(operation: str, path: str) -> None:
        takes_room = operation in ("append", "create", "sync", "sync directory")
        if takes_room and random.random() < share_full:
            if operation == "sync":
                contents = files.find(path)
                assert isinstance(contents, Contents)
                contents.drops_syncs = True
            raise DiskFull(f"Cannot {operation} {path}: No space left on device.")

    files.on_call = fill
    acknowledged = set()
    for number in range(80):
        if number % 8 == 0:
            share_full = random.choice((0.0, 0.1, 0.5, 1.0))
        path = f"/{number}"
        try:
            write(tree, Create(path, b"x" * random.randrange(50)))
        except StoreError:
            assert share_full
        else:
            acknowledged.add(path)
        if random.random() < 0.1:
            share_full = 0.0
            files = files.kill_clone() if random.random() < 0.5 else files.crash_clone(random)
            tree = durable(files, SMALL_JOURNAL)
            files.on_call = fill
            assert acknowledged <= {node.path for node in tree.tree.view().nodes}
    share_full = 0.0
    write(tree, Create("/after"))
    again = durable(files.crash_clone(random), SMALL_JOURNAL)
    assert contents(again.tree) == contents(tree.tree)


@pytest.mark.parametrize("seed", range(40))
def test_a_disk_that_was_full_is_written_again_without_a_restart(seed: int) -> None:
    _fill_by_seed(seed)


@pytest.mark.parametrize("mutant", ["closed", "trusted", "trusted by the next process"])
def test_seeds_notice_what_a_full_disk_must_not_lead_to(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal closed for good; or a file in use further that a sync failed of."""
    true_sync = DurableTree._settle_failed_sync

    def closes(self: DurableTree, error: StorageError, size: int) -> None:
        true_sync(self, StorageError(str(error)), size)

    def trusts(self: DurableTree, error: StorageError, size: int) -> None:
        self._journal.failed = False  # type: ignore[misc]  # a file in memory lets itself be told
        true_sync(self, error, size)

    def opens(self: DurableTree, path: str, data: bytes) -> None:
        if self._files.exists(path):
            return  # as it is
        self._files.write_atomically(path, data)

    match mutant:
        case "closed":
            monkeypatch.setattr(DurableTree, "_settle_failed_sync", closes)
        case "trusted":
            monkeypatch.setattr(DurableTree, "_settle_failed_sync", trusts)
        case _:
            monkeypatch.setattr(DurableTree, "_write_new", opens)
    with pytest.raises((AssertionError, StorageError)):
        list(map(_fill_by_seed, range(40)))


def test_a_real_journal_is_written_anew_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on real files, of which the system says at fsync that there is no room."""
    files = RealFiles()
    tree = DurableTree(files, str(tmp_path), journal_bytes_max=1 << 20)
    write(tree, Create("/a"))
    former = (tmp_path / JOURNAL).stat().st_ino

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(real_files, "sync_data", full)
        patch.setattr(real_files, "sync_all", full)
        with pytest.raises(OutcomeUnknown, match="No space left"):
            write(tree, Create("/b"))
        with pytest.raises(StoreUnavailable, match="written anew"):
            write(tree, Create("/c"))
    write(tree, Create("/d"))
    assert (tmp_path / JOURNAL).stat().st_ino != former
    assert {node.path for node in tree.tree.view().nodes} == {"/a", "/d"}
    again = DurableTree(RealFiles(), str(tmp_path), journal_bytes_max=1 << 20)
    assert contents(again.tree) == contents(tree.tree)
    assert files.open_handles == 1
    tree.close()
    again.close()
