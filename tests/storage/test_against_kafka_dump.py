"""Kafka's own dump tool reads our segments and finds nothing to complain about.

Needs Java and Kafka's jars in the directory that STRANDLINE_KAFKA_JARS names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.records.batch import iterate_headers
from strandline.records.builder import build_control_batch
from strandline.records.codec import Codec
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.storage.real_files import RealFiles
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId

JARS = os.environ.get("STRANDLINE_KAFKA_JARS", "")
pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None,
    reason="STRANDLINE_KAFKA_JARS names no directory of Kafka's jars, or there is no java",
)
COMPLAINTS = ("mismatch", "corrupt", "not in order", "out of order", "nvalid", "Exception", "error")


def _dump(*arguments: str) -> str:
    command = ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _write(world: Any, kit: Any) -> Any:
    random = Random(3)
    log = world.create(TopicConfig(segment_bytes=4000, index_interval_bytes=300))
    for index in range(80):
        codec = list(Codec)[index % len(Codec)]
        batch = kit.batch(
            *[b"%d" % random.randint(0, 999) * random.randint(1, 20)] * random.randint(1, 5),
            timestamp=kit.now_ms + random.randint(0, 500),
            codec=codec,
            producer_id=7 if index < 10 else -1,
            epoch=0 if index < 10 else -1,
            sequence=log.log_end_offset if index < 10 else -1,
        )
        log.appender.append_as_leader(
            batch, leader_epoch=LeaderEpoch(index // 30), now_ms=kit.now_ms
        )
    for number in range(6):
        batch = kit.batch(b"t" * 200, producer_id=9, epoch=0, sequence=number, transactional=True)
        log.appender.append_as_leader(batch, leader_epoch=LeaderEpoch(3), now_ms=kit.now_ms)
        kind = ControlType.ABORT if number % 2 else ControlType.COMMIT
        marker = build_control_batch(
            EndTransactionMarker(kind, 0),
            timestamp=kit.now_ms,
            producer_id=ProducerId(9),
            producer_epoch=ProducerEpoch(0),
        )
        log.appender.append_as_coordinator(
            bytearray(marker), leader_epoch=LeaderEpoch(3), now_ms=kit.now_ms
        )
    return log


@pytest.mark.parametrize("how", ["running", "closed", "recovered"])
def test_kafka_reads_our_segments(kit: Any, tmp_path: Path, how: str) -> None:
    world = kit.world(RealFiles(), f"{tmp_path}/data", "real")
    log = _write(world, kit)
    batches = [header for _, header in iterate_headers(kit.bytes_from(log, 0))]
    aborted = len(log.reader.aborted_transactions(0, log.log_end_offset))
    if how == "closed":
        log.close_clean()
    elif how == "recovered":
        world.kill(log).close_clean()
    else:
        plan = log.flusher.flush_plan()
        assert plan is not None
        plan.carry_out(world.files)
    names = kit.names(world, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = ",".join(f"{world.directory}/{name}" for name in names)
    out = _dump("--deep-iteration", "--files", files)
    assert not [line for line in out.splitlines() if any(c in line for c in COMPLAINTS)]
    assert len(re.findall(r"baseOffset: \d+ lastOffset", out)) == len(batches)
    assert len(re.findall(r"isvalid: true", out)) == len(batches)
    offsets = re.findall(r"^\| offset: (\d+) ", out, flags=re.MULTILINE)
    assert list(map(int, offsets)) == list(range(batches[-1].next_offset))
    assert out.count("lastStableOffset:") == aborted > 0
    if how == "running":
        return  # the index of an active segment is padded with zeros, which Kafka's check refuses
    indexes = [name for name in names if name.endswith((".index", ".timeindex"))]
    checked = _dump(
        "--index-sanity-check", "--files", ",".join(f"{world.directory}/{n}" for n in indexes)
    )
    assert checked.count("passed sanity check") == len(indexes)
