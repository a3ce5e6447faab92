"""`strandline audit` without Spark: what it says of directories that are in use."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.real_files import RealFiles
from strandline.types import TopicPartition
from tests.cli.conftest import COMMAND, DEADLINE_S, Ended, Serving, environment, run_here
from tests.storage.verify.replicas import ORDERS, Replicas, batch, orders

Run = Callable[..., Ended]


def test_partitions_of_a_running_broker_are_no_notes_while_all_of_them_is_judged(
    serve: Callable[..., Serving], tmp_path: Path
) -> None:
    soon = ("--set", "replica.high.watermark.checkpoint.interval.ms=50")
    broker = serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", *soon)
    created = run_here(["topics", "create", "wide", "--partitions", "40"], broker.address)
    assert created.code == 0
    subprocess.run(
        [*COMMAND, "produce", "wide", "--partition", "7"],
        input=b"one\n",
        env=environment(broker.address),
        check=True,
        timeout=DEADLINE_S,
    )
    table = OffsetCheckpoint(RealFiles(), str(tmp_path / "replication-offset-checkpoint"))
    wide = [TopicPartition("wide", number) for number in range(40)]
    marks = {at: int(at.partition == 7) for at in wide}
    while {at: table.read().get(at) for at in wide} != marks:
        assert broker.process.poll() is None
    ended = run_here(["audit", "--log-dirs", str(tmp_path), "--no-spark"])
    assert ended.code == 0
    assert [line for line in ended.out.splitlines() if line.startswith("note")] == []
    assert ended.out.endswith("40 partitions in 1 log directory: no findings.\n")


def test_what_is_true_of_many_partitions_is_said_once(tmp_path: Path, alone: Run) -> None:
    replicas = Replicas(tmp_path / "data")
    others = [TopicPartition("others", number) for number in range(4)]
    replicas.write(ORDERS, orders())
    for at in others:
        replicas.write(at, [batch(0), batch(3)], brokers=[2])
    replicas.finish(clean=False, high_watermarks={1: 3, 2: 3, 3: 180})
    ended = alone("audit", "--log-dirs", str(replicas.home), "--no-spark")
    assert ended.code == 0
    judged = (
        "is running, or was not stopped cleanly: of its replica only what lies below the "
        "checkpointed high watermark was judged."
    )
    assert [line for line in ended.out.splitlines() if line.startswith("note")] == [
        f"note  orders-0: Broker 1 {judged}",
        f"note  orders-0, others-0, others-1 and 2 more: Broker 2 {judged}",
    ]
    documents = alone("audit", "--log-dirs", str(replicas.home), "--no-spark", "--json").json
    assert [each["notes"] for each in documents["partitions"]] == [
        [f"Broker 1 {judged}", f"Broker 2 {judged}"],
        *[[f"Broker 2 {judged}"]] * 4,
    ]


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path / "data")
    for number in range(2000):
        (tmp_path / "data" / "broker-1" / f"{'t' * 200}-{number}").mkdir()
    replicas.finish()
    with subprocess.Popen(
        [*COMMAND, "audit", "--log-dirs", str(replicas.home), "--no-spark"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"PARTITION")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE_S) == 0
