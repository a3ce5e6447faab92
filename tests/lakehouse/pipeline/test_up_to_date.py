"""Runs to the end of a topic that has nothing new: they end without Spark, and as others do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from strandline.client.admin import Admin
from strandline.client.offsets import committed_offsets
from strandline.errors import ErrorCode, ProtocolError
from strandline.lakehouse.pipeline import log_facts
from strandline.lakehouse.pipeline.errors import RecordsLost, TopicMissing
from strandline.lakehouse.pipeline.events import Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.runner import StopRequest
from strandline.lakehouse.pipeline.running import NeverStopped, run_table
from strandline.lakehouse.pipeline.start_offsets import LogFacts
from strandline.lakehouse.pipeline.up_to_date import finish_if_up_to_date, look
from strandline.lakehouse.tables.identity import group_of
from strandline.types import Offset, TopicPartition
from tests.lakehouse.pipeline.conftest import TableUnderTest
from tests.lakehouse.tables.table_world import TOPIC, TableWorld

MakeTable = Callable[..., TableUnderTest]


def end_at_once(table: TableUnderTest, *, accepts_loss: bool = False) -> list[Event] | None:
    """What was told; None if there is work."""
    told: list[Event] = []
    chosen = RunOptions(bootstrap=table.bootstrap, once=True, accepts_loss=accepts_loss)
    begin = look(table.store, chosen, told.append, NeverStopped())
    return told if finish_if_up_to_date(table.store, begin, chosen, told.append) else None


def published(table: TableUnderTest, partitions: int) -> list[int | None]:
    """The offsets of the table's group."""
    places = [TopicPartition(table.topic, number) for number in range(partitions)]
    found = committed_offsets(table.client, group_of("t"), places)
    return [found[each].offset if each in found else None for each in places]


def test_nothing_is_new_until_something_is(make_table: MakeTable) -> None:
    """An empty topic; then all kinds of records, in the table and beside it; then a partition."""
    table = make_table(partitions=2, event_time="at", watermark_ms=1000)
    assert end_at_once(table) is not None
    assert published(table, 2) == [0, 0]

    table.produce([(None, {"n": 1, "at": "2026-03-01T05:00:00Z"})])
    assert end_at_once(table) is None
    table.run()
    table.produce([(None, {"n": 2, "at": "2026-03-01T04:00:00Z"}), (None, b"poison")])
    assert end_at_once(table) is None
    table.run()
    Admin(table.client).groups.delete(group_of("t"))
    told = end_at_once(table)
    assert told is not None
    started, said, stopped = told
    assert isinstance(started, Started)
    assert (started.partitions, started.committed) == (2, 3)
    assert isinstance(said, Notice)
    assert "Spark was not started" in said.sentence
    assert isinstance(stopped, Stopped)
    assert (stopped.commits, stopped.rows) == (0, 0)
    for each in (started, stopped):
        assert each.lag is not None
        assert (each.lag.records, each.lag.seconds) == (0, 0.0)
    assert published(table, 2) == [3, 0]
    assert table.verify().is_good

    Admin(table.client).topics.add_partitions(table.topic, 3)
    table.client.forget([table.topic])
    assert end_at_once(table) is not None
    assert published(table, 3) == [3, 0, 0]
    table.produce([(None, {"n": 3, "at": "2026-03-01T06:00:00Z"})], partition=2)
    assert end_at_once(table) is None


def test_a_stop_while_brokers_are_looked_for_ends_the_run(make_table: MakeTable) -> None:
    """It is told once; the run itself has another request, which is never set."""

    class Told:
        is_set = True

    table = make_table()
    requests: Iterator[StopRequest] = iter([Told()])
    told: list[Event] = []
    stopped = run_table(
        table.spec,
        RunOptions(bootstrap=table.bootstrap),
        on_event=told.append,
        stop=lambda: nullcontext(next(requests)),
    )
    assert (stopped.commits, stopped.rows) == (0, 0)
    assert told[-1] == stopped


def test_what_must_be_said_of_the_log_is_said(make_table: MakeTable) -> None:
    """A log that is behind retention is no log without news, accepted or not; nor is a lost one."""
    table = make_table()
    table.produce([(None, {"n": each}) for each in range(4)])
    table.run()
    table.produce([(None, {"n": 4})])
    Admin(table.client).topics.delete_records({TopicPartition(table.topic, 0): Offset(5)})
    with pytest.raises(RecordsLost, match="offsets 4 to 5"):
        end_at_once(table)
    assert end_at_once(table, accepts_loss=True) is None
    table.run(accepts_loss=True)
    assert end_at_once(table) is not None
    assert Admin(table.client).topics.delete([table.topic]) == {table.topic: None}
    with pytest.raises(TopicMissing, match=table.topic):
        end_at_once(table)


def test_an_election_is_waited_for_whatever_the_patience_with_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They answer, and will have a leader."""
    table = TableWorld(tmp_path / "t")
    facts = LogFacts({TOPIC: None}, earliest={}, latest={})
    answers: Iterator[ProtocolError | LogFacts]
    answers = iter([ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, "No leader."), facts])

    def ask(*given: object) -> LogFacts:
        if isinstance(answer := next(answers), ProtocolError):
            raise answer
        return answer

    monkeypatch.setattr(log_facts, "ask", ask)
    told: list[Event] = []
    chosen = RunOptions(bootstrap="127.0.0.1:1", once=True, waits_at_start=False)
    assert not look(table.store, chosen, told.append, NeverStopped()).has_work
    [notice] = told
    assert isinstance(notice, Notice)
    assert notice.sentence.startswith("No leader. Trying again until")

    for code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.SASL_AUTHENTICATION_FAILED):
        answers = iter([ProtocolError(code, "No.")])
        with pytest.raises(ProtocolError, match="No"):
            look(table.store, chosen, told.append, NeverStopped())
    assert told == [notice]
