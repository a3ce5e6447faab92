"""Delta tables in a real S3 server: what holds on a disk holds there."""

from __future__ import annotations

import pytest

from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.conditions import conditional_put_fault
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables import store as store_module
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.errors import FencedWriter, TableExists
from strandline.lakehouse.tables.spec import list_specs, load_spec, save_spec
from strandline.lakehouse.tables.store import open_store
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.tables.table_world import TableWorld

FAR = 10**15
LOST_COMMIT = Fault("PUT", "/data/_delta_log/0", lose=True)


def test_a_table_lives_in_a_bucket_with_all_that_belongs_to_it(s3: S3Server, bucket: str) -> None:
    spec = TableWorld.spec_in(
        f"s3a://{bucket}/bronze/t", event_time="at", watermark_ms=1000, late="route"
    )
    assert spec.location == f"s3://{bucket}/bronze/t"
    save_spec(spec)
    with pytest.raises(TableExists):
        save_spec(spec)
    assert list_specs(f"s3://{bucket}/bronze") == [load_spec(spec.location)] == [spec]

    table = TableWorld(spec.location, event_time="at", watermark_ms=1000, late="route")
    table.batch("q", 0, [{"a": 1, "at": "2026-01-01T00:00:10Z"}, b"bad"])
    table.batch("q", 1, [{"a": 2, "at": "2026-01-01T00:00:01Z"}, {"a": 3, "b": "new"}], start=2)
    assert table.batch("q", 1, [{"a": 2}, {"a": 3}], start=2).outcome == REPLAYED
    table.reopen()
    assert (table.offsets(), table.letters(), table.late()) == ([0, 3], [1], [2])
    assert [each.rows for each in table.store.history()] == [1, 1]
    text = s3.client().get_object(Bucket=bucket, Key="bronze/t/table.json")["Body"].read().decode()
    assert "secret" not in text
    assert "key-of" not in text


def test_a_batch_asks_the_store_no_more_often_the_more_came_before(
    s3: S3Server, bucket: str
) -> None:
    """Marks were looked up one by one, each in all of the log since its checkpoint."""
    table = TableWorld(f"s3://{bucket}/t", columns={"a": "long"})
    asked = []
    for number in range(12):
        s3.plant(Fault(".*", ".*", times=1000))
        table.batch("q", number, [{"a": number}], start=number)
        asked.append(1000 - s3.left()[0])
    s3.plant()
    assert asked[2:] == [asked[2]] * 10
    assert asked[2] < 30


def test_compaction_vacuum_and_replay(s3: S3Server, bucket: str) -> None:
    table = TableWorld(f"s3://{bucket}/t", columns={"a": "long"}, evolve=False)
    for number in range(3):
        table.batch("q", number, [{"a": number}, {"a": number + 0.5}], start=2 * number)
    done = table.store.compact(min_files=2)
    assert (done.files_before, done.files_after) == (6, 2)
    assert table.store.vacuum(now_ms=FAR, older_than_ms=FAR) == []
    assert table.store.widen("a") == 1
    assert replay(table.store).replayed == 3
    assert [row["a"] for row in table.rows()] == [0, 0.5, 1, 1.5, 2, 2.5]
    live = {each.path.name for side in (None, "dead_letters") for each in table.store.files(side)}
    table.store.vacuum(now_ms=FAR, older_than_ms=0)
    names = [key for key in s3.keys(bucket) if key.endswith(".parquet") and "_delta_log" not in key]
    assert {name.rpartition("/")[2] for name in names} == live
    assert table.reopen().vacuum(now_ms=FAR, older_than_ms=0) == []


def test_upserts(s3: S3Server, bucket: str) -> None:
    table = TableWorld(f"s3://{bucket}/t", mode="upsert", buckets=2)
    table.batch("q", 0, [{"a": 1}, {"a": 2}, {"a": 3}], keys=[b"x", b"y", b"z"])
    table.batch("q", 1, [{"a": 4}, None], start=3, keys=[b"x", b"y"])
    assert [(row["kafka_key"], row["a"]) for row in table.rows()] == [(b"z", 3), (b"x", 4)]


