"""The frame: help, exit codes, and what is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from strandline.cli.main import COMMANDS
from tests.cli.conftest import DEADLINE_S

HEAVY = ("asyncio", "strandline.broker", "strandline.client", "strandline.storage", "cramjam")


LONG = "9" * 5000
"""Python reads no number of so many digits."""


def imported_by(code: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return set(ended.stderr.split())


def test_help_imports_no_command() -> None:
    loaded = imported_by("from strandline.cli.main import cli\ncli(['--help'], standalone_mode=0)")
    assert not loaded & set(HEAVY)
    assert not any(module.startswith("strandline.cli.topics") for module in loaded)


def test_serving_imports_of_the_client_only_what_brokers_use_among_themselves() -> None:
    loaded = imported_by("import strandline.cli.serve")
    core = {"strandline.client", "strandline.client.backoff", "strandline.client.channel"}
    assert {each for each in loaded if each.startswith("strandline.client")} <= core


def test_proofs_of_tables_import_what_the_kind_of_table_needs() -> None:
    assert not imported_by("import strandline.cli.table_verify") & {"pyarrow", "pyspark"}
    assert "pyspark" not in imported_by("import strandline.cli.table_results")


def test_the_list_of_commands_says_what_they_say_themselves(alone: Callable[..., Any]) -> None:
    for name in COMMANDS:
        ended = alone(name, "--help")
        assert ended.code == 0
        assert ended.out.startswith(f"Usage: cli {name} ")


def test_help_names_every_command(alone: Callable[..., Any]) -> None:
    shown = alone("--help").out
    for name, command in COMMANDS.items():
        assert f"  {name} " in shown
        assert command.summary in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("topcis",), "topics"),
        (("topics", "crate", "x"), "create"),
        (("topics", "create"), "NAME"),
        (("topics", "create", "x", "--partitions", "0"), "range"),
        (("topics", "create", "x", "--config", "y"), "NAME=VALUE"),
        (("topics", "alter", "x"), "Nothing to change"),
        (("topics", "list", "-b", "host:port"), "host:port"),
        (("consume", "x", "--offset", "soon"), "--offset takes"),
        (("consume", "x", "--offset", "1", "--timestamp", "2026-01-01"), "either"),
        (("consume", "x", "--timestamp", "noon"), "ISO 8601"),
        (("consume", "x", "--timestamp", "2027"), "ISO 8601"),
        (("consume", "x", "--offset", "99999999999999999999"), "--offset takes"),
        (("topics", "create", "x", "--partitions", "99999999999"), "not in the range"),
        (("topics", "create", "x", "--replication-factor", "40000"), "not in the range"),
        (("topics", "move", "x:0", "--to", "99999999999"), "--to takes"),
        (("topics", "delete-records", "x:0", "--before", "9" * 20), "--before takes"),
        (("cluster", "unregister", "99999999999"), "not in the range"),
        (("-b", "http://127.0.0.1:9092", "topics", "list"), "not an address"),
        (("-b", "\udcff", "topics", "list"), "not an address"),
        (("consume", "x", "--format", "xml"), "verbose"),
        (("consume", "x", "--format", "%z"), "%z"),
        (("configs", "describe"), "Give one of"),
        (("configs", "describe", "--broker", "x"), "--broker takes"),
        (("configs", "alter", "--topic", "x"), "Nothing to change"),
        (("configs", "describe", "--broker", LONG), "--broker takes"),
        (("why", f"orders/{LONG}"), "is neither TOPIC nor TOPIC/PARTITION"),
        (("why", "orders/\u0661"), "is neither TOPIC nor TOPIC/PARTITION"),
        (("record", f"orders/{LONG}"), "is neither TOPIC nor TOPIC/PARTITION"),
        (("record", "orders/\u00b2"), "is neither TOPIC nor TOPIC/PARTITION"),
        (("transactions", "producers", f"orders/{LONG}"), "A partition is given as"),
        (("transactions", "find-hanging", "--older-than", f"P{LONG}D"), "ISO 8601 duration"),
        (("transactions", "find-hanging", "--older-than", "P9999999999999D"), "at most"),
        (("topics", "elect", f"orders:{LONG}"), "Partitions are named as"),
        (("-b", f"localhost:{LONG}", "topics", "list"), "not an address"),
        (("serve", "--listen", f"localhost:{LONG}"), "not an address"),
        (("consume", "t", "--group", "\udcff"), "group.id is '\\udcff', which is not UTF-8"),
        (("consume", "t", "--share-group", "\udcff"), "group.id is '\\udcff', which is not UTF-8"),
        (("groups", "reset", "g", "--to-latest"), "either"),
        (("groups", "reset", "g", "--topic", "t"), "exactly one"),
        (("groups", "reset", "g", "--topic", "t", "--to-latest", "--to-offset", "1"), "one of"),
        (("groups", "reset", "g", "--topic", "t", "--by-duration", "P1Y"), "ISO 8601"),
        (("groups", "reset", "g", "--topic", "t", "--to-offset", "-1"), "--to-offset takes"),
        (("produce", "t", "--format", "json", "--key-separator", ":"), "lines"),
        (("dump", "README.md"), "not called like"),
        (("serve", "--set", "nonsense"), "name=value"),
        (("serve", "--listen", "9092"), "--listen takes HOST:PORT, not '9092'"),
        (("serve", "--listen", "localhost"), "--listen takes HOST:PORT, not 'localhost'"),
        (("serve", "--set", "log.retention.mss=1"), "did you mean log.retention.ms?"),
        (("serve", "--config", "/nowhere/x.properties"), "cannot be read"),
    ],
)
def test_wrong_usage_ends_with_2(
    alone: Callable[..., Any], arguments: tuple[str, ...], sentence: str
) -> None:
    ended = alone(*arguments)
    assert ended.code == 2, ended
    assert sentence in ended.err


def test_without_a_broker_one_sentence(alone: Callable[..., Any]) -> None:
    ended = alone("-b", "127.0.0.1:1", "topics", "list")
    assert ended == (
        1,
        "",
        "Cannot connect to 127.0.0.1:1: Connection refused. [BROKER_NOT_AVAILABLE]",
    )
