"""The file of `strandline tables`: what it gives, what is refused, and what a plan says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from strandline.cli.tables_file import load_service
from tests.cli.conftest import Ended

Run = Callable[..., Ended]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Puts text into a file."""

    def write(text: str) -> Path:
        path = tmp_path / "lake.yaml"
        path.write_text(text)
        return path

    return write


def test_settings_are_the_options_of_create_and_run(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    found = load_service(
        write(
            f"""
bootstrap: broker:9092
location: {tmp_path}/lake
port: 0
restart: {{first: 2 s, most: 1 min}}
spark:
  master: local[2]
  conf: {{spark.executor.memory: 4g}}
defaults:
  interval: 5 s
  keep-key: true
tables:
  orders:
    topic: [orders, returns]
    column: {{no: long, at: timestamp}}
    partition: [day(at), no]
    patience: 2 min
    keep-key: false
  people:
"""
        )
    )
    orders, people = found.tables
    spec = orders.spec(lambda *_: (None, None))
    assert (spec.topics, spec.commit_interval_ms, spec.keep_key) == (
        ("orders", "returns"),
        5_000,
        False,
    )
    assert spec.columns == {"no": "long", "at": "timestamp"}
    assert [str(each) for each in spec.partition_by] == ["day(at)", "no"]
    assert people.spec(lambda *_: (None, None)).keep_key
    assert orders.run["patience"] == "2 min"
    assert (found.port, found.restart_s, found.bootstrap) == (0, (2.0, 60.0), "broker:9092")
    assert found.spark.conf == {"spark.executor.memory": "4g"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tables: {t: {topics: a}}", "table 't' has no setting topics: did you mean topic?"),
        ("tables: {t: {mode: both}}", "table 't': mode: 'both' is not one of"),
        ("tables: {t: {watermark: 1 h}}", "table 't': watermark-ms: A watermark needs"),
        ("tables: {t: {patience: long}}", "table 't': patience: patience cannot be 'long'"),
        ("tables: {t: {vacuum: 5 min}}", "table 't': vacuum: vacuum cannot be less than 1 hour"),
        (
            "tables: {t: {expire-rows: 5 min}}",
            "table 't': expire-rows: expire-rows cannot be less than 1 hour",
        ),
        ("tables: {t: {fixed: perhaps}}", "table 't': fixed is true or false, not 'perhaps'"),
        ("tables: {t: {mode: [append]}}", "table 't': mode cannot be a list"),
        ("tables: {t: {mode: }}", "table 't': mode cannot be empty"),
        ("tables: {t: {value: avro}}", "table 't': schema: avro values need a schema"),
        ("tables: {1t: }", "table '1t': name: A table cannot be called '1t'"),
        ("tables: {t: [x]}", "table 't': its settings must be a mapping"),
        ("tables: {t: , t: }", "line 1, column 15: t is there twice"),
        ("tables: {t: ", "line 1, column"),
        ("tables: ", "there is no table in it"),
        ("- t", "must be a mapping"),
        ("table: {t: }", "the file has no setting table: did you mean tables?"),
        ("{port: x, tables: {t: }}", "port cannot be 'x'"),
        ("{restart: {first: 2 h}, tables: {t: }}", "first must be more than 0"),
        ("{spark: {master: here}, tables: {t: }}", "spark: master: master cannot be 'here'"),
        ("{spark: {conf: {a: b}}, tables: {t: }}", "spark: --conf takes spark.NAME=VALUE"),
        ("{location: 'ftp://h/x', tables: {t: }}", "location: "),
        ("{defaults: {once: true}, tables: {t: }}", "defaults has no setting once"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(
    write: Callable[[str], Path], text: str, said: str
) -> None:
    path = write(text)
    with pytest.raises(click.UsageError) as refused:
        load_service(path)
    assert refused.value.message.startswith(f"{path}: ")
    assert said in refused.value.message


def test_a_plan_says_what_would_be_made_changed_and_refused(
    alone: Run, write: Callable[[str], Path], tmp_path: Path
) -> None:
    def planned(settings: str) -> tuple[int, list[dict[str, Any]]]:
        file = write(f"location: {tmp_path}/lake\ntables: {{orders: {settings}}}")
        ended = alone("tables", "plan", str(file), "--json")
        return ended.code, json.loads(ended.out)

    code, [found] = planned("{interval: 5 s}")
    assert (code, found["plan"]) == (0, "create")
    assert not (tmp_path / "lake").exists()
    made = alone("table", "create", "orders", "--interval", "5 s", "--tables", f"{tmp_path}/lake")
    assert made.code == 0
    assert planned("{interval: 5 s}")[1][0]["plan"] == "same"
    code, [found] = planned("{interval: 7 s, topic: [orders, returns]}")
    assert (code, found["plan"]) == (0, "change")
    assert [each["setting"] for each in found["differences"]] == ["topics", "commit_interval_ms"]
    code, [found] = planned("{mode: upsert, interval: 5 s}")
    assert (code, found["plan"]) == (1, "refused")

    file = write(f"location: {tmp_path}/lake\ntables: {{orders: {{mode: upsert}}}}")
    ended = alone("tables", "up", str(file), "--once")
    assert ended.code == 2
    assert "table 'orders': mode: mode: append becomes upsert, which cannot change" in ended.err
