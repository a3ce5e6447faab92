"""A log against a list: whatever is done to it in whatever order, it holds what the list holds."""

from __future__ import annotations

import tempfile
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.config.topic import TopicConfig
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.real_files import RealFiles
from strandline.types import LeaderEpoch, Offset
from tests.storage.conftest import NOW_MS, Kit, World


class Model:
    """What the log must hold: (offset, value, timestamp) of each record, and where it starts."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.batches: list[list[tuple[int, bytes, int]]] = []

    def add(self, batch: list[tuple[int, bytes, int]]) -> None:
        self.batches.append(batch)
        self.end = batch[-1][0] + 1

    def visible(self) -> list[tuple[int, bytes, int]]:
        return [record for batch in self.batches for record in batch if record[0] >= self.start]

    def truncate(self, offset: int) -> None:
        """Batches stay whole or go: a target inside one removes all of it."""
        gone = [batch for batch in self.batches if batch[-1][0] >= offset]
        if gone:
            self.batches = self.batches[: -len(gone)]
            self.end = min(offset, gone[0][0][0])
            self.start = min(self.start, self.end)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["real", "memory", "crashed"]))
def test_a_log_holds_what_the_list_holds(seed: int, kind: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = RealFiles(open_handles_max=5) if kind == "real" else MemoryFiles()
        _live(World(files, f"{directory}/data", kind), Random(seed), seed)


def _live(world: World, random: Random, seed: int) -> None:
    config = TopicConfig(
        segment_bytes=random.choice([500, 1000, 5000]),
        index_interval_bytes=random.choice([1, 150, 700]),
        segment_index_bytes=random.choice([60, 4096]),
        retention_ms=-1,
        segment_ms=random.choice([20, 10**9]),
        file_delete_delay_ms=0,
    )
    log, model = world.create(config), Model()
    epoch = 0
    for _ in range(random.randint(5, 60)):
        step = random.random()
        if step < 0.6:
            values = [b"%d" % random.randint(0, 99) * random.randint(1, 30)] * random.randint(1, 5)
            stamp = NOW_MS + random.randint(0, 50)
            offset = Kit.append(log, *values, epoch=epoch, timestamp=stamp)
            assert offset == model.end, seed
            model.add([(offset + i, v, stamp + i) for i, v in enumerate(values)])
        elif step < 0.65:
            log.roller.roll(NOW_MS)
        elif step < 0.75:
            target = random.randint(model.start, model.end)
            log.truncation.truncate_to(Offset(target), NOW_MS)
            model.truncate(target)
            epoch += 1
        elif step < 0.82:
            log.advance_high_watermark_to(log.log_end_offset)
            model.start = max(model.start, random.randint(model.start, model.end))
            log.retention.delete_records_to(Offset(model.start))
            log.retention.apply_retention(NOW_MS)
            log.retention.remove_due_files(NOW_MS)
        elif step < 0.92:
            log = world.reopen(log)
        else:
            plan = log.flusher.flush_plan()
            if plan is not None:
                assert plan.carry_out(world.files)
                log.flusher.mark_flushed(plan, NOW_MS)
        log.check()
        assert log.log_end_offset == model.end, seed
    _compare(log, model, random)
    log.close()


def _compare(log: Any, model: Model, random: Random) -> None:
    visible = model.visible()
    assert log.log_start_offset == model.start
    assert Kit.records(log) == [(offset, value) for offset, value, _ in visible]
    end = log.log_end_offset
    for offset in range(model.start, end + 1):
        part = log.reader.read(Offset(offset), 1, end_offset=end, at_least_one_batch=True)
        expected = next((b[0][0] for b in model.batches if b[-1][0] >= offset), None)
        found = None
        if part is not None:
            found = next(iterate_headers(part.file.read_at(part.position, part.length)))[1][0]
        assert found == expected
    for offset in (model.start - 1, end + 1):
        with pytest.raises(ProtocolError) as refused:
            log.reader.read(Offset(offset), 1, end_offset=end, at_least_one_batch=True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    for wanted in range(NOW_MS - 1, NOW_MS + 57, 3):
        time_found = log.reader.offset_for_timestamp(wanted)
        first = next(((t, o) for o, _, t in visible if t >= wanted), None)
        assert (time_found and time_found[:2]) == first
    epochs = log.leader_epochs.entries
    assert all(entry.start_offset < max(end, 1) for entry in epochs[:-1])
    assert log.reader.end_offset_for_epoch(LeaderEpoch(99)) == (-1, -1)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_index_entry_is_true_and_lookups_equal_a_scan(seed: int) -> None:
    """I-04."""
    random = Random(seed)
    world = World(MemoryFiles(), "/data", "memory")
    log = world.create(TopicConfig(segment_bytes=3000, index_interval_bytes=200))
    for _ in range(random.randint(1, 60)):
        values = [b"." * random.randint(0, 60)] * random.randint(1, 4)
        Kit.append(log, *values, timestamp=NOW_MS + random.randint(0, 99))
    if random.random() < 0.5:
        log = world.reopen(log)
    for segment in log.segments.all:
        data = segment.log.read_at(0, segment.size)
        headers = dict(iterate_headers(data))
        segment.floor_position(segment.base_offset)
        index, times = segment.offset_index, segment.time_index
        for slot in range(index.entries):
            relative_offset, position = index.entry(slot)
            assert headers[position].last_offset == segment.base_offset + relative_offset
        for slot in range(times.entries):
            timestamp, relative_offset = times.entry(slot)
            later = [h for h in headers.values() if h.max_timestamp > timestamp]
            assert all(h.last_offset > segment.base_offset + relative_offset for h in later)
        if headers:
            assert segment.largest_timestamp().timestamp == max(
                record.timestamp
                for position, header in headers.items()
                for record in read_records(data[position : position + header.size_bytes])
            )
        for offset in range(segment.base_offset, segment.end_offset() + 1):
            expected = next(((p, h) for p, h in headers.items() if h.last_offset >= offset), None)
            assert segment.find(offset) == expected
