"""Rows, versions, files and marks that are too old go, as the definition says; and what says so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from strandline.cli.main import cli
from strandline.errors import InvalidSetting
from strandline.lakehouse.pipeline.events import Event, Notice
from strandline.lakehouse.pipeline.keeping import EVERY_S, Keeper
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.tables import (
    delta,
    delta_upkeep,
    expiring,
    iceberg_upkeep,
    marks,
    settling,
)
from strandline.lakehouse.tables.backend import Change
from strandline.lakehouse.tables.committing import REPLAYED
from strandline.lakehouse.tables.definition import EXPIRED
from strandline.lakehouse.tables.delta_upkeep import FOR_GOOD_MS
from strandline.lakehouse.tables.expiring import Expired
from strandline.lakehouse.tables.explaining import explain
from strandline.lakehouse.tables.history import describe
from strandline.lakehouse.tables.iceberg import IcebergSnapshot
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.tables.writing import BatchWriter
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TableWorld, kafka_rows

DAY = 86_400_000
ONE_FORMAT = pytest.mark.parametrize("table_format", ["delta"], indirect=True)
"""Where the format makes no difference."""
NOW = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp() * 1000)


def ago(days: float) -> str:
    return (datetime.fromtimestamp(NOW / 1000, UTC) - timedelta(days=days)).isoformat()


def row(days: float, **more: Any) -> dict[str, Any]:
    return {"at": ago(days), **more}


def aged(make_table: MakeTable, **fields: Any) -> TableWorld:
    """Files with rows of before, of around and of after the limit, 10 days."""
    table = make_table(event_time="at", expire_rows_ms=10 * DAY, **fields)
    table.batch("q", 0, [row(30), row(11)])
    table.batch("q", 1, [row(30), row(10.5), row(9), row(2)], start=2)
    table.batch("q", 2, [row(10.5), row(9)], start=6)
    table.batch("q", 3, [row(1)], start=8)
    return table


def expired(table: TableWorld) -> list[tuple[int, int]]:
    """The runs of offsets in the side table."""
    rows = table.store.dataset(EXPIRED).to_table().to_pylist()
    return sorted((each["kafka_offset"], each["kafka_offset_end"]) for each in rows)


def test_rows_that_are_too_old_go(make_table: MakeTable) -> None:
    """Whole files, and those rows of others that outlived their time by a tenth of it."""
    table = aged(make_table)
    state = table.store.state()
    done = table.store.expire(now_ms=NOW)
    assert (done.records, done.whole_files, done.rewritten_files) == (4, 1, 1)
    assert table.offsets() == [4, 5, 6, 7, 8], "6 is not a tenth too old, and its file has a 7"
    assert expired(table) == [(0, 2), (2, 4)] or expired(table) == [(0, 4)]
    assert table.store.history()[0].kind == "expiry"
    assert table.store.expire(now_ms=NOW).records == 0
    assert table.reopen().state().frontiers == state.frontiers
    assert table.batch("q", 3, [row(1)], start=8).outcome == REPLAYED
    assert table.store.expire(now_ms=NOW + DAY).records == 1, "of 6 and 7, the first is due"


def test_without_an_event_time_the_records_own_counts(make_table: MakeTable) -> None:
    """Of letters always; of rows where the event has none."""
    table = make_table(event_time="at", expire_rows_ms=DAY)
    table.batch("q", 0, [{"n": 1}, b"bad", row(0)])  # records of 1970
    assert table.store.expire(now_ms=NOW).records == 2
    assert (table.offsets(), table.letters()) == ([2], [])
    assert expired(table) == [(0, 2)]


def test_rows_of_many_columns_go_as_well(make_table: MakeTable) -> None:
    """By default, Delta's readers look at the statistics of the first 32 columns only."""
    columns = {f"c{number:02}": "long" for number in range(40)}
    table = make_table(columns={**columns, "at": "timestamp"}, event_time="at", expire_rows_ms=DAY)
    table.batch("q", 0, [row(2), row(2)])
    table.batch("q", 1, [row(0)], start=2)
    assert table.store.expire(now_ms=NOW).records == 2
    assert table.offsets() == [2]


