"""`strandline table`: definitions, and what people read. Runs are in tests/lakehouse/pipeline."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from strandline.cli import table_options
from strandline.cli.main import cli
from strandline.cli.table_run import line_of
from strandline.lakehouse.pipeline.events import Committed, Notice, Started, Stopped
from strandline.lakehouse.pipeline.lag import Lag
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.verify import running
from tests.cli.conftest import COMMAND, DEADLINE_S, Ended
from tests.lakehouse.tables.table_world import TableWorld

Run = Callable[..., Ended]


@pytest.fixture
def table(alone: Run, tmp_path: Path) -> Run:
    """`strandline table ...` over a directory of its own."""
    return lambda command, *rest: alone("table", command, *rest, "--tables", str(tmp_path))


def test_a_table_is_defined_shown_and_dropped(
    table: Run, strandline: Run, tmp_path: Path, name: str
) -> None:
    assert strandline("topics", "create", name).code == 0
    made = table(
        "create",
        *("flights", "--topic", name, "--event-time", "at", "--watermark", "2 hours"),
        *("--partition", "day(at), x", "--column", "x:string", "--interval", "5 s"),
    )
    assert made.code == 0, made.err
    assert f"strandline table run flights --tables {tmp_path}\n" in made.out
    spec = json.loads((tmp_path / "flights" / "table.json").read_text())
    assert (spec["watermark_ms"], spec["commit_interval_ms"]) == (7_200_000, 5_000)
    assert table("create", "flights").code == 1

    [listed] = table("list", "--json").json
    assert (listed["name"], listed["topics"], listed["format"]) == ("flights", [name], "delta")
    found = strandline("table", "status", "flights", "--json", "--tables", str(tmp_path)).json
    assert (found["commits"], found["lag"]) == (0, {"records": 0, "seconds": 0.0})
    assert table("history", "flights", "--json").json == []
    assert table("compact", "flights", "--vacuum", "7 days", "--json").json["vacuumed"] == 0

    dropped = strandline("table", "drop", "flights", "--yes", "--tables", str(tmp_path))
    assert (dropped.code, dropped.err) == (0, "")
    assert not (tmp_path / "flights").exists()
    assert table("list", "--json").json == []


def test_a_table_is_not_dropped_without_an_answer(table: Run, spawn: Run, tmp_path: Path) -> None:
    """Where there is no terminal it ended with 130 and said nothing but its question."""
    table("create", "t")
    where = ("--tables", str(tmp_path))
    ended = spawn("table", "drop", "t", *where)
    assert (ended.code, ended.out) == (2, "")
    assert f"Not confirmed: Delete everything in {tmp_path / 't'}?" in ended.err
    assert "--yes" in ended.err
    assert spawn("table", "drop", "t", *where, stdin=b"n\n").code == 1
    assert (tmp_path / "t").exists()
    assert spawn("table", "drop", "t", *where, stdin=b"y\n").code == 0
    assert not (tmp_path / "t").exists()


def test_a_table_that_was_never_run_lacks_everything(
    table: Run, strandline: Run, spawn: Run, tmp_path: Path, name: str
) -> None:
    assert strandline("topics", "create", name, "--partitions", "2").code == 0
    assert spawn("produce", name, stdin=b'{"n": 1}\n{"n": 2}\n{"n": 3}\n').code == 0
    table("create", "t", "--topic", name)
    where = ("--tables", str(tmp_path))
    found = strandline("table", "status", "t", "--json", *where).json
    assert found["lag"]["records"] == 3
    assert [(each["start"], each["end"]) for each in found["partitions"]] == [(0, 0), (0, 0)]
    assert sum(each["lag"] for each in found["partitions"]) == 3
    shown = strandline("table", "status", "t", *where).out
    assert "rows         0 in 0 files" in shown
    assert "behind       3 records" in shown


def test_dead_letters_of_an_empty_table(alone: Run, table: Run, tmp_path: Path) -> None:
    table("create", "t")
    where = ("--tables", str(tmp_path), "--json")
    assert alone("table", "dead-letters", "list", "t", *where).json == []
    replayed = alone("table", "dead-letters", "replay", "t", *where).json
    assert replayed == {"replayed": 0, "still_dead": 0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "t", "--watermark", "2 hours"), "needs an event time column"),
        (
            ("create", "t", "--event-time", "at", "--watermark", "soon"),
            "watermark cannot be 'soon'",
        ),
        (("create", "t", "--column", "x"), "--column takes NAME:TYPE"),
        (("create", "t", "--value", "avro"), "avro values need a schema"),
        (("create", "t", "--select", "selct * from batch"), "Syntax error at or near 'selct'"),
        (("create", "t", "--transform", "enrich"), "module:function, not 'enrich'"),
        (("create", "t", "--partition", "day(at)"), "such as at:timestamp"),
        (("create", "t", "--partition", "at"), "such as at:string"),
        (("create", "t", "--schema", __file__), "The JSON Schema is not JSON"),
        (("query", "select * from nothing"), "The tables in"),
        (("run", "nothing"), "There is no table 'nothing'"),
        (("diff", "nothing"), "There are none"),
        (("run", "t", "--master", "spark//h"), "master cannot be 'spark//h': expected local[4]"),
        (("verify", "t", "--master", "local[0]"), "master cannot be 'local[0]'"),
    ],
)
def test_what_is_refused(table: Run, arguments: tuple[str, ...], said: str) -> None:
    ended = table(*arguments)
    assert ended.code == 2
    assert said in ended.err


def test_a_definition_that_cannot_be_read_leaves_the_other_tables_alone(
    table: Run, tmp_path: Path
) -> None:
    table("create", "t")
    (tmp_path / "harmed").mkdir()
    (tmp_path / "harmed" / "table.json").write_text("")
    listed = table("list")
    assert (listed.code, "definition is not JSON" in listed.err) == (1, True)
    assert listed.out.splitlines()[1].split()[0] == "t"
    assert table("query", "select count(*) as n from t").code == 0
    assert f"{tmp_path / 'harmed'}" in table("query", "select * from harmed").err
    assert "There is no table 'u'" in table("run", "u").err


def test_an_empty_directory_of_tables_is_refused(alone: Run) -> None:
    """Of a variable that is not set: tables lay at the root of the file system."""
    ended = alone("table", "list", "--tables", "")
    assert (ended.code, "It is empty: name a directory." in ended.err) == (2, True)


def test_a_run_that_cannot_begin(table: Run, tmp_path: Path) -> None:
    table("create", "t")
    ended = table("run", "t", "--engine", "kafka")
    assert (ended.code, "name their directory with --jars" in ended.err) == (2, True)
    ended = table("run", "t", "--interval", "often")
    assert (ended.code, "interval cannot be 'often'" in ended.err) == (2, True)
    table("create", "u", "--mode", "upsert")
    ended = table("rebuild", "u", "--since", "2026-01-01")
    assert (ended.code, "stretch of time" in ended.err) == (2, True)


@pytest.mark.parametrize("given", ["ftp://host/tables", "s3a:/bucket", "s3://key:secret@bucket/t"])
@pytest.mark.parametrize("command", ["create", "run", "status"])
def test_e15_tables_in_another_store_are_refused_in_a_sentence(
    alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = alone("table", command, "t", "--tables", given)
    assert ended.code == 2
    assert f"--tables cannot be '{given.replace('key:secret', '...')}'" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_e12_a_table_is_defined_where_it_will_always_be(
    alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = alone("table", "create", "t", "--tables", "relative")
    assert str(tmp_path / "relative" / "t") in made.out
    [listed] = alone("table", "list", "--json", "--tables", "relative").json
    assert listed["location"] == str(tmp_path / "relative" / "t")


def test_a_run_without_a_broker_ends_as_other_commands_do(alone: Run, table: Run) -> None:
    """It waited for five minutes, and had started Spark."""
    table("create", "t")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = f"Cannot connect to {nobody}: Connection refused."
        assert alone("-b", nobody, "topics", "list").err.startswith(refused)
        ended = table("run", "t", "--once", "-b", nobody)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith(refused)
        assert "-b HOST:PORT; a run with --patience DURATION waits" in ended.err
        for once in ((), ("--once",)):
            ended = table("run", "t", *once, "-b", nobody, "--patience", "1 s", "--json")
            assert ended.code == 1
            said = rf"{nobody}: .* Trying again until [\d:]+ \(--patience 1 s\)"
            assert re.search(said, ended.json["sentence"])
            assert f"not brought further: Cannot connect to {nobody}" in ended.err
            assert "That was tried for 1 s; --patience says for how long." in ended.err


def test_a_master_that_is_not_there_costs_its_patience_and_one_sentence(
    strandline: Run, table: Run, tmp_path: Path, name: str
) -> None:
    """It was a Python and a Java traceback after two and a half minutes."""
    assert strandline("topics", "create", name).code == 0
    where = ("--tables", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        table("create", "t", "--topic", name)
        ended = strandline("table", "run", "t", "--master", nobody, "--patience", "1 s", *where)
    assert ended.code == 1
    assert f"No Spark master answers at {nobody} within 1 s" in ended.err
    assert "correct --master, or run Spark on this machine" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("harm", ["definition", "cut definition", "log", "gone"])
def test_a_table_that_was_harmed_is_told_in_a_sentence(
    table: Run,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    table_format: str,
    harm: str,
) -> None:
    """Before Spark starts, which takes seconds, and whose session other tests share."""
    monkeypatch.delattr(running, "one_session")
    table("create", "t", "--topic", name, "--format", table_format)
    assert table("history", "t").code == 0
    directory = tmp_path / "t"
    match harm:
        case "definition":
            (directory / "table.json").write_text("[]")
        case "cut definition":
            (directory / "table.json").write_bytes(b'{"name": "t\xff')
        case "log" if table_format == "delta":
            (directory / "data" / "_delta_log" / f"{0:020}.json").write_text("{]")
        case "log":
            (directory / "catalog.db").write_text("no database " * 100)
        case _:
            for each in (directory / "data").rglob("*.json"):
                each.unlink()
    for command in ("status", "history", "compact", "verify", "run"):
        ended = table(command, "t")
        assert ended.code in (1, 2)
        assert str(directory) in ended.err or "definition" in ended.err, ended.err
        assert "Traceback" not in ended.err


def test_without_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_options, "_LIBRARIES", ("pyspark", "no_such_library"))
    for command in (["table", "list"], ["demo"]):
        ended = CliRunner().invoke(cli, command)
        assert ended.exit_code == 1
        assert "Tables need no_such_library, which is not installed" in ended.stderr
        assert "pip install 'strandline[spark]'" in ended.stderr
    monkeypatch.setattr(table_options, "_LIBRARIES", ("pyspark", "no_such", "nor_this", "nor_that"))
    said = CliRunner().invoke(cli, ["table", "list"]).stderr
    assert "Tables need no_such, nor_this and nor_that, which are not installed. pip" in said


def test_lines_of_a_run() -> None:
    nothing = Lag(0, 0.0, {})
    behind = Lag(1200, 3.4, {})
    lost = (OffsetRange("t", 0, 4, 7),)
    commit = Committed(2, 3, 10, 1, 2, (), lost, 0.51, behind)
    assert [line_of(each) for each in (Started(1, 0, None), commit, Stopped(1, 5, nothing))] == [
        "1 partition, 0 offsets in the table, the lag is not known",
        "commit 2: 10 rows, 1 late, 2 dead letters, 3 offsets lost to the log's retention in "
        "0.5 s; 1,200 records (3 s) behind",
        "Stopped after 1 commit with 5 rows; nothing is missing",
    ]
    assert line_of(Notice("A sentence.")) == "A sentence."


@pytest.mark.parametrize(("moment", "lake"), [(0.0, ()), (0.7, ("--lake", "s3")), (2.5, ())])
def test_a_demo_that_is_ended_leaves_nothing(
    tmp_path: Path, moment: float, lake: tuple[str, ...]
) -> None:
    """SIGTERM while Spark starts: the processes of cluster and store, and the directory, go."""
    demo = subprocess.Popen(
        [*COMMAND, "demo", "--records", "100", "--brokers", "1", *lake],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    try:
        said = [demo.stdout.readline() for _ in range(3 if lake else 2)]
        assert "Producing" in said.pop()
        addresses = [line.partition(" listens on ")[2] for line in said]
        time.sleep(moment)  # the moments themselves are what is tried, and none has a sign
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=DEADLINE_S)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("strandline-demo-*"))
    for address in addresses:
        [(host, port)] = re.findall(r"(127\.0\.0\.1):(\d+)", address)
        with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
            pass


def test_e12_files_that_are_gone_are_shown_by_status(
    table: Run, strandline: Run, tmp_path: Path, name: str
) -> None:
    """A count, and the command that names them; `--json` has it for each side."""
    strandline("topics", "create", name)
    world = TableWorld(tmp_path / "t", name="t", topics=(name,))
    save_spec(world.spec)
    world.store.commit(
        BatchIdentity("q", 0, (OffsetRange(name, 0, 0, 2),)),
        [world.task([{"a": 1}, b"no JSON"], topic=name)],
    )
    where = ("--tables", str(tmp_path))
    assert "MISSING" not in strandline("table", "status", "t", *where).out
    [gone] = world.store.files()
    gone.path.local.unlink()
    shown = strandline("table", "status", "t", *where)
    assert (shown.code, "Traceback" in shown.err) == (0, False)
    assert "MISSING      1 file of these is not there, or not whole" in shown.out
    assert "strandline table verify t" in shown.out
    held = strandline("table", "status", "t", "--json", *where).json["held"]
    assert {side: each["missing"] for side, each in held.items()} == {
        "rows": 1,
        "late": 0,
        "dead_letters": 0,
    }