def test_files_that_a_commit_removed_age_from_their_removal(s3: S3Server, bucket: str) -> None:
    table = TableWorld(f"s3://{bucket}/t")
    for number in range(2):
        table.batch("q", number, [{"a": number}], start=number)
    made_ms = max(each.at_ms for each in stores.listed(table.spec.directory()))
    table.store.compact(min_files=2)
    [note] = stores.listed(table.spec.directory() / "_removed")
    assert note.at_ms >= made_ms
    # All of it was made, and removed, within the second that S3 counts in.
    assert table.store.vacuum(now_ms=note.at_ms, older_than_ms=0) == []
    assert len(table.store.vacuum(now_ms=note.at_ms + 1, older_than_ms=0)) == 2
    assert stores.listed(table.spec.directory() / "_removed") == []


def test_a_log_that_cannot_be_shortened_now_is_trouble_of_the_store(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And none of the batch, which is committed."""
    monkeypatch.setattr(store_module, "TIDY_EVERY", 1)
    table = TableWorld(f"s3://{bucket}/t")
    s3.plant(Fault("PUT", "checkpoint", times=-1, status=403))
    assert table.batch("q", 0, [{"a": 0}]).outcome == COMMITTED
    assert "/_delta_log could not be shortened: the store does not permit it" in caplog.text
    with pytest.raises(StoreTrouble, match="does not permit it"):
        table.store.checkpoint()
    s3.plant()
    table.store.checkpoint()
    assert table.offsets() == [0]


def test_of_two_writers_one_is_fenced(s3: S3Server, bucket: str) -> None:
    table = TableWorld(f"s3://{bucket}/t")
    table.batch("old", 0, [{"a": 0}])
    other = open_store(table.spec)
    TableWorld(f"s3://{bucket}/t").batch("new", 0, [{"a": 1}], start=1)
    assert other.committed("new") == 0
    with pytest.raises(FencedWriter):
        table.batch("old", 1, [{"a": 2}], start=2)
    assert table.offsets() == [0, 1]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_lost_answer_to_a_commit_neither_doubles_nor_loses_a_row(
    s3: S3Server, bucket: str, mode: str
) -> None:
    """The library asks again, and hears that the version is there: which is its own."""
    table = TableWorld(f"s3://{bucket}/t", mode=mode)
    table.batch("q", 0, [{"a": 0}, b"bad"], keys=[b"x", b"y"])
    s3.plant(LOST_COMMIT)
    done = table.batch("q", 1, [{"a": 1}, b"bad"], start=2, keys=[b"x", b"z"])
    assert (done.outcome, done.rows, done.dead_letters) == (COMMITTED, 1, 1)
    assert s3.left() == [0]
    table.reopen()
    assert table.batch("q", 1, [{"a": 1}], start=2, keys=[b"x"]).outcome == REPLAYED
    assert table.offsets() == ([0, 2] if mode == "append" else [2])
    assert table.letters() == [1, 3]


def test_a_lost_answer_to_a_compaction_leaves_its_files(s3: S3Server, bucket: str) -> None:
    table = TableWorld(f"s3://{bucket}/t")
    for number in range(3):
        table.batch("q", number, [{"a": number}], start=number)
    s3.plant(LOST_COMMIT)
    assert table.store.compact(min_files=2).files_after == 1
    assert s3.left() == [0]
    table.reopen()
    assert len(table.store.files()) == 1
    assert table.offsets() == [0, 1, 2]


def test_the_store_is_asked_whether_it_keeps_two_writers_apart(s3: S3Server, bucket: str) -> None:
    place = Location.parse(f"s3://{bucket}/t")
    assert conditional_put_fault(place) is None
    s3.plant(Fault("PUT", ".", times=-1, deaf=True))
    said = conditional_put_fault(place)
    assert said is not None
    assert "If-None-Match" in said
    assert s3.keys(bucket) == []
    hdfs = conditional_put_fault(Location.parse("hdfs://head:8020/t"))
    assert hdfs is not None
    assert hdfs.startswith("hdfs has no call")