@ONE_FORMAT
def test_a_table_of_many_columns_that_an_earlier_release_made_is_mended(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its log is shortened next."""
    columns = {f"c{number:02}": "long" for number in range(40)}
    with monkeypatch.context() as earlier:
        earlier.setattr(delta, "upkeep_properties", lambda *_, **__: {})
        table = make_table(columns=columns, expire_rows_ms=DAY)
        table.batch("q", 0, [{"c01": 1}])
        table.store.checkpoint()
    store = table.reopen()
    assert store.expire(now_ms=NOW).records == 0
    store.checkpoint()
    assert store.expire(now_ms=NOW).records == 1


@ONE_FORMAT
def test_what_was_lost_stays_on_record(make_table: MakeTable) -> None:
    table = make_table(expire_rows_ms=DAY)
    table.batch("q", 0, [b"bad"])
    table.store.declare_lost([OffsetRange("flights", 0, 1, 5)])
    table.store.compact(min_files=2)
    assert table.store.expire(now_ms=NOW).rewritten_files == 1
    assert table.letters() == [1]
    assert table.store.expire(now_ms=NOW).records == 0


@ONE_FORMAT
def test_a_table_of_keys_forgets_old_keys(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", event_time="at", expire_rows_ms=10 * DAY, buckets=1)
    keys = [b"a", b"b", b"c"]
    table.batch("q", 0, [row(30), row(20), row(1)], keys=keys)
    assert table.store.expire(now_ms=NOW).records == 2
    assert table.offsets() == [2]
    table.batch("q", 1, [row(0)], start=3, keys=[b"a"])
    assert table.offsets() == [2, 3]


@ONE_FORMAT
def test_days_are_over_with_their_last_moment(make_table: MakeTable) -> None:
    table = make_table(event_time="day", columns={"day": "date"}, expire_rows_ms=10 * DAY)
    days = [ago(each)[:10] for each in (12, 11, 10)]
    for number, day in enumerate(days):
        table.batch("q", number, [{"day": day}], start=number)
    assert table.store.expire(now_ms=NOW).records == 2
    assert table.offsets() == [2]


def test_a_day_is_over_with_its_last_moment_in_files_with_later_days_too(
    make_table: MakeTable,
) -> None:
    """Also where a day is longer than the tenth by which rows may outlive their time."""
    table = make_table(event_time="day", columns={"day": "date"}, expire_rows_ms=2 * DAY)
    table.batch("q", 0, [{"day": ago(2)[:10]}, {"day": ago(0)[:10]}])
    assert table.store.expire(now_ms=NOW + DAY // 2) == Expired()
    assert table.offsets() == [0, 1]
    [fate] = [each for each in explain(table.store, now_ms=NOW) if each.what == "files of rows"]
    assert fate.fate == "waits"
    assert fate.at_ms == NOW + DAY + DAY // 5, "the day, and a tenth of two days"
    assert table.store.expire(now_ms=NOW + 2 * DAY).records == 1
    assert table.offsets() == [1]


def test_a_file_of_which_no_row_goes_is_left_as_it_is(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bounds cannot say it: the oldest record has a young event, the other row has none."""
    monkeypatch.setattr(expiring, "_ROWS_PER_COMMIT", 1)
    table = make_table(event_time="at", expire_rows_ms=DAY)
    rows = pa.Table.from_batches([kafka_rows([row(0), {"n": 1}])])  # the first, of 1970
    times = pa.array([0, NOW * 1000], rows.schema.field("timestamp").type)
    rows = rows.set_column(rows.schema.names.index("timestamp"), "timestamp", times)
    writer = BatchWriter(table.spec, table.store.state(), "0")
    writer.write(rows.combine_chunks().to_batches()[0])
    identity = BatchIdentity("q", 0, (OffsetRange("flights", 0, 0, 2),))
    table.store.commit(identity, [writer.finish()])
    version = table.store.state().version
    assert table.store.expire(now_ms=NOW) == Expired()
    assert table.store.state().version == version
    [fate] = [each for each in explain(table.store, now_ms=NOW) if each.what == "files of rows"]
    assert (fate.fate, fate.at_ms) == ("waits", None)
    table.batch("q", 1, [row(30), row(0)], start=2)
    assert table.store.expire(now_ms=NOW).records == 1, "the next portion has something"
    assert table.offsets() == [0, 1, 3]
    assert expired(table) == [(2, 3)]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_table_that_owes_a_change_that_is_none_goes_on(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """As an expiry of an earlier version left it; for longer than its history reaches back."""
    monkeypatch.setattr(iceberg_upkeep, "SNAPSHOTS_KEPT", 2)
    monkeypatch.setattr(settling, "_RECENT", 2)
    table = make_table(event_time="at", expire_rows_ms=DAY)
    table.batch("q", 0, [row(2), b"bad"])
    if is_there:
        assert table.store.expire(now_ms=NOW).records == 2
    snapshot = table.store.backend.load()
    sequence = (snapshot.mark(marks.SEQUENCE) or 0) + 1
    due = {marks.SEQUENCE: sequence, marks.side_mark(EXPIRED): sequence}
    said = describe(sequence=sequence, kind="expiry", adds=(), removes=(), sides={})
    table.store.backend.commit(snapshot, Change(marks=due, metadata=said))

    store = table.reopen()
    store.settle()
    assert store.dataset(EXPIRED).schema.names[-1] == "kafka_offset_end"
    for number in range(1, 5):
        table.batch("q", number, [row(0)], start=number + 1)
    store.checkpoint()
    store = table.reopen()
    assert store.compact(min_files=2).files_before
    assert store.expire(now_ms=NOW + 3 * DAY).records == (4 if is_there else 6)
    assert [end for _, end in expired(table)][-1] == 6


@ONE_FORMAT
def test_much_goes_in_portions(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "_ROWS_PER_COMMIT", 1)
    table = aged(make_table)
    assert table.store.expire(now_ms=NOW).records == 4
    assert [each.kind for each in table.store.history()].count("expiry") == 2


@ONE_FORMAT
def test_files_that_are_replaced_meanwhile_are_left_for_the_next_time(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = aged(make_table)
    other = open_store(table.spec)
    commit = other._expiring._replacing.commit

    def commit_late(*arguments: Any, **named: Any) -> object:
        table.store.compact(min_files=2)
        return commit(*arguments, **named)

    monkeypatch.setattr(other._expiring._replacing, "commit", commit_late)
    assert other.expire(now_ms=NOW).records == 0
    assert table.offsets() == list(range(9))
    assert len(list(table.spec.directory().local.glob("*.parquet"))) == 4 + 1


def test_old_versions_go(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Iceberg's, all but the newest; of Delta's, those that its log forgets by itself."""
    monkeypatch.setattr(iceberg_upkeep, "SNAPSHOTS_MIN", 1)
    table = make_table(keep_history_ms=3_600_000)
    for number in range(3):
        table.batch(f"run-{number}", 0, [{"n": number}], start=number)
    table.store.checkpoint()
    assert len(table.store.history()) == 3, "they are all young"
    snapshot = table.store._backend.load()
    if isinstance(snapshot, IcebergSnapshot):
        later = NOW + 10 * 365 * DAY
        gone = iceberg_upkeep.superfluous(snapshot.table.metadata, now_ms=later, keep_ms=3_600_000)
        assert gone.marks == [f"run-{number}" for number in range(2)]
        assert len(gone.snapshots) == 2
    else:
        properties = snapshot.table.metadata().configuration  # type: ignore[attr-defined]
        assert properties["delta.logRetentionDuration"] == "interval 3600 seconds"


def test_marks_of_queries_that_ended_go(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: no record is doubled, and the table is where it was."""
    monkeypatch.setattr(iceberg_upkeep, "SNAPSHOTS_KEPT", 1)
    monkeypatch.setattr(
        delta_upkeep, "dated", lambda mark, _: 1000 if mark == "old" else FOR_GOOD_MS
    )
    table = make_table()
    table.batch("old", 0, [{"n": 1}])
    table.batch("new", 0, [{"n": 2}], start=1)
    state = table.store.state()
    table.store.checkpoint()
    store = table.reopen()
    assert (store.committed("old"), store.committed("new")) == (None, 0)
    assert store.state().frontiers == state.frontiers
    assert table.batch("old", 0, [{"n": 1}]).outcome == "nothing_new"
    assert table.offsets() == [0, 1]


@pytest.mark.parametrize("name", ["expire_rows_ms", "keep_history_ms", "vacuum_ms"])
def test_too_short_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSetting, match="cannot be less than 1 hour"):
        TableWorld.spec_in(tmp_path, **{name: 3_599_999})


@ONE_FORMAT
def test_a_vacuum_by_hand_takes_no_files_of_a_batch_that_is_being_written(
    make_table: MakeTable,
) -> None:
    table = make_table()
    save_spec(table.spec)
    written = table.task([{"n": 1}])
    command = ("table", "compact", "table", "--tables", str(table.spec.place.parent), "--vacuum")
    for duration in ("0 s", "59 min"):
        refused = CliRunner().invoke(cli, [*command, duration])
        assert refused.exit_code == 2
        assert "vacuum cannot be less than 1 hour: the files of a batch" in refused.output
    assert CliRunner().invoke(cli, [*command, "1 hour"]).exit_code == 0
    identity = BatchIdentity("q", 0, (OffsetRange("flights", 0, 0, 1),))
    assert table.store.commit(identity, [written]).rows == 1


@ONE_FORMAT
def test_a_run_cares_at_its_start_and_then_now_and_then(make_table: MakeTable) -> None:
    table = make_table(event_time="at", expire_rows_ms=DAY, vacuum_ms=3_600_000)
    table.batch("q", 0, [{"n": 1}])
    told: list[Event] = []
    clock = [0.0]
    options = RunOptions(bootstrap="nowhere:1")
    keeper = Keeper(open_store(table.spec), options, told.append, lambda: clock[0])
    keeper.maybe_keep()
    assert "1 records were too old" in str(told)
    told.clear()
    table.batch("q", 1, [{"n": 2}], start=1)
    clock[0] = EVERY_S - 1
    keeper.maybe_keep()
    assert not told
    clock[0] = EVERY_S
    keeper.maybe_keep()
    assert "1 records were too old" in str(told)
    assert table.offsets() == []


@ONE_FORMAT
def test_a_run_joins_files_after_so_many_commits(make_table: MakeTable) -> None:
    """Whatever number the commits have in between: upkeep commits, too."""
    table = make_table()
    told: list[Event] = []
    options = RunOptions(bootstrap="nowhere:1", compact_every=5, vacuum_ms=3_600_000)
    keeper = Keeper(open_store(table.spec), options, told.append)
    for number in range(6):
        table.batch("q", number, [{"n": 1}], start=number)
    keeper.maybe_compact()
    for sequence in (3, 4):
        keeper.committed(sequence)
        keeper.maybe_compact()
    assert not told
    keeper.committed(6)
    keeper.maybe_compact()
    assert [each.sentence for each in told if isinstance(each, Notice)] == [
        "Compacted 6 files into 1.",
        "Deleted 0 files that no reader needs.",
    ]
    keeper.maybe_compact()
    keeper.committed(8)
    keeper.maybe_compact()
    assert len(told) == 2
    keeper.committed(10)
    keeper.maybe_compact()
    assert len(told) == 3, "nothing was joined; the vacuum is told"


def test_what_goes_is_said_beforehand(make_table: MakeTable) -> None:
    table = aged(make_table, vacuum_ms=7 * DAY, keep_history_ms=30 * DAY)
    found = {(each.what, each.fate): each for each in explain(table.store, now_ms=NOW)}
    rows = [each for each in explain(table.store, now_ms=NOW) if each.what == "files of rows"]
    assert [(each.number, each.rows, each.fate) for each in rows] == [
        (1, 2, "goes"),
        (1, 4, "goes"),
        (2, 3, "waits"),
    ]
    assert "every row is older than 10 days, by at" in rows[0].why
    assert "written again without rows older" in rows[1].why
    assert rows[2].at_ms == NOW + DAY // 2 + 1, "the row of 10.5 days goes when it is 11 days old"
    assert found["versions", "waits"].number == 4
    table.store.expire(now_ms=NOW)
    later = [each for each in explain(table.store, now_ms=NOW) if "no version" in each.what]
    if table.spec.format == "iceberg":
        assert not later, "a version that can be read needs them"
    else:
        assert [(each.fate, each.number) for each in later] == [("waits", 2)]


@ONE_FORMAT
def test_the_command_says_what_stays_where_nothing_is_set(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"n": 1}, b"bad"])
    save_spec(table.spec)
    where = ("--tables", str(table.spec.place.parent))
    told = CliRunner().invoke(cli, ["table", "explain", "table", *where])
    assert told.exit_code == 0, told.output
    assert "expire-rows is not set" in told.output
    assert "keep-history is not set" in told.output
    as_json = CliRunner().invoke(cli, ["table", "explain", "table", *where, "--json"])
    assert {each["fate"] for each in json.loads(as_json.output)} == {"stays"}
