"""Kafka's own cleaner and ours make the same of the same logs; Kafka's tool reads what we made."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.records.batch import BatchHeader, iterate_headers
from strandline.records.record import payload_of
from strandline.storage.compaction.plan import CleanerSettings
from strandline.storage.log import Log
from strandline.storage.real_files import RealFiles
from tests.java.processes import ToolServer, Workshop
from tests.java.test_dump_log_segments import COMPLAINTS, DUMP
from tests.storage.compaction.conftest import COMPACTED, Writer, compact, map_of
from tests.storage.conftest import World

SETTINGS = replace(
    COMPACTED, segment_bytes=4000, index_interval_bytes=300, segment_index_bytes=4096
)
ROUNDS = 4
PAUSE_MS = 2 * SETTINGS.delete_retention_ms


def theirs(
    tools: ToolServer, directory: Path, first_dirty: int, now_ms: int, settings: CleanerSettings
) -> int:
    """One round of Kafka's cleaner; the first dirty offset of the next."""
    outcome = tools.run(
        "CleanLog",
        directory,
        str(first_dirty),
        str(now_ms),
        str(settings.dedupe_buffer_bytes),
        str(settings.io_buffer_bytes),
        f"internal.segment.bytes={SETTINGS.segment_bytes}",
        f"index.interval.bytes={SETTINGS.index_interval_bytes}",
        f"segment.index.bytes={SETTINGS.segment_index_bytes}",
        f"delete.retention.ms={SETTINGS.delete_retention_ms}",
        "file.delete.delay.ms=0",
    )
    cleaned_to: int = json.loads(outcome.succeeded())["cleaned_to"]
    return cleaned_to


def batches(directory: Path) -> dict[int, tuple[BatchHeader, bytes]]:
    """Header and records of each batch by its base offset."""
    found: dict[int, tuple[BatchHeader, bytes]] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_headers(data):
            assert header.base_offset not in found
            records = payload_of(header, data, position)
            # Compressors differ; what is in the batch must not.
            found[header.base_offset] = (header._replace(crc=0, length=0), records)
    return found


def others(directory: Path) -> dict[str, Any]:
    """What else must be the same: which segments there are, and their aborted transactions."""
    names = sorted(p.name for p in directory.iterdir() if p.suffix in (".log", ".snapshot"))
    aborted = {p.name: p.read_bytes() for p in directory.glob("*.txnindex") if p.stat().st_size}
    return {"names": names, "aborted": aborted}


@pytest.mark.parametrize("seed", range(4))
def test_rounds_of_both_cleaners(
    seed: int, workshop: Workshop, tools: ToolServer, tmp_path: Path
) -> None:
    random = Random(seed)
    world = World(RealFiles(), str(tmp_path / "ours"), "real")
    ours, kafkas = Path(world.directory), tmp_path / "kafka" / "orders-0"
    log = world.create(SETTINGS)
    writer = Writer(log, random, keys=30)
    checkpoint = 0
    dropped = emptied = 0
    for _ in range(ROUNDS):
        for _ in range(60):
            writer.step()
        writer.end_all()
        log.roller.roll(writer.now_ms)
        expected = map_of(log)
        settings = CleanerSettings(
            dedupe_buffer_bytes=24 * random.choice([20, 1000]), io_buffer_bytes=20_000
        )
        log = _closed_and_copied(world, log, kafkas)
        before = sum(header.record_count for header, _ in batches(ours).values())
        reached = theirs(tools, kafkas, checkpoint, writer.now_ms, settings)
        cleaned_to = compact(world.files, log, checkpoint, now_ms=writer.now_ms, settings=settings)
        assert cleaned_to == reached
        log.retention.remove_due_files(writer.now_ms + SETTINGS.file_delete_delay_ms)
        log = world.reopen(log)
        log.close_clean()
        _compare(ours, kafkas)
        left = batches(ours)
        dropped += before - sum(header.record_count for header, _ in left.values())
        emptied += sum(header.record_count == 0 for header, _ in left.values())
        log = _opened(world)
        assert map_of(log) == expected
        writer.log, checkpoint = log, cleaned_to
        writer.now_ms += random.choice([0, PAUSE_MS])
    assert dropped > 200
    assert emptied
    log.close_clean()
    _dump(tools, ours)


def _closed_and_copied(world: World, log: Log, kafkas: Path) -> Log:
    log.close_clean()
    shutil.rmtree(kafkas, ignore_errors=True)
    shutil.copytree(world.directory, kafkas)
    return _opened(world)


def _opened(world: World) -> Log:
    log = world.load(clean=True)
    log.advance_high_watermark_to(log.log_end_offset)
    return log


def _compare(ours: Path, kafkas: Path) -> None:
    found, expected = batches(ours), batches(kafkas)
    # We keep the last batch of every new segment, if only its header; Kafka that of the round.
    ends = {int(path.stem) for path in ours.glob("*.log")}
    for base in found.keys() - expected.keys():
        header, _ = found.pop(base)
        assert (header.record_count, header.next_offset in ends) == (0, True)
    assert found == expected
    assert others(ours) == others(kafkas)


def _dump(tools: ToolServer, directory: Path) -> None:
    """Have Kafka's tool read everything. That offsets are missing is what compaction is for."""
    files = [p for p in sorted(directory.iterdir()) if p.name[0] == "0" and p.stat().st_size]
    said = ""
    for options in (["--deep-iteration"], ["--verify-index-only"]):
        kinds = (".log",) if "--deep-iteration" in options else (".index", ".timeindex")
        names = ",".join(str(path) for path in files if path.suffix in kinds)
        outcome = tools.run(DUMP, *options, "--files", names)
        said += outcome.succeeded() + outcome.err
    # Nor has an empty batch records with the timestamp for which its header is in the time index.
    said = re.sub(r"Found timestamp mismatch in .*\n  Index .* log timestamp: -1\n", "", said)
    wrong = [c for c in COMPLAINTS if c != "Non-consecutive offsets"]
    assert not [line for line in said.splitlines() if any(c in line for c in wrong)]
    names = ",".join(str(p) for p in files if p.suffix in (".txnindex", ".snapshot"))
    outcome = tools.run(DUMP, "--files", names)
    assert "Exception" not in outcome.succeeded() + outcome.err
