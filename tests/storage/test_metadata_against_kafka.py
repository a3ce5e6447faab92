"""Kafka's own classes read what we write, write what we read, and judge producers as we do.

Needs Kafka's jars: set STRANDLINE_KAFKA_JARS to their directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeAlias
from uuid import UUID

import pytest

from strandline.errors import ProtocolError
from strandline.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.clean_shutdown import CleanShutdown, take_marker, write_marker
from strandline.storage.end_marker import EndMarker
from strandline.storage.files import join
from strandline.storage.kafka_uuid import format_uuid
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.meta_properties import claim_directory, read_meta_properties
from strandline.storage.origin import AppendOrigin
from strandline.storage.partition_metadata import read_topic_id, write_topic_id
from strandline.storage.producer_entry import ProducerEntry, first_sequence_of
from strandline.storage.producer_snapshot import ProducerSnapshots
from strandline.storage.producer_state import ProducerStates
from strandline.storage.real_files import RealFiles
from strandline.storage.transaction_index import AbortedTransaction, TransactionIndex
from strandline.types import (
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

Oracle: TypeAlias = Callable[[list[str]], list[str]]

JARS = os.environ.get("STRANDLINE_KAFKA_JARS")
JAVA = shutil.which("java")
SOURCE = Path(__file__).with_name("MetadataOracle.java")
DAY_MS = 86_400_000

pytestmark = [
    pytest.mark.skipif(JARS is None, reason="STRANDLINE_KAFKA_JARS does not name Kafka's jars"),
    pytest.mark.skipif(JAVA is None, reason="there is no java on the path"),
]


@pytest.fixture(scope="module")
def ask_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """One process for all tests of the file: most of what an answer costs is to start it."""
    errors = tmp_path_factory.mktemp("oracle") / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [str(JAVA), "-cp", f"{JARS}/*", str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as oracle,
    ):

        def ask(commands: list[str]) -> list[str]:
            assert oracle.stdin is not None
            assert oracle.stdout is not None
            oracle.stdin.write("\n".join((*commands, "", "")))
            oracle.stdin.flush()
            answers = [oracle.stdout.readline() for _ in commands]
            assert all(answers), errors.read_text()[-4000:]
            return [answer.removesuffix("\n") for answer in answers]

        yield ask
    assert oracle.returncode == 0, errors.read_text()[-4000:]


def test_files_cross_in_both_directions(ask_kafka: Oracle, tmp_path: Path) -> None:
    files, ours, theirs = RealFiles(), str(tmp_path / "ours"), str(tmp_path / "theirs")
    files.make_directory(ours)
    files.make_directory(theirs)
    topic_id = UUID("fbefd4aa-1f2e-4d3c-8b5a-69788a9b0c1d")
    table = {
        TopicPartition("orders", 0): Offset(1287),
        TopicPartition("a-b.c_d", 11): Offset(2**40),
    }
    aborted = [
        AbortedTransaction(ProducerId(7), Offset(0), Offset(10), Offset(5)),
        AbortedTransaction(ProducerId(9), Offset(5), Offset(20), Offset(21)),
    ]
    OffsetCheckpoint(files, join(ours, "offsets")).write(table)
    write_topic_id(files, ours, topic_id)
    shutdown = CleanShutdown(4711, ((4711, 4711), (4720, 4722)), 17, frozenset({(topic_id, 3)}))
    write_marker(files, ours, shutdown)
    claim_directory(files, ours, BrokerId(3), "N1-cluster=:x")
    index = TransactionIndex(files, join(ours, "i.txnindex"))
    for entry in aborted:
        index.append(entry)
    epochs = LeaderEpochs(files, join(ours, "leader-epoch-checkpoint"))
    epochs.assign(LeaderEpoch(0), Offset(0))
    epochs.assign(LeaderEpoch(4), Offset(77))

    id_text = format_uuid(topic_id)
    append = [
        f"append-abort {theirs}/i.txnindex {e.producer_id} {e.first_offset} {e.last_offset} "
        f"{e.last_stable_offset}"
        for e in aborted
    ]
    answers = ask_kafka(
        [
            f"read-offsets {ours}/offsets",
            f"read-topic-id {ours}/partition.metadata",
            f"read-marker {ours}",
            f"read-meta {ours}/meta.properties",
            f"read-aborts {ours}/i.txnindex 0 100",
            f"read-aborts {ours}/i.txnindex 0 11",
            f"epochs-start {ours}/leader-epoch-checkpoint",
            f"write-offsets {theirs}/offsets orders 0 1287 a-b.c_d 11 {2**40}",
            f"write-topic-id {theirs}/partition.metadata {id_text}",
            f"write-marker {theirs} 4711",
            f"write-meta {theirs}/meta.properties 1 3 N1-cluster=:x {id_text}",
            *append,
            f"epochs-start {theirs}/leader-epoch-checkpoint",
            "assign 0 0",
            "assign 4 77",
        ]
    )

    assert answers[:7] == [
        f"{{a-b.c_d-11={2**40}, orders-0=1287}}",
        id_text,
        "4711",
        "MetaProperties(version=0, clusterId=N1-cluster=:x, nodeId=3)",
        "open 7:0-10:5 9:5-20:21",
        "complete 7:0-10:5 9:5-20:21",
        "epochs 0@0 4@77",
    ]
    assert OffsetCheckpoint(files, join(theirs, "offsets")).read() == table
    assert read_topic_id(files, theirs) == topic_id
    for name in ("partition.metadata", "i.txnindex", "leader-epoch-checkpoint"):
        assert files.read_bytes(join(theirs, name)) == files.read_bytes(join(ours, name)), name
    taken = take_marker(files, theirs)
    assert taken is not None
    assert taken.broker_epoch == 4711
    meta = read_meta_properties(files, theirs)
    assert meta is not None
    assert (meta.version, meta.broker_id, meta.cluster_id) == (1, 3, "N1-cluster=:x")
    assert claim_directory(files, theirs, BrokerId(3), "N1-cluster=:x") == meta
    assert list(TransactionIndex(files, join(theirs, "i.txnindex")).entries()) == aborted
    loaded = LeaderEpochs.load(files, join(theirs, "leader-epoch-checkpoint"))
    assert loaded.entries == epochs.entries


@pytest.mark.parametrize("seed", [1, 2])
def test_leader_epochs_answer_as_kafkas_do(ask_kafka: Oracle, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    epochs = LeaderEpochs(RealFiles(), str(tmp_path / "ours"))
    commands, expected = [f"epochs-start {tmp_path}/p/leader-epoch-checkpoint"], ["epochs"]
    (tmp_path / "p").mkdir()
    for _ in range(600):
        offset = Offset(random.randint(0, 60))
        epoch = LeaderEpoch(random.randint(0, 12))
        match random.choice(["assign", "assign", "cut-end", "cut-start", "end-for", "epoch-of"]):
            case "assign":
                epochs.assign(epoch, offset)
                commands.append(f"assign {epoch} {offset}")
            case "cut-end":
                at = Offset(random.randint(-1, 80))
                epochs.truncate_from_end(at)
                commands.append(f"cut-end {at}")
            case "cut-start":
                at = Offset(offset // 4)
                epochs.truncate_from_start(at)
                commands.append(f"cut-start {at}")
            case "end-for":
                asked = LeaderEpoch(epoch - 1)
                commands.append(f"end-for {asked} 99")
                expected.append("{} {}".format(*epochs.end_offset_for(asked, Offset(99))))
                continue
            case _:
                commands.append(f"epoch-of {offset}")
                expected.append(str(epochs.epoch_for_offset(offset)))
                continue
        entries = "".join(f" {e.epoch}@{e.start_offset}" for e in epochs.entries)
        expected.append(f"epochs{entries}")
    assert ask_kafka(commands) == expected


def header_of(
    producer: int, epoch: int, sequence: int, offset: int, delta: int, time: int, bits: int
) -> BatchHeader:
    return BatchHeader(
        Offset(offset),
        100,
        LeaderEpoch(0),
        2,
        0,
        bits,
        delta,
        time,
        time,
        ProducerId(producer),
        ProducerEpoch(epoch),
        sequence,
        delta + 1,
    )


class Judge:
    """Our producer states, asked in the words of the oracle."""

    def __init__(self, directory: str) -> None:
        self.states = ProducerStates(RealFiles(), directory, expiration_ms=DAY_MS)

    def batch(self, origin: AppendOrigin, header: BatchHeader) -> str:
        try:
            duplicate = self.states.check(header, origin)
        except ProtocolError as refusal:
            return f"refused {int(refusal.code)}"
        if duplicate is not None:
            return (
                f"duplicate {duplicate.first_offset} {duplicate.last_offset} {duplicate.timestamp}"
            )
        self.states.update(header, header.base_offset, header.max_timestamp)
        return "ok"

    def marker(
        self, origin: AppendOrigin, header: BatchHeader, marker: EndMarker, version: int
    ) -> str:
        try:
            self.states.check_marker(header, marker, origin, version)
        except ProtocolError as refusal:
            return f"refused {int(refusal.code)}"
        completed = self.states.update_marker(header, marker, header.base_offset)
        if completed is None:
            return "ok"
        stable = self.states.transactions.last_stable_offset_after(completed)
        self.states.transactions.complete(completed)
        return f"completed {completed.first_offset} {completed.last_offset} {stable}"


def describe(entry: ProducerEntry) -> str:
    batches = "".join(
        f"{first_sequence_of(batch)}-{batch[0]}@{batch[1] - batch[2]}-{batch[1]}"
        for batch in entry.batches
    )
    return (
        f"{entry.producer_id}:{entry.epoch}:{batches}:{entry.last_timestamp}:"
        f"{entry.coordinator_epoch}:{entry.transaction_first_offset}"
    )


@pytest.mark.parametrize("seed", range(4))
def test_producers_are_judged_as_kafka_judges_them(
    ask_kafka: Oracle, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    kafka_directory, our_directory = tmp_path / "kafka", tmp_path / "ours"
    kafka_directory.mkdir()
    our_directory.mkdir()
    judge = Judge(str(our_directory))
    commands, expected = [f"producers-start {kafka_directory}"], ["ok"]
    offset = 0
    for step in range(1500):
        if step % 10 == 0:
            watermark = Offset(random.randint(max(0, offset - 20), offset))
            judge.states.transactions.acknowledge_to(watermark)
            commands += [f"watermark {watermark}", "unstable"]
            unstable = judge.states.transactions.first_unstable_offset
            expected += ["ok", "none" if unstable is None else str(unstable)]
        draw_marker = random.random() < 0.15
        command, answer = (
            draw_a_marker(random, judge, offset)
            if draw_marker
            else draw_a_batch(random, judge, offset)
        )
        commands.append(command)
        expected.append(answer)
        judge.states.check_invariants()
        offset += 8
    name = f"{offset:020d}.snapshot"
    commands += [f"snapshot {offset}", f"read-snapshot {our_directory}/{name}"]
    assert judge.states.take_snapshot(Offset(offset)) == str(our_directory / name)
    ours = ProducerSnapshots(RealFiles(), str(our_directory))
    expected += [name, " ".join(describe(entry) for entry in ours.read(Offset(offset)))]

    assert ask_kafka(commands) == expected
    theirs = ProducerSnapshots(RealFiles(), str(kafka_directory)).read(Offset(offset))
    assert sorted(map(describe, theirs)) == sorted(map(describe, ours.read(Offset(offset))))
    assert {answer.split()[0] for answer in expected} >= {"ok", "duplicate", "completed"}
    assert {"refused 45", "refused 47", "refused 48", "refused 52"} <= set(expected)


def draw_a_batch(random: Random, judge: Judge, offset: int) -> tuple[str, str]:
    producer = ProducerId(random.randint(1, 5))
    entry = judge.states.active.get(producer)
    epoch = entry.epoch if entry else random.randint(0, 3)
    sequence = entry.next_sequence if entry else random.choice([0, 5, 2**31 - 3])
    delta = random.randint(0, 4)
    is_open = entry is not None and entry.has_open_transaction
    transactional = is_open if random.random() < 0.8 else random.random() < 0.6
    origin = random.choice([AppendOrigin.CLIENT] * 6 + list(AppendOrigin))
    match random.randint(0, 9):
        case 0 | 1 if entry is not None and entry.batches:
            again = random.choice(list(entry.batches))
            sequence, delta = first_sequence_of(again), again[2]
        case 2:
            sequence = (sequence + random.choice([-1, 1, 2])) & (2**31 - 1)
        case 3:
            epoch, sequence = epoch + 1, random.choice([0, 0, sequence])
        case 4:
            epoch = max(0, epoch - 1)
        case 5:
            epoch, sequence = epoch + 1, 2**31 - 1 if entry is None else 0
        case _:
            pass
    if origin is AppendOrigin.COORDINATOR and random.random() < 0.5:
        sequence = -1
    if origin is AppendOrigin.REPLICATION:
        transactional = is_open or transactional  # Kafka refuses a leader's log there; we do not.
    bits = TRANSACTIONAL_BIT if transactional else 0
    time = 1_000_000 + offset
    header = header_of(producer, epoch, sequence, offset, delta, time, bits)
    command = (
        f"batch {origin.name} {producer} {epoch} {sequence} {header.last_sequence} {offset} "
        f"{delta} {time} {int(transactional)}"
    )
    return command, judge.batch(origin, header)


def draw_a_marker(random: Random, judge: Judge, offset: int) -> tuple[str, str]:
    producer = ProducerId(random.randint(1, 5))
    entry = judge.states.active.get(producer)
    epoch = max(0, (entry.epoch if entry else 0) + random.choice([-1, 0, 0, 0, 1, 1]))
    coordinator_epoch = max(
        0, (entry.coordinator_epoch if entry else 0) + random.choice([-1, 0, 0, 0, 1])
    )
    is_abort = random.random() < 0.5
    version = random.choice([0, 1, 2])
    origin = random.choice([AppendOrigin.COORDINATOR] * 3 + [AppendOrigin.REPLICATION])
    time = 2_000_000 + offset
    header = header_of(producer, epoch, -1, offset, 0, time, TRANSACTIONAL_BIT | CONTROL_BIT)
    command = (
        f"marker {origin.name} {producer} {epoch} {coordinator_epoch} {offset} {time} "
        f"{int(is_abort)} {version}"
    )
    return command, judge.marker(
        origin, header, EndMarker(is_abort, coordinator_epoch, time), version
    )
