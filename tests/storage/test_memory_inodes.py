"""What is durable is kept as differences; here it is compared with whole copies."""

from __future__ import annotations

from random import Random

import pytest

from strandline.storage.memory_inodes import PAGE_BYTES, Contents, PowerCut

MODES: tuple[PowerCut, ...] = ("none", "prefix", "torn", "hole", "any", "all")


def _padded(contents: Contents) -> bytes:
    return bytes(contents.data).ljust(contents.size, b"\0")


class Pair:
    """A file, and two plain strings that say what it must hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.file = Contents()
        self.seen = b""
        self.durable = b""

    def step(self) -> None:
        """Do one random thing to both."""
        choice = self.random.random()
        if choice < 0.4:
            data = self.random.randbytes(self.random.choice((7, 600, 5000)))
            assert self.file.append(len(self.seen), data) == len(self.seen) + len(data)
            self.seen += data
        elif choice < 0.6:
            position = self.random.randint(0, len(self.seen) + 3000)
            data = self.random.randbytes(self.random.choice((1, 9, 4097)))
            self.file.write(position, data)
            before = self.seen[:position].ljust(position, b"\0")
            self.seen = before + data + self.seen[position + len(data) :]
        elif choice < 0.8:
            size = self.random.randint(0, len(self.seen) + 9000)
            self.file.truncate(size)
            self.seen = self.seen[:size].ljust(size, b"\0")
        elif choice < 0.93:
            self.file.sync()
            self.durable = self.seen
        else:
            self.write_back()

    def write_back(self) -> None:
        """The machine writes something back; each sector on disk is then the old or the new one."""
        self.file.write_back(self.random)
        now = bytes(self.file.durable()).ljust(self.file.durable_size, b"\0")
        self.check_image(now)
        self.durable = now

    def check_image(self, image: bytes) -> None:
        """Everything that a power cut leaves is old, new, or zeros of a hole."""
        low, high = sorted((len(self.durable), len(self.seen)))
        assert low <= len(image) <= high
        for at in range(0, len(image), 64):
            part = image[at : at + 64]
            choices = [
                source[at : at + 64].ljust(64, b"\0")[: len(part)]
                for source in (self.seen, self.durable)
            ]
            for got, *wanted in zip(part, *choices, strict=True):
                assert got in (*wanted, 0)

    def check(self) -> None:
        """Compare."""
        assert _padded(self.file) == self.seen
        assert self.file.read(0, len(self.seen)) == self.seen
        durable = bytes(self.file.durable()).ljust(self.file.durable_size, b"\0")
        assert durable == self.durable
        sure = self.file.durable_end()
        assert self.seen[:sure] == self.durable[:sure]
        limit = min(len(self.seen), len(self.durable))
        if sure < limit:
            assert self.seen[sure] != self.durable[sure]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_durable(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(60):
        pair.step()
        pair.check()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(12))
def test_what_a_power_cut_leaves(mode: PowerCut, seed: int) -> None:
    pair = Pair(seed)
    for number in range(40):
        pair.step()
        image = pair.file.copy()
        lossy = image.lose_power(Random(number), mode)
        assert image.is_durable
        assert lossy == (_padded(image) != pair.seen)
        pair.check_image(_padded(image))
        sure = pair.file.durable_end()
        assert _padded(image)[:sure] == pair.seen[:sure]
        pair.check()  # the copy was independent
        if mode == "none":
            assert _padded(image) == pair.durable
        if mode == "all":
            assert not lossy


def test_a_torn_write_is_the_last_one_at_any_byte() -> None:
    ends = set()
    for seed in range(300):
        file = Contents()
        file.append(0, b"a" * 10)
        file.sync()
        file.append(10, b"b" * 10)
        file.append(20, b"c" * 10)
        file.lose_power(Random(seed), "torn")
        assert file.data == (b"a" * 10 + b"b" * 10 + b"c" * 10)[: file.size]
        ends.add(file.size)
    assert ends == set(range(20, 31))


def test_later_sectors_survive_where_earlier_ones_are_lost() -> None:
    file = Contents()
    file.append(0, b"a" * 2048)
    images = []
    for seed in range(100):
        image = file.copy()
        image.lose_power(Random(seed), "hole")
        images.append(_padded(image))
    assert any(i.startswith(bytes(512) + b"a" * 512) for i in images)
    assert {len(i) for i in images} >= {0, 2048}


def test_a_sync_keeps_only_what_is_new() -> None:
    file = Contents()
    file.append(0, bytes(100 * PAGE_BYTES))
    file.sync()
    file.write(5, b"x")
    file.write(5 + PAGE_BYTES, b"x")
    assert sorted(file.before) == [0, 1]
    file.sync()
    assert not file.before
    assert file.is_durable


def test_a_disk_that_drops_syncs() -> None:
    file = Contents()
    file.append(0, b"told durable")
    file.drops_syncs = True
    file.sync()
    file.write_back(Random(1))
    assert file.durable_end() == 0
    assert file.lose_power(None, "all") is True
    assert file.size == 0
