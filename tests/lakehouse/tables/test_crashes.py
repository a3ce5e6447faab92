"""A crash before or after every change that a commit makes; then the batch again.

Every place is tried: the run is repeated with the crash one change later until it gets through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.tables.delta import DeltaBackend
from strandline.lakehouse.tables.delta_spark import SparkDeltaBackend
from strandline.lakehouse.tables.iceberg import IcebergBackend
from tests.lakehouse.tables.table_world import TableWorld, Value

WATERMARK = {"event_time": "t", "watermark_ms": 1000}
FIRST: list[Value] = [{"t": 10_000, "a": 1}, b"bad"]
SECOND: list[Value] = [{"t": 20_000, "b": "x"}, b"worse", {"t": 2_000, "a": 2}]


class Crash(BaseException):
    """The process is gone: nothing may handle this."""


@contextmanager
def crash_at(
    monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool, files: ModuleType | None = None
) -> Iterator[list[str]]:
    """Crash before or after change `number` of any table, or of what `files` writes or removes."""
    made: list[str] = []

    def crashing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **options: Any) -> Any:
            made.append(name)
            here = len(made) - 1 == number
            if here and not after:
                raise Crash
            result = original(*arguments, **options)
            if here:
                raise Crash
            return result

        return change

    with monkeypatch.context() as patch:
        for kind in (DeltaBackend, IcebergBackend, SparkDeltaBackend):
            for name in ("create", "evolve", "commit", "rename"):
                if name in vars(kind):
                    patch.setattr(kind, name, crashing(name, getattr(kind, name)))
        if files is not None:
            for name in ("replace_text", "remove"):
                patch.setattr(files, name, crashing(name, getattr(files, name)))
        yield made


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fresh", [False, True], ids=["same checkpoint", "fresh checkpoint"])
def test_a_batch_lands_once_wherever_its_commit_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, *, fresh: bool, after: bool
) -> None:
    def table_in(directory: Path) -> TableWorld:
        return TableWorld(directory, format=table_format, **WATERMARK)

    for number in count():
        directory = tmp_path / str(number)
        table_in(directory).batch("q", 0, FIRST)
        try:
            with crash_at(monkeypatch, number, after=after) as made:
                table_in(directory).batch("q", 1, SECOND, start=2)
        except Crash:
            pass
        else:
            assert number == len(made) > 3, made
            break
        table = table_in(directory)
        if fresh:
            table.batch("fresh", 0, [*FIRST, *SECOND, {"t": 30_000}])
            assert table.offsets() == [0, 2, 5]
        else:
            table.batch("q", 1, SECOND, start=2)
            assert table.offsets() == [0, 2]
        assert table.letters() == [1, 3]
        assert table.late() == [4]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_letter_is_a_letter_or_a_row_wherever_its_replay_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, *, after: bool
) -> None:
    for number in count():
        directory = tmp_path / str(number)
        strict = TableWorld(directory, format=table_format, evolve=False, columns={"a": "long"})
        strict.batch("q", 0, [{"a": 0}, {"b": 1}, b"bad", {"b": 3}])
        assert (strict.offsets(), strict.letters()) == ([0], [1, 2, 3])
        fixed = TableWorld(directory, format=table_format)
        try:
            with crash_at(monkeypatch, number, after=after) as made:
                replay(fixed.store)
        except Crash:
            pass
        else:
            assert number == len(made) > 2, made
            break
        fixed.reopen()
        before = fixed.offsets() + fixed.letters()
        assert sorted(before) == [0, 1, 2, 3]
        replay(fixed.store)
        assert (fixed.offsets(), fixed.letters()) == ([0, 1, 3], [2])
        assert fixed.batch("q", 1, [{"a": 4}], start=4).rows == 1
