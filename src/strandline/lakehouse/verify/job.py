"""The proof, as a Spark job: each offset of the log below a table's frontier is in it exactly once.

Two things are proven apart. The commits' ranges follow one another without gap or repetition
(`coverage.py`). And of each offset, the log's records and the table's rows are counted and held
against each other: a record is a row, or a late row, or a dead letter, once. What the log no longer
has can only be proven to be in the table once. A table that is upserted has a row per key, so
there keys are compared (`upserted.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from strandline.client.admin import Admin
from strandline.client.admin_configs import Resource
from strandline.client.clock import SystemClock
from strandline.client.cluster import ClusterClient
from strandline.lakehouse.pipeline import log_facts
from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.pipeline.start_offsets import check_same_logs
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import DEAD_LETTERS, DROPPED, EXPIRED, LATE
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.presence import absence, absent_files
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.verify.compared import Compared
from strandline.lakehouse.verify.coverage import Coverage, Span, Step, coverage
from strandline.lakehouse.verify.places import logged
from strandline.lakehouse.verify.report import EXPLODED, Example, PartitionReport, Report, Verdict
from strandline.lakehouse.verify.standing import Held, keep, kept, noted, open_since
from strandline.lakehouse.verify.upserted import judge_keys
from strandline.types import TopicPartition

EXAMPLES: Final = 20
_LOOKS: Final = 100
_POLICY: Final = "cleanup.policy"
_PLACES: Final[Mapping[str, str | None]] = {
    "rows": None,
    "late": LATE,
    "dead_letters": DEAD_LETTERS,
    "dropped": DROPPED,
    "expired": EXPIRED,
}
_RECORD: Final = ("topic", "partition", "offset")


def verify(
    spark: SparkSession, store: TableStore, settings: ReadSettings, *, everything: bool = False
) -> Report:
    """Prove it. Raises `PipelineError`, `ReadError`, `TableError` when it cannot even be tried.

    The table may be written to meanwhile: then the proof is of a commit in between. What the last
    proof has shown is not compared again, unless `everything` is to be; a table that is upserted is
    always compared as a whole.
    """
    state, named, held = _at_one_commit(store)
    files, absent = _there(named)
    facts = log_facts.ask(settings, store.spec.topics, state.frontiers)
    check_same_logs(state.frontiers, facts)
    compacted = _compacted(settings, store.spec.topics)
    appends = store.spec.mode == "append"
    before = kept(store.spec) if appends and not everything else None
    left = None if before is None else open_since(before, state, named, held)
    compared = Compared(spark, store.spec, state, files, facts, compacted, settings, left)
    steps, lost = _recorded_by_commits(store, state.sequence)
    covered = coverage(steps)
    report = Report(
        store.spec.name,
        state.sequence,
        store.spec.mode,
        {
            partition: PartitionReport(
                frontier.start if left is None else _first(left.spans[partition], frontier.end),
                frontier.end,
                facts.earliest[partition],
                lost=lost.get(partition, []),
            )
            for partition, frontier in state.frontiers.items()
        },
        wrong=absent + _wrong_commits(covered, state),
        since=None if left is None else left.standing.sequence,
        since_ms=None if left is None else left.standing.at_ms,
    )
    if state.frontiers:
        judged = (_judge_offsets if appends else judge_keys)(compared).persist()
        try:
            _fill(report, judged)
        finally:
            judged.unpersist()
    if appends and report.is_good:
        keep(store.spec, noted(state, held, now_ms=SystemClock().wall_ms()))
    return report


def _first(spans: Sequence[Span], end: int) -> int:
    return spans[0].start if spans else end


def _judge_offsets(compared: Compared) -> DataFrame:
    """topic, partition, offset, in which places it is how often, and verdict, of every offset.

    Where a transform may give several rows for a record, it is the record that has a place, and
    `row` says that its rows are all there.
    """
    spark = compared.spark
    log = logged(spark, compared.ranges(), compared.settings, with_keys=False)
    nothing = f.lit(None).cast("long").alias("row")
    seen = log.select(*_RECORD, f.lit("log").alias("place"), nothing)
    for place, side in _PLACES.items():
        if not compared.has(side):
            continue
        rows = compared.held(side)
        seen = seen.unionByName(rows.select(*_RECORD, f.lit(place).alias("place"), "row"))
    counted = seen.groupBy(*_RECORD).agg(
        *(f.count(f.when(f.col("place") == each, 1)).alias(each) for each in ("log", *_PLACES)),
        # Of a record that became several rows, all numbers from 0 on must be there, each once.
        (f.coalesce(f.max("row"), f.lit(0)) + 1).alias("numbers"),
        f.count_distinct("row").alias("different"),
    )
    facts = f.broadcast(compared.facts_frame())
    verdict = _verdict(explodes=compared.spec.explode)
    return counted.join(facts, ["topic", "partition"], "left").withColumn("verdict", verdict)


def _verdict(*, explodes: bool) -> Column:
    """Of one offset, from how often it is where.

    Where a record `explodes`, its rows may be in several files, which get too old one by one: then
    each note that some of them expired counts for the record, and others may be there still.
    """
    rows = f.col("rows") + f.col("late")
    expired = f.col("expired")
    beside = f.col("dead_letters") + f.col("dropped")
    is_partly_gone = f.lit(explodes) & (expired > 0)
    in_table = rows + beside + expired
    is_twice = (beside + expired > 1) | ((rows > 0) & (beside + expired > 0))
    if explodes:
        is_twice = (beside > 1) | ((rows + expired > 0) & (beside > 0))
    is_inside = (f.col("offset") >= f.col("start")) & (f.col("offset") < f.col("end"))
    return (
        f.when(~f.coalesce(is_inside, f.lit(False)), Verdict.OUTSIDE.value)
        .when(is_twice, Verdict.DOUBLED.value)
        .when(rows > f.greatest("different", f.lit(1)), Verdict.DOUBLED.value)
        .when((rows > 0) & (rows < f.col("numbers")) & ~is_partly_gone, Verdict.MISSING.value)
        .when(in_table == 0, Verdict.MISSING.value)
        .when(f.col("log") > 0, Verdict.GOOD.value)
        .when(f.col("offset") < f.col("log_start"), Verdict.UNPROVABLE.value)
        .when(f.col("compacted"), Verdict.COMPACTED.value)
        .otherwise(Verdict.UNEXPLAINED.value)
    )


def _fill(report: Report, judged: DataFrame) -> None:
    """Count verdicts, and places, by partition."""
    sums = [f.sum(place).alias(place) for place in _PLACES]
    sums.append(f.sum(f.greatest(f.col("rows") + f.col("late") - 1, f.lit(0))).alias(EXPLODED))
    by_verdict = judged.groupBy("topic", "partition", "verdict")
    for row in by_verdict.agg(f.count("*").alias("n"), *sums).collect():
        partition = TopicPartition(row.topic, row.partition)
        each = report.partitions.setdefault(partition, PartitionReport(0, 0, 0))
        each.counts[Verdict(row.verdict)] = row.n
        for place in (*_PLACES, EXPLODED):
            each.places[place] = each.places.get(place, 0) + row[place]
    if not report.is_good:
        report.examples += _examples(judged)


def _examples(judged: DataFrame) -> list[Example]:
    """Some offsets that are not as they should be."""
    wrong = [each.value for each in Verdict if each.is_wrong]
    rows = judged.where(f.col("verdict").isin(wrong)).orderBy(*_RECORD)
    return [
        Example(TopicPartition(row.topic, row.partition), row.offset, Verdict(row.verdict))
        for row in rows.limit(EXAMPLES).collect()
    ]


def _at_one_commit(
    store: TableStore,
) -> tuple[TableState, dict[str | None, list[DataFile]], dict[str | None, dict[str, Held]]]:
    """The table's state, its files and the offsets in these, of one commit.

    Others may follow it meanwhile.
    """
    for _ in range(_LOOKS):
        state = store.state()
        files = {side: store.files(side) for side in _PLACES.values()}
        bounds = {side: store.offsets_in(side) for side in files}
        if store.state().version == state.version:
            held = {
                side: {each.path.name: bounds[side].get(each.path) for each in named}
                for side, named in files.items()
            }
            return state, files, held
    raise PipelineFailed(f"Table '{store.spec.name}' changes faster than it can be looked at.")


def _there(
    files: Mapping[str | None, list[DataFile]],
) -> tuple[dict[str | None, list[DataFile]], list[str]]:
    """The files that can be read, and sentences about those that are not what they should be."""
    lines = []
    there = {}
    for side, named in files.items():
        absent = absent_files(named)
        gone = {each.file.path for each in absent if not each.is_readable()}
        there[side] = [each for each in named if each.path not in gone]
        if absent:
            lines.append(f"{side or 'rows'}: {absence(absent, len(named))}")
    return there, lines


def _recorded_by_commits(
    store: TableStore, last: int
) -> tuple[dict[TopicPartition, list[Step]], dict[TopicPartition, list[Span]]]:
    """The ranges of all commits up to `last` by partition, the oldest first, and their losses."""
    steps: dict[TopicPartition, list[Step]] = {}
    lost: dict[TopicPartition, list[Span]] = {}
    for record in reversed(store.history()):
        if record.sequence > last:
            break
        for each in record.ranges:
            step = Step(record.sequence, Span(each.start, each.end))
            steps.setdefault(each.topic_partition, []).append(step)
        for each in record.lost:
            lost.setdefault(each.topic_partition, []).append(Span(each.start, each.end))
    return steps, lost


def _wrong_commits(covered: Mapping[TopicPartition, Coverage], state: TableState) -> list[str]:
    wrong = [sentence for _, each in sorted(covered.items()) for sentence in each.wrong]
    for partition, frontier in sorted(state.frontiers.items()):
        known = covered.get(partition)
        if known is not None and known.end != frontier.end:
            wrong.append(
                f"{partition}: the commits end at offset {known.end}, but the table's frontier "
                f"is {frontier.end}."
            )
    return wrong


def _compacted(settings: ReadSettings, topics: Iterable[str]) -> frozenset[str]:
    """Those of the topics whose log drops records that have a newer one."""
    with ClusterClient(settings.bootstrap, settings.client) as client:
        configs = Admin(client).configs
        return frozenset(
            topic
            for topic in topics
            for entry in configs.describe(Resource.topic(topic), [_POLICY])
            if "compact" in (entry.value or "")
        )
