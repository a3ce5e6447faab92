"""Iceberg tables in a store, by name in catalogs that other programs ask as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from strandline.errors import InvalidSetting
from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.spec import load_spec, save_spec
from strandline.lakehouse.tables.store import drop_table
from tests.lakehouse.catalogs.rest_catalog import LosingProxy, rest_catalog
from tests.lakehouse.duckdb_reader import use_s3, with_extensions
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.tables.table_world import TableWorld, Value

FAR = 10**15
CACHE = os.environ.get("STRANDLINE_TEST_CACHE")
JARS = Path(
    os.environ.get("STRANDLINE_ICEBERG_REST_JARS") or Path(CACHE or "/", "iceberg-rest-1.11.0")
)


@pytest.fixture(scope="module")
def warehouse(one_s3_server: S3Server) -> str:
    return one_s3_server.bucket("warehouse")


@pytest.fixture(scope="module")
def rest(
    one_s3_server: S3Server, warehouse: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if not JARS.is_dir():
        pytest.skip("needs python -m bench.kafka_jars --of iceberg-rest")
    log = tmp_path_factory.mktemp("rest") / "log"
    environment = one_s3_server.environment
    with rest_catalog(JARS, f"s3://{warehouse}/rest", environment, log) as running:
        yield running


@pytest.fixture
def proxy(rest: str) -> Iterator[LosingProxy]:
    with LosingProxy(rest) as running:
        yield running


def sql_world(s3: S3Server, place: str, tmp_path: Path, **fields: object) -> TableWorld:
    uri = f"sqlite:///{tmp_path / 'lake.db'}"
    properties = {"uri": uri}
    return TableWorld(
        place, format="iceberg", catalog="sql", catalog_properties=properties, **fields
    )


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_in_a_store_and_an_sql_catalog(
    s3: S3Server, bucket: str, tmp_path: Path, mode: str
) -> None:
    place = f"s3://{bucket}/t"
    table = sql_world(s3, place, tmp_path, mode=mode, columns={"a": "long"}, evolve=False)
    for number in range(3):
        values: list[Value] = [{"a": number}, {"a": number + 0.5}]
        keys = [b"k%d" % number, b"l%d" % number]
        table.batch("q", number, values, start=2 * number, keys=keys)
    table.store.compact(min_files=2)
    table.store.widen("a")
    assert replay(table.store).replayed == 3
    table.store.vacuum(now_ms=FAR, older_than_ms=0)
    table.reopen()
    assert sorted(row["a"] for row in table.rows()) == [0, 0.5, 1, 1.5, 2, 2.5]
    assert table.batch("q", 2, [{"a": 9}], start=4, keys=[b"x"]).outcome == REPLAYED
    s3.plant(Fault("GET|HEAD", "/metadata/", times=-1, status=503))
    with pytest.raises(StoreTrouble, match=f"s3://{bucket}/t"):
        table.reopen().state()


def test_a_table_is_found_by_name_in_a_rest_catalog(s3: S3Server, bucket: str, rest: str) -> None:
    table = TableWorld(
        f"s3://{bucket}/flights",
        format="iceberg",
        catalog="rest",
        catalog_properties={"uri": rest},
        namespace="bronze",
    )
    spec = table.spec
    save_spec(spec)
    table.batch("q", 0, [{"a": 1}, b"bad"])
    table.batch("q", 1, [{"a": 2, "b": "new"}], start=2)
    assert load_spec(spec.location) == spec
    theirs = load_catalog("theirs", type="rest", uri=rest, **{"s3.endpoint": s3.url})
    rows = theirs.load_table("bronze.flights").scan().to_arrow()
    assert sorted(rows.column("a").to_pylist()) == [1, 2]
    letters = theirs.load_table("bronze.flights__dead_letters").scan().to_arrow()
    assert letters.column("kafka_offset").to_pylist() == [1]
    assert by_duckdb(s3, rest, "bronze", "flights") == [(1,), (2,)]
    drop_table(spec)
    assert theirs.list_tables("bronze") == []


def by_duckdb(s3: S3Server, rest: str, namespace: str, name: str) -> list[tuple[int]]:
    """The column `a` of a table, by its name."""
    names = ("httpfs", "avro", "iceberg")
    connection = with_extensions(pytest.importorskip(f"duckdb_extension_{each}") for each in names)
    use_s3(connection, s3.url)
    connection.execute(
        f"attach 'w' as lake (type iceberg, endpoint '{rest}', authorization_type 'none')"
    )
    return connection.execute(f'select a from lake."{namespace}"."{name}" order by a').fetchall()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_lost_answer_of_the_catalog_neither_doubles_nor_loses_a_row(
    s3: S3Server, bucket: str, proxy: LosingProxy, mode: str
) -> None:
    fields = {
        "format": "iceberg",
        "catalog": "rest",
        "catalog_properties": {"uri": proxy.uri},
        "namespace": f"lost.{mode}",
        "mode": mode,
        "columns": {"a": "long"},
    }
    table = TableWorld(f"s3://{bucket}/t", **fields)
    table.batch("q", 0, [{"a": 0}, b"bad"], keys=[b"x", b"y"])
    proxy.lose = 1
    done = table.batch("q", 1, [{"a": 1}, b"bad"], start=2, keys=[b"x", b"z"])
    assert (done.outcome, done.rows, proxy.lost) == (COMMITTED, 1, 1)
    table.reopen()
    assert table.batch("q", 1, [{"a": 1}], start=2, keys=[b"x"]).outcome == REPLAYED
    assert table.offsets() == ([0, 2] if mode == "append" else [2])
    assert table.letters() == [1, 3]

    proxy.status = 503
    with pytest.raises(StoreTrouble, match=f"the rest catalog {proxy.uri} answers with an error"):
        table.batch("q", 2, [{"a": 2}], start=4, keys=[b"x"])
    proxy.status = None
    table.batch("q", 2, [{"a": 2}], start=4, keys=[b"x"])
    assert table.offsets() == ([0, 2, 4] if mode == "append" else [4])


def test_a_conflict_with_the_commit_itself_takes_nothing_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a client asks again when an answer is lost (boto3 does). pyiceberg deleted the
    manifests of the newest snapshot then. What a real conflict leaves is the vacuum's."""
    table = TableWorld(tmp_path / "t", format="iceberg", columns={"a": "long"})
    table.batch("q", 0, [{"a": 0}])
    commit = SqlCatalog.commit_table
    outcomes: list[bool] = [True, False]

    def conflicting(catalog: SqlCatalog, *asked: Any) -> Any:
        if not outcomes:
            return commit(catalog, *asked)
        if outcomes.pop():
            commit(catalog, *asked)
        raise CommitFailedException("The table has changed.")

    monkeypatch.setattr(SqlCatalog, "commit_table", conflicting)
    assert table.batch("q", 1, [{"a": 1}], start=1).outcome == COMMITTED
    assert not outcomes, "after a conflict that was one, too"
    assert table.batch("q", 2, [{"a": 2}], start=2).outcome == COMMITTED
    outcomes.append(True)
    assert table.store.compact(min_files=2).files_before
    table.reopen()
    assert table.offsets() == [0, 1, 2]
    metadata = table.spec.directory().local / "metadata"
    before = len(list(metadata.glob("*.avro")))
    table.store.vacuum(now_ms=FAR, older_than_ms=0)
    assert len(list(metadata.glob("*.avro"))) == before - 2, "a manifest and its list"
    assert table.offsets() == [0, 1, 2]


