"""Records in and out through pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import DEADLINE_S

Run = Callable[..., Any]


def test_lines_come_back(spawn: Run, name: str) -> None:
    made = spawn("produce", name, stdin=b"one\n\ntwo\r\nlast without an end")
    assert (made.code, made.out) == (0, "")
    assert made.err.startswith(f"4 records (25 bytes of values) written to '{name}' in ")
    assert spawn("consume", name, "-e").out == "one\n\ntwo\nlast without an end\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_headers_and_codecs(spawn: Run, name: str, codec: str) -> None:
    spawn(
        "produce", name, "--key-separator", "=>", "--header", "h=v", "--compression", codec,
        stdin=b"k1=>v1\nk2=>v2=>x\n",
    )  # fmt: skip
    found = spawn("consume", name, "-e", "--format", r"%t %p %o %k %K %s %S %h %%\n").out
    assert found.splitlines() == [
        f"{name} 0 0 k1 2 v1 2 h=v %",
        f"{name} 0 1 k2 2 v2=>x 5 h=v %",
    ]


def test_json_round_trip(spawn: Run, name: str) -> None:
    lines = [
        {"key": "k", "value": "ü", "headers": [["h", None], ["h", "2"]], "timestamp": 1},
        {"key": {"base64": "//8="}, "value": None},
        {"value": {"a": [1, 2]}, "headers": {"x": "y"}, "partition": 0},
    ]
    assert spawn("produce", name, "--format", "json", stdin=_json_lines(lines)).code == 0
    out = spawn("consume", name, "-e", "--format", "json").out
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["offset"] for each in found] == [0, 1, 2]
    assert (found[0]["key"], found[0]["value"], found[0]["timestamp"]) == ("k", "ü", 1)
    assert found[0]["headers"] == [["h", None], ["h", "2"]]
    assert (found[1]["key"], found[1]["value"]) == ({"base64": "//8="}, None)
    assert (found[2]["key"], found[2]["value"]) == (None, '{"a": [1, 2]}')
    assert spawn("produce", f"{name}-2", "--format", "json", stdin=out.encode()).code == 0
    again = spawn("consume", f"{name}-2", "-e", "--format", "json").out
    assert again.replace(f"{name}-2", name) == out


@pytest.mark.parametrize(
    "value",
    [
        '{"price":0.12345678901234567890123,"n":1e400,"id":1,"id":2}',
        '[ 1.0,\t"\\u00e9\\ud800", {"value": 3} ]',
        "-0.0",
        "true",
        "12345678901234567890123",
        f"[{'7' * 5000}]",
        "-" + "7" * 5000,
    ],
)
def test_json_values_are_sent_as_they_stand(spawn: Run, name: str, value: str) -> None:
    line = f' {{"value": 0, "headers": [["value", ","]] , "value" : {value} , "key":{value}}} '
    assert spawn("produce", name, "--format", "json", stdin=line.encode()).code == 0
    assert spawn("consume", name, "-e", "--format", "%k|%s").out == f"{value}|{value}"


def _json_lines(lines: list[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.mark.parametrize(
    ("form", "line", "sentence"),
    [
        ("json", b"{", "Line 2 is not JSON"),
        ("json", b"[]", "Line 2 is not a JSON object"),
        ("json", b'{"valeu": 1}', "Line 2 has the field 'valeu'"),
        ("json", b'{"partition": "x"}', "Line 2 has a partition that is not a whole number"),
        ("json", b'{"key": {"base64": "!"}}', "Line 2 has broken base64"),
        ("json", b'{"headers": 3}', "Line 2 has headers"),
        ("json", b'{"headers": [[1, "x"]]}', "Line 2 has a header"),
        ("json", b'{"timestamp": 9223372036854775808}', "Line 2 has a timestamp"),
        ("json", b'{"timestamp": -2}', "Line 2 has a timestamp"),
        ("json", b'{"value": "\\ud800"}', "Line 2 has a half of a character"),
        ("json", b'{"value": {"price": NaN}}', "Line 2 is not JSON: NaN is not JSON"),
        ("json", b'{"headers": {"a": [1e400]}}', "Line 2 has a number in a header"),
        ("json", b'{"headers": {"\\ud800": "x"}}', "Line 2 has a half of a character"),
        ("lines", b"no separator", "Line 2 has no key separator '|'"),
    ],
)
def test_a_bad_line_ends_after_those_before_it(
    spawn: Run, name: str, form: str, line: bytes, sentence: str
) -> None:
    first = b'{"value": "good"}' if form == "json" else b"k|good"
    more = () if form == "json" else ("--key-separator", "|")
    ended = spawn("produce", name, "--format", form, *more, stdin=first + b"\n" + line + b"\nx\n")
    assert ended.code == 1
    assert "1 record " in ended.err
    assert sentence in ended.err
    assert spawn("consume", name, "-e").out == "good\n"


def test_a_file_and_one_partition(spawn: Run, name: str, tmp_path: Path) -> None:
    spawn("topics", "create", name, "--partitions", "3")
    (tmp_path / "in").write_text("a\nb\n")
    spawn("produce", name, "--file", str(tmp_path / "in"), "--partition", "2", "--acks", "1")
    assert spawn("consume", name, "-e", "--partition", "2").out == "a\nb\n"
    assert spawn("consume", name, "-e", "--partition", "0", "--partition", "1").out == ""
    wrong = spawn("consume", name, "--partition", "3")
    assert (wrong.code, wrong.out) == (1, "")
    assert "no partition 3" in wrong.err


def test_a_refused_record_is_reported(spawn: Run, name: str) -> None:
    spawn("topics", "create", name, "--config", "max.message.bytes=200")
    ended = spawn("produce", name, stdin=b"x" * 1000 + b"\n")
    assert ended.code == 1
    assert f"1 record for partition {name}-0 was not written: " in ended.err
    assert "[MESSAGE_TOO_LARGE]" in ended.err


def test_only_what_is_acknowledged_counts_as_written(spawn: Run, name: str) -> None:
    spawn("topics", "create", name, "--config", "max.message.bytes=200")
    ended = spawn("produce", name, stdin=b"good\n" + b"x" * 1000 + b"\nfine too\n")
    assert ended.code == 1
    assert ended.err.startswith(f"2 records (12 bytes of values) written to '{name}' in ")
    assert f"1 record for partition {name}-0 was not written: " in ended.err
    assert spawn("consume", name, "-e").out == "good\nfine too\n"


def test_places_to_start(spawn: Run, name: str) -> None:
    lines = [{"value": str(number), "timestamp": 1000 * number} for number in range(10)]
    spawn("produce", name, "--format", "json", stdin=_json_lines(lines))
    for arguments, expected in (
        (("--offset", "7"), "789"),
        (("--offset", "-2"), "89"),
        (("--offset", "latest"), ""),
        (("--offset", "earliest", "--max", "3"), "012"),
        (("--timestamp", "1970-01-01T00:00:05Z", "--max", "2"), "56"),
        (("--timestamp", "1970-01-01T00:00:08"), "89"),
    ):
        found = spawn("consume", name, "-e", *arguments)
        assert (found.code, found.out.replace("\n", "")) == (0, expected), arguments


def test_a_group_goes_on_behind_what_was_printed(spawn: Run, name: str) -> None:
    spawn("produce", name, stdin=b"1\n2\n3\n4\n5\n")
    group = ("--group", name)
    assert spawn("consume", name, *group, "--max", "2").out == "1\n2\n"
    assert spawn("consume", name, *group, "--max", "1").out == "3\n"
    assert spawn("consume", name, *group, "-e").out == "4\n5\n"
    assert spawn("consume", name, *group, "-e").out == ""
    assert spawn("consume", name, *group, "-e", "--offset", "4").out == "5\n"


def test_verbose_lines_are_safe_to_look_at(spawn: Run, name: str) -> None:
    line = {"key": "a\x1b[31m", "value": {"base64": "/wo="}, "timestamp": 0}
    spawn("produce", name, "--format", "json", stdin=_json_lines([line]))
    assert spawn("consume", name, "-e", "--format", "verbose").out == (
        f"{name}-0 @ 0  1970-01-01T00:00:00.000Z  key=a\\x1b[31m  value=\\xff\\n\n"
    )


def test_a_reader_that_goes_away_ends_it_quietly(address: str, spawn: Run, name: str) -> None:
    spawn("produce", name, stdin=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    process = _start(address, "consume", name, "--group", name)
    assert process.stdout is not None
    assert process.stdout.readline() == b"x" * 99 + b"\n"
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 0
    assert process.stderr is not None
    assert process.stdin is not None
    process.stdin.close()
    with process.stderr:
        assert process.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_that_is_stopped_commits_and_leaves_its_group(
    address: str, spawn: Run, name: str, number: signal.Signals
) -> None:
    spawn("produce", name, stdin=b"1\n")
    process = _start(address, "consume", name, "--group", name)
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, len(err.splitlines())) == (0, b"", number == signal.SIGINT)
    assert "members 0" in spawn("groups", "describe", name).out
    assert spawn("consume", name, "-e", "--group", name).out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lines_of_a_slow_pipe_are_sent_while_it_is_silent(
    address: str, spawn: Run, name: str, number: signal.Signals
) -> None:
    spawn("topics", "create", name)
    process = _start(address, "produce", name)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert spawn("consume", name, "--max", "1").out == "first\n"
    process.stdin.write(b"second\n")
    process.stdin.flush()
    assert spawn("consume", name, "--offset", "1", "--max", "1").out == "second\n"
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == 0
    _, err = process.communicate()
    assert err.splitlines()[-1].startswith(b"2 records ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_half_a_line_is_no_record_when_the_command_is_stopped(
    address: str, spawn: Run, name: str, number: signal.Signals
) -> None:
    spawn("topics", "create", name)
    process = _start(address, "produce", name)
    assert process.stdin is not None
    process.stdin.write(b"whole\nhal")
    process.stdin.flush()
    assert spawn("consume", name, "--max", "1").out == "whole\n"  # so both were read
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == 0
    _, err = process.communicate()
    assert err.splitlines()[-1].startswith(b"1 record ")
    assert spawn("consume", name, "-e").out == "whole\n"


def _start(address: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "STRANDLINE_BOOTSTRAP": address},
    )


def test_an_input_is_one_transaction(spawn: Run, name: str) -> None:
    read = ("consume", name, "-e", "--isolation", "read_committed")
    whole = ("produce", name, "--format", "json", "--transactional-id", name)
    made = spawn(*whole, stdin=_json_lines([{"value": "a"}, {"value": "b"}]))
    assert (made.code, made.out) == (0, "")
    assert made.err.startswith("2 records (2 bytes of values) written")
    assert spawn(*read).out == "a\nb\n"
    # A bad line aborts all of it, or all behind the last commit.
    bad = spawn(*whole, stdin=b'{"value": "c"}\nnonsense\n')
    assert bad.code == 1
    assert "The transaction with the last 1 record was aborted." in bad.err
    assert "0 records" in bad.err
    some = (*whole, "--transaction-records", "1")
    assert spawn(*some, stdin=b'{"value": "d"}\nnonsense\n').code == 1
    assert spawn(*read).out == "a\nb\nd\n"


def test_transactions_need_what_they_need(spawn: Run, name: str) -> None:
    for options, sentence in (
        (("--transaction-records", "2"), "--transaction-records needs --transactional-id."),
        (("--transactional-id", ""), "--transactional-id must not be empty."),
        (("--transactional-id", "t", "--acks", "1"), "--transactional-id needs --acks all."),
    ):
        refused = spawn("produce", name, *options, stdin=b"")
        assert refused.code == 2
        assert sentence in refused.err
