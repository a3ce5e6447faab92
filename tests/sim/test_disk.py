"""The disk of a machine: how it outlives processes, what it loses, and what it does wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from strandline.errors import StorageError
from strandline.records.batch import iterate_headers, verify_crc
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.sim import disk_damage
from strandline.sim.disk import Disk
from strandline.storage.files import DiskFull, LockHeld
from strandline.storage.memory_files import MemoryFiles, ProcessEnded, UsedAfterEnd
from strandline.storage.memory_inodes import CUTS
from tests.current import current

LOG = "/a/t-0/00000000000000000000.log"


@pytest.fixture
def disk() -> Disk:
    disk = Disk(Random(1), data_dirs=["/a", "/b"])
    for data_dir in disk.data_dirs:
        disk.files.make_directory(f"{data_dir}/t-0")
        disk.files.sync_directory(data_dir)
    return disk


def _write(disk: Disk, path: str, synced: bytes, rest: bytes = b"") -> None:
    file = disk.files.open(path, create=True)
    file.append(synced)
    file.sync()
    disk.files.sync_directory(path.rsplit("/", 1)[0])
    if rest:
        file.append(rest)


# -- The ends of processes ------------------------------------------------------------------------


def test_a_kill_keeps_the_page_cache_and_its_dirt(disk: Disk) -> None:
    _write(disk, LOG, b"synced", b" and not")
    before = disk.files
    handle, lock = before.open(LOG), before.lock("/a/.lock")
    with pytest.raises(LockHeld):
        before.lock("/a/.lock")
    assert disk.killed() is False
    assert disk.files is not before
    assert disk.files.read_bytes(LOG) == disk.peek(LOG) == b"synced and not"
    assert disk.peek_durable(LOG) == b"synced"
    assert disk.durable_end(LOG) == 6
    disk.files.lock("/a/.lock")
    with pytest.raises(UsedAfterEnd, match=r"cannot append /a/t-0"):
        handle.append(b"zombie")
    with pytest.raises(UsedAfterEnd):
        before.write_atomically("/a/x", b"zombie")
    lock.release()
    handle.close()
    assert disk.power_cut("none") is True
    assert disk.files.read_bytes(LOG) == b"synced"


@pytest.mark.parametrize("mode", [*CUTS, "any"])
def test_a_power_cut_says_whether_it_was_lossy(mode: str) -> None:
    outcomes = set()
    for seed in range(60):
        disk = Disk(Random(seed), data_dirs=["/a"])
        disk.files.make_directory("/a/t-0")
        disk.files.sync_directory("/a")
        _write(disk, LOG, b"synced", b" and not")
        # What can be made again is no loss.
        _write(disk, LOG.replace(".log", ".index"), b"", b"entries")
        lossy = disk.power_cut(mode)  # type: ignore[arg-type]
        found = disk.files.read_bytes(LOG)
        assert found.startswith(b"synced")
        assert lossy == (found != b"synced and not")
        assert disk.power_cut(mode) is False  # type: ignore[arg-type]
        outcomes.add(lossy)
    assert outcomes == {"none": {True}, "all": {False}}.get(mode, {True, False})


def test_a_name_that_is_lost_is_a_loss(disk: Disk) -> None:
    file = disk.files.open(LOG, create=True)
    file.append(b"x")
    file.sync()
    assert disk.durable_end(LOG) == 0
    assert disk.power_cut("none") is True
    assert not disk.files.exists(LOG)


def test_a_new_disk_is_empty_and_works(disk: Disk) -> None:
    _write(disk, LOG, b"x")
    disk.fail("append")
    old = disk.files
    disk.swap()
    assert (disk.files.list_directory("/a"), disk.files.list_directory("/b")) == ([], [])
    assert not disk.power_cut("none")
    assert disk.files.is_directory("/b")
    disk.files.open("/b/f", create=True).append(b"x")
    with pytest.raises(UsedAfterEnd):
        old.read_bytes(LOG)


def test_images_are_apart_and_draw_nothing(disk: Disk) -> None:
    _write(disk, LOG, b"synced", b" and not")
    state = disk._random.getstate()
    killed, cut = disk.image(), disk.image("none")
    killed.open(LOG).append(b"!")
    assert disk.image("hole", Random(1)).read_bytes(LOG) == (
        disk.image("hole", Random(1)).read_bytes(LOG)
    )
    assert killed.read_bytes(LOG) == b"synced and not!"
    assert cut.read_bytes(LOG) == b"synced"
    assert disk.peek(LOG) == b"synced and not"
    assert disk.durable_end(LOG) == 6
    assert disk._random.getstate() == state


def test_background_writing_makes_more_durable_but_nothing_less() -> None:
    ends = set()
    for seed in range(100):
        disk = Disk(Random(seed), data_dirs=["/a"])
        disk.files.make_directory("/a/t-0")
        disk.files.sync_directory("/a")
        _write(disk, LOG, b"0123", b"4567")
        _write(disk, LOG.replace("log", "index"), b"0123")
        disk.write_back()
        assert disk.peek(LOG) == b"01234567"
        ends.add(disk.durable_end(LOG))
    assert ends == {4, 5, 6, 7, 8}


# -- Faults ---------------------------------------------------------------------------------------


def test_an_idle_disk_is_not_watched(disk: Disk) -> None:
    assert not current(disk.files.is_watched)
    ways: tuple[tuple[Callable[[], object], Callable[[], object]], ...] = (
        (lambda: disk.fail("read"), disk.heal),
        (disk.fill, disk.free_space),
        (lambda: disk.slow(1), disk.fast),
        (lambda: disk.crash_in(3), disk.forget_crash),
        (lambda: disk.drop_on_sync(LOG), disk.heal),
    )
    for begin, end in ways:
        begin()
        assert current(disk.files.is_watched)
        end()
        assert not disk.files.is_watched
    disk.crash_in(1)
    with pytest.raises(ProcessEnded):
        disk.files.make_directory("/a/x")
    disk.killed()
    assert not disk.files.is_watched


@pytest.mark.parametrize(
    ("operation", "use"),
    [
        ("append", lambda disk: disk.files.open(LOG).append(b"x")),
        ("write", lambda disk: disk.files.open(LOG).write_at(0, b"x")),
        ("read", lambda disk: disk.files.open(LOG).read_at(0, 1)),
        ("sync", lambda disk: disk.files.open(LOG).sync()),
        ("truncate", lambda disk: disk.files.open(LOG).truncate(0)),
        ("extend", lambda disk: disk.files.open(LOG).truncate(100)),
        ("rename", lambda disk: disk.files.rename(LOG, "/a/t-0/x")),
        ("remove", lambda disk: disk.files.remove(LOG)),
        ("create", lambda disk: disk.files.open(LOG + ".new", create=True)),
        ("create directory", lambda disk: disk.files.make_directory("/a/t-0/d")),
        ("sync directory", lambda disk: disk.files.sync_directory("/a/t-0")),
        ("list", lambda disk: disk.files.list_directory("/a/t-0")),
        ("examine", lambda disk: disk.files.free_bytes("/a/t-0")),
    ],
)
def test_each_operation_can_fail(disk: Disk, operation: str, use: Callable[[Disk], None]) -> None:
    _write(disk, LOG, b"contents")
    disk.fail(operation, "/a/t-0", count=1)
    disk.fail("*", "/b")
    with pytest.raises(StorageError, match="Input/output error"):
        use(disk)
    assert disk.peek(LOG) == b"contents"
    use(disk)
    assert disk.happened == {operation: 1}
    with pytest.raises(StorageError, match="Input/output error"):
        disk.files.list_directory("/b")
    disk.heal()
    disk.files.list_directory("/b")


def test_one_data_directory_breaks_and_the_other_works(disk: Disk) -> None:
    _write(disk, LOG, b"x")
    _write(disk, "/b/t-0/f", b"x")
    disk.break_dir("/b")
    with pytest.raises(StorageError):
        disk.files.open("/b/t-0/f").append(b"x")
    with pytest.raises(StorageError):
        disk.files.read_bytes("/b/t-0/f")
    disk.files.open(LOG).append(b"x")


def test_a_full_disk_takes_nothing_more_but_gives_back(disk: Disk) -> None:
    _write(disk, LOG, b"contents")
    disk.fill("/a/")
    file = disk.files.open(LOG)
    for use in (
        lambda: file.append(b"x"),
        lambda: file.truncate(100),
        lambda: disk.files.open("/a/new", create=True),
        lambda: disk.files.write_atomically("/a/checkpoint", b"x"),
    ):
        with pytest.raises(DiskFull, match="No space left"):
            use()
    assert not file.failed
    assert disk.peek(LOG) == b"contents"
    file.truncate(3)
    disk.files.write_atomically("/b/checkpoint", b"x")
    disk.free_space()
    file.append(b"!")
    assert disk.peek(LOG) == b"con!"


def test_a_sync_that_fails_once_lies_ever_after(disk: Disk) -> None:
    """F-45: the pages are gone, and the kernel has told it once."""
    _write(disk, LOG, b"synced", b" dropped")
    disk.drop_on_sync(".log")
    file = disk.files.open(LOG)
    with pytest.raises(StorageError, match="Input/output error"):
        file.sync()
    assert file.failed
    again = disk.files.open(LOG)
    again.append(b" more")
    again.sync()
    assert disk.peek(LOG) == b"synced dropped more"
    assert disk.durable_end(LOG) == 6
    assert LOG in disk.damaged
    assert disk.killed() is True
    assert disk.files.read_bytes(LOG) == b"synced"
    sound = disk.files.open(LOG)
    sound.append(b"!")
    sound.sync()
    assert disk.durable_end(LOG) == 7


def test_a_slow_disk_counts_what_waits_for_it(disk: Disk) -> None:
    _write(disk, LOG, b"x", b"y")
    disk.slow(5_000, "/a/")
    file = disk.files.open(LOG)
    file.append(b"z")
    assert disk.take_stall_us() == 0
    file.sync()
    disk.files.sync_directory("/a/t-0")
    disk.files.sync_directory("/b")
    assert (disk.take_stall_us(), disk.take_stall_us()) == (10_000, 0)
    disk.slow(7, operations={"read"})
    file.read_at(0, 1)
    assert disk.take_stall_us() == 7
    disk.fast()
    file.sync()
    assert disk.take_stall_us() == 0


def test_onlookers_meet_no_faults(disk: Disk) -> None:
    _write(disk, LOG, b"contents")
    disk.fail("*")
    disk.slow(9, operations={"read"})
    file = disk.files.open(LOG)
    with disk.unobserved():
        assert file.read_at(0, 3) == b"con"
        with disk.unobserved():
            assert disk.files.list_directory("/a/t-0")
        assert file.read_at(0, 3) == b"con"
    assert file.peek(3, 100) == b"tents"
    assert disk.take_stall_us() == 0
    with pytest.raises(StorageError):
        file.read_at(0, 3)


# -- Crash points ---------------------------------------------------------------------------------


def test_a_crash_point_ends_the_process_for_good(disk: Disk) -> None:
    _write(disk, LOG, b"contents")
    disk.crash_in(3, how="power", mode="none")
    files = disk.files
    files.open(LOG).read_at(0, 1)
    files.make_directory("/a/one")
    files.open("/a/one/f", create=True)
    with pytest.raises(ProcessEnded) as ended:
        files.remove(LOG)
    cause = ended.value.cause
    assert (cause.how, cause.mode) == ("power", "none")  # type: ignore[attr-defined]
    for clean_up in (lambda: files.remove("/a/one/f"), lambda: files.read_bytes(LOG)):
        with pytest.raises(ProcessEnded):
            clean_up()
    assert disk.happened == {"crash at remove": 1}
    disk.killed()
    assert disk.files.exists("/a/one/f")
    assert disk.files.exists(LOG)


def test_a_crash_point_waits_for_its_operation_and_tears_an_append(disk: Disk) -> None:
    sizes = set()
    for number in range(40):
        path = f"/a/t-0/{number}.log"
        _write(disk, path, b"")
        disk.crash_in(2, operation="append|rename", path_part=".log")
        file = disk.files.open(path)
        disk.files.write_atomically("/a/checkpoint", b"x")
        file.append(b"0123456789")
        file.sync()
        with pytest.raises(ProcessEnded):
            file.append(b"0123456789")
        disk.killed()
        sizes.add(disk.files.size_of(path))
        assert disk.durable_end(path) == 10
    assert sizes <= set(range(10, 20))
    assert len(sizes) > 5


def test_a_hook_hears_of_every_change_before_it_is_made(disk: Disk) -> None:
    heard: list[tuple[str, str, bool]] = []
    disk.on_operation = lambda operation, path: heard.append(
        (operation, path, disk.peek("/a/c") is not None)
    )
    disk.files.write_atomically("/a/c", b"x")
    disk.files.read_bytes("/a/c")
    assert [operation for operation, _, _ in heard] == [
        "create",
        "truncate",
        "append",
        "sync",
        "rename",
        "sync directory",
    ]
    assert [there for _, _, there in heard] == [False] * 5 + [True]
    assert disk.operations == 6
    disk.on_operation = None
    assert not disk.files.is_watched


# -- Damage ---------------------------------------------------------------------------------------


def test_rot_flips_one_bit_that_is_on_disk(disk: Disk) -> None:
    _write(disk, LOG, bytes(20), bytes(5000))
    _write(disk, "/a/t-0/empty.log", b"")
    for _ in range(20):
        sentence = disk.rot(".log")
        assert sentence is not None
        assert LOG in sentence
    found = disk.peek(LOG)
    assert found is not None
    assert 0 < sum(byte.bit_count() for byte in found[:20]) <= 20
    assert not any(found[20:])
    assert found[:20] == disk.peek_durable(LOG)
    assert LOG in disk.damaged
    assert disk.rot(".nothing") is None


def test_files_go_and_shrink_behind_our_back(disk: Disk) -> None:
    _write(disk, LOG, b"contents")
    assert disk.lose_file(".index") is None
    sentence = disk.cut_file(".log")
    assert sentence == f"{LOG} is cut to {disk.files.size_of(LOG)} bytes"
    assert disk.durable_end(LOG) == disk.files.size_of(LOG) < 8
    assert disk.lose_file(".log") == f"{LOG} is gone"
    disk.power_cut("none")
    assert not disk.files.exists(LOG)


def test_a_checkpoint_comes_back_from_earlier(disk: Disk) -> None:
    path = "/a/recovery-point-offset-checkpoint"
    assert disk.restore_older() is None
    for contents in (b"one", b"two", b"three"):
        disk.files.write_atomically(path, contents)
        disk.killed()
    assert disk.restore_older("recovery-point") is not None
    assert disk.files.read_bytes(path) in (b"one", b"two")
    assert path in disk.damaged
    disk.power_cut("none")
    assert disk.files.read_bytes(path) in (b"one", b"two")


def test_the_clean_marker_is_forgotten_and_forged(disk: Disk) -> None:
    marker = "/b/.kafka_cleanshutdown"
    assert disk.forget_clean_marker("/b") is None
    assert disk.forge_clean_marker("/b") is not None
    assert disk.forge_clean_marker("/b") is None
    disk.power_cut("none")
    assert disk.files.exists(marker)
    assert disk.forget_clean_marker("/b") == f"{marker} is gone"
    disk.power_cut("none")
    assert not disk.files.exists(marker)
    assert disk.forget_clean_marker() is None


def test_rot_in_a_log_is_such_that_a_checksum_tells() -> None:
    batch = build_batch([Record(value=b"v")])
    files = MemoryFiles()
    files.make_directory("/d")
    for seed in range(60):
        file = files.open("/d/7.log", create=True)
        file.truncate(0)
        file.append(batch * 3)
        file.sync()
        assert disk_damage.rot(files, ".log", Random(seed)) is not None
        data = files.read_bytes("/d/7.log")
        assert [header.size_bytes for _, header in iterate_headers(data)] == [len(batch)] * 3
        good = [verify_crc(data, len(batch) * n, len(batch)) for n in range(3)]
        assert good.count(False) == 1


def test_damage_stays_with_a_file_that_gets_another_name() -> None:
    disk = Disk(Random(1), data_dirs=["/data"])
    assert not disk.is_damaged("/data/t-0/7.log")
    disk.damaged["/data/t-0/7.log.swap"] = "a bit has flipped"
    for suffix in ("", ".swap", ".deleted"):
        assert disk.is_damaged("/data/t-0/7.log" + suffix)
    assert not disk.is_damaged("/data/t-0/7.index")