def test_a_catalog_that_is_away_is_named(s3: S3Server, bucket: str) -> None:
    with pytest.raises(StoreTrouble, match=r"the rest catalog http://127.0.0.1:9 cannot be reach"):
        TableWorld(
            f"s3://{bucket}/t",
            format="iceberg",
            catalog="rest",
            catalog_properties={"uri": "http://127.0.0.1:9"},
        )


def test_glue(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "very-secret-word")
    properties = {
        "glue.endpoint": s3.url,
        "glue.region": "us-east-1",
        "glue.access-key-id": "env:LAKE_SECRET",
        "glue.secret-access-key": "env:LAKE_SECRET",
    }
    table = TableWorld(
        f"s3://{bucket}/t",
        format="iceberg",
        catalog="glue",
        catalog_properties=properties,
        namespace="silver",
    )
    save_spec(table.spec)
    table.batch("q", 0, [{"a": 1}, b"bad"])
    table.reopen()
    table.batch("q", 1, [{"a": 2}], start=2)
    assert table.offsets() == [0, 2]
    assert table.letters() == [1]
    found = s3.client("glue").get_tables(DatabaseName="silver")["TableList"]
    assert {each["Name"] for each in found} == {"flights", "flights__dead_letters"}
    text = s3.client().get_object(Bucket=bucket, Key="t/table.json")["Body"].read().decode()
    assert "very-secret-word" not in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"catalog": "rest"}, "catalogs are for Iceberg tables"),
        ({"format": "iceberg"}, "needs a catalog, which decides"),
        ({"catalog_properties": {"uri": "x"}}, "need its kind"),
        ({"format": "iceberg", "catalog": "nessie"}, "expected rest, sql, hive, glue"),
        ({"format": "iceberg", "catalog": "sql", "namespace": "a..b"}, "namespace cannot be"),
        (
            {
                "format": "iceberg",
                "catalog": "rest",
                "catalog_properties": {"credential": "a:word"},
            },
            "credential is a secret. It is given as env:NAME",
        ),
        (
            {
                "format": "iceberg",
                "catalog": "sql",
                "catalog_properties": {"uri": "postgresql://u:word@host/db"},
            },
            "uri has a password in it",
        ),
    ],
)
def test_what_is_no_catalog_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as raised:
        TableWorld.spec_in("s3://lake/t", **fields)
    assert "word" not in str(raised.value).replace("password", "")
