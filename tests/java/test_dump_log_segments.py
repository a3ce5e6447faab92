"""Kafka's DumpLogSegments reads every file of a Strandline directory and finds nothing to say.

The same files are read while the broker runs, after a clean end, and after kill -9 and recovery.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.java.processes import Broker, Outcome, ToolServer, Workshop

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SETTINGS = (
    *("log.retention.ms=-1", "offsets.topic.num.partitions=4"),
    "log.cleaner.enable=false",  # what is compared is the same at any time
)
TOPICS = ("internal.segment.bytes=60000", "index.interval.bytes=300", "segment.index.bytes=160")
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPLAINTS = (
    "Mismatches in",
    "Non-consecutive offsets",
    "timestamp mismatch",
    "out of order timestamp",
    "not found in",
    "invalid bytes",
    "isvalid: false",
    "Ignoring unknown",
    "Exception",
    "is corrupt",
)
BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* producerId: (-?\d+) .* "
    r"partitionLeaderEpoch: (\d+) .* compresscodec: (\w+) ",
    re.MULTILINE,
)

# Kafka 4.3's tool expects every segment to begin at offset 0, and says so of those that do not.
FIRST_OF_SEGMENT = re.compile(
    r"^Non-consecutive offsets in \S+/(\d+)\.log\n  -1 is followed by (\d+)\n", re.MULTILINE
)


def dump(tools: ToolServer, files: list[Path], *options: str) -> str:
    """What the tool prints about the files; fails if it complains about anything."""
    outcome = tools.run(DUMP, *options, "--files", ",".join(str(file) for file in files))
    return spotless(outcome)


def spotless(outcome: Outcome) -> str:
    said = outcome.succeeded() + FIRST_OF_SEGMENT.sub(_unless_named_so, outcome.err)
    found = [
        line for line in said.splitlines() if any(complaint in line for complaint in COMPLAINTS)
    ]
    assert not found, found[:20]
    return outcome.out


def _unless_named_so(match: re.Match[str]) -> str:
    """Nothing if a segment begins at the offset in its name, else what the tool said."""
    return "" if int(match[1]) == int(match[2]) else match[0]


def files_of(data: Path, *suffixes: str) -> list[Path]:
    return sorted(file for file in data.glob("*-[0-9]*/*") if file.suffix in suffixes)


def check_directory(tools: ToolServer, data: Path, *, is_closed: bool) -> str:
    """Read everything that the tool can read; returns what it said about the logs.

    The tool takes the room that an active segment's index reserves for entries, looks them up, and
    does not find them. So it looks into these indexes only after a clean end cut them to size.
    """
    logs = dump(tools, files_of(data, ".log"), "--deep-iteration", "--skip-record-metadata")
    indexes = files_of(data, ".index", ".timeindex")
    active = {max(log.parent.glob("*.log")) for log in files_of(data, ".log")}
    finished = [i for i in indexes if is_closed or i.with_suffix(".log") not in active]
    dump(tools, finished)
    dump(tools, finished, "--verify-index-only")
    sane = dump(tools, finished, "--index-sanity-check")
    assert sane.count("passed sanity check") + sane.count(" is empty") == len(finished)
    dump(tools, files_of(data, ".snapshot", ".txnindex"))
    return logs


def batches(said: str) -> list[tuple[str, ...]]:
    """First and last offset, count, producer, epoch and codec of each batch in the tool's words."""
    return BATCH.findall(said)


@pytest.fixture(scope="module")
def busy(workshop: Workshop, tools: ToolServer) -> Broker:
    """A broker whose topics have many small segments."""
    broker = workshop.broker(None, *SETTINGS)
    tools.run("Workload", broker.address, *TOPICS, "plain", "more").succeeded()
    return broker


def test_every_kind_of_file_is_there(busy: Broker) -> None:
    files = [file for file in busy.data.glob("*-[0-9]*/*") if file.suffix in KINDS]
    count = Counter(file.suffix for file in files)
    assert count[".log"] > 80
    assert count[".index"] == count[".timeindex"] == count[".log"]
    assert count[".snapshot"] > 40
    assert sum(file.stat().st_size > 0 for file in files if file.suffix == ".index") > 60


def test_a_running_broker(busy: Broker, tools: ToolServer) -> None:
    said = check_directory(tools, busy.data, is_closed=False)
    found = batches(said)
    assert {batch[5] for batch in found} == {"none", "gzip", "snappy", "lz4", "zstd"}
    producers = {batch[3] for batch in found}
    assert len(producers - {"-1"}) >= 14, "each of the workload's producers has its own id"
    per_codec = Counter[str]()
    for _, _, records, producer, _, codec in found:
        per_codec[codec] += int(records) if producer != "-1" else 0
    assert per_codec["gzip"] == per_codec["snappy"] == 350


def test_the_records_of_one_log(busy: Broker, tools: ToolServer) -> None:
    files = sorted((busy.data / "codec-gzip-1").glob("*.log"))
    said = dump(tools, files, "--print-data-log")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", said, re.MULTILINE)]
    assert offsets == list(range(175))
    assert "headerKeys: [trace,trace,ü]" in dump(
        tools, sorted((busy.data / "codec-gzip-0").glob("*.log")), "--print-data-log"
    )


def test_the_groups_in_the_offsets_topic(busy: Broker, tools: ToolServer) -> None:
    files = sorted(busy.data.glob("__consumer_offsets-*/*.log"))
    said = dump(tools, files, "--offsets-decoder")
    for group in range(6):
        assert f'"group":"group-{group}"' in said
    assert '"topic":"segments"' in said
    assert '"metadata":"note 3"' in said
    assert '"offset":103' in said
    assert "Error" not in said


def test_producer_snapshots(busy: Broker, tools: ToolServer) -> None:
    newest = sorted((busy.data / "segments-0").glob("*.snapshot"))[-1]
    said = dump(tools, [newest])
    found = re.search(
        r"producerId: (\d+) producerEpoch: 0 .*firstSequence: (\d+) lastSequence: (\d+) "
        r"lastOffset: (\d+) ",
        said,
    )
    assert found is not None, said
    assert int(found[4]) == int(newest.stem) - 1
    assert found[3] == found[4], "one producer wrote the log, beginning with sequence number 0"


def test_after_kill_and_recovery_and_after_a_clean_end(
    workshop: Workshop, tools: ToolServer
) -> None:
    broker = workshop.broker(None, *SETTINGS)
    tools.run("Workload", broker.address, *TOPICS, "plain").succeeded()
    before = batches(check_directory(tools, broker.data, is_closed=False))
    broker.kill()

    recovered = workshop.broker(broker.data, *SETTINGS)
    assert recovered.report["was_clean"] is False
    assert batches(check_directory(tools, broker.data, is_closed=False)) == before
    tools.run("Workload", recovered.address, "more").succeeded()
    after = batches(check_directory(tools, broker.data, is_closed=False))
    assert {batch[4] for batch in after} > {batch[4] for batch in before}, "a new leader epoch"
    assert recovered.stop()
    assert batches(check_directory(tools, broker.data, is_closed=True)) == after
