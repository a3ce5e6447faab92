"""Names of others on a terminal: they move no cursor, and each terminal can show them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from strandline.cli.output import json_text, print_json, print_table
from tests.cli.conftest import Ended

EVIL = "gr\x1b]0;pwned\x07\x9b31m\ud800"
SHOWN = r"gr\x1b]0;pwned\x07\x9b31m\ud800"


def test_cells_of_tables_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "LAG"), [(EVIL, 1), ("Größe 日本", 20)])
    head, first, second = capsys.readouterr().out.splitlines()
    assert first == f"{SHOWN}    1"
    assert second == "Größe 日本".ljust(len(SHOWN)) + "   20"
    assert head == "GROUP".ljust(len(SHOWN)) + "  LAG"


def test_json_means_the_same_and_has_nothing_that_moves_a_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {EVIL: [EVIL, "日本", "a\nb", "\U000e0001"]}
    print_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == value == json.loads(json_text(value, separators=(",", ":")))
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "日本" in out


@pytest.fixture
def group(address: str, strandline: Callable[..., Ended], name: str) -> str:
    """A group whose name would colour a terminal and not every terminal can show."""
    strandline("topics", "create", name)
    found = f"{name}-\x1b[31m-日本\U0001f600"
    with Consumer({"bootstrap.servers": address, "group.id": found}) as member:
        member.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    return found


def test_a_terminal_without_the_letters_of_a_name_is_no_failure(
    spawn: Callable[..., Ended], group: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"{name}-\\x1b[31m-日本\U0001f600 " in spawn("groups", "list").out
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    escaped = rf"{name}-\x1b[31m-\u65e5\u672c\U0001f600 "
    for arguments in (("groups", "list"), ("groups", "describe", group)):
        ended = spawn(*arguments)
        assert (ended.code, escaped in ended.out) == (0, True), ended.err
    listed = spawn("groups", "list", "--json")
    assert group in {each["group"] for each in listed.json}
