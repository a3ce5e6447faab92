"""Logs that are not what a table left: retention was faster, topics were made again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.client.admin import Admin
from strandline.lakehouse.pipeline.errors import RecordsLost, TopicMissing
from strandline.lakehouse.tables.errors import TopicRecreated
from strandline.lakehouse.verify.coverage import Span
from strandline.lakehouse.verify.report import Verdict
from strandline.types import Offset, TopicPartition
from tests.lakehouse.pipeline.conftest import TableUnderTest

MakeTable = Callable[..., TableUnderTest]


def test_retention_overtakes_the_table(make_table: MakeTable) -> None:
    """It stops and says so; told to go on, it notes the loss, and the proof tells it."""
    table = make_table()
    here = TopicPartition(table.topic, 0)
    table.produce([(None, {"n": each}) for each in range(4)])
    table.run()
    table.produce([(None, {"n": each}) for each in range(4, 10)])
    Admin(table.client).topics.delete_records({here: Offset(7)})
    with pytest.raises(RecordsLost, match=f"offsets 4 to 7 of {here}"):
        table.run()
    assert len(table.rows("n")) == 4

    table.run(accepts_loss=True)
    assert next(each.lost for each in table.commits if each.lost)[0][2:4] == (4, 7)
    assert table.rows("n") == [(each,) for each in (0, 1, 2, 3, 7, 8, 9)]
    report = table.verify()
    assert report.is_good, report
    assert report.partitions[here].lost == [Span(4, 7)]
    assert (report.total(Verdict.GOOD), report.total(Verdict.UNPROVABLE)) == (3, 4)
    assert any("gone before the table could read them" in each for each in report.sentences())


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_partition_that_was_trimmed_before_the_first_run_is_no_loss(
    make_table: MakeTable, table_format: str
) -> None:
    table = make_table(partitions=2, format=table_format)
    table.produce([(None, {"n": 0})] * 3, partition=1)
    Admin(table.client).topics.delete_records({TopicPartition(table.topic, 1): Offset(3)})
    table.produce([(None, {"n": 1})], partition=0)
    table.run()
    assert table.run().commits == 0
    assert table.verify().is_good
    table.produce([(None, {"n": 2})], partition=1)
    table.run()
    assert table.rows("n") == [(1,), (2,)]
    report = table.verify(everything=True)
    assert report.is_good, report
    assert report.total(Verdict.GOOD) == 2


def test_the_topic_is_deleted_and_made_again(
    make_table: MakeTable, new_topic: Callable[..., str]
) -> None:
    """Offsets begin anew and mean other records: nothing is mixed, whatever is accepted."""
    table = make_table()
    table.produce([(None, {"n": 1}), (None, {"n": 2})])
    table.run()
    admin = Admin(table.client)
    assert admin.topics.delete([table.topic]) == {table.topic: None}
    with pytest.raises(TopicMissing, match=table.topic):
        table.run()
    admin.topics.create(table.topic, partitions=1)
    table.client.forget([table.topic])
    table.produce([(None, {"n": each}) for each in range(5)])
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        table.run(accepts_loss=True)
    assert table.rows("n") == [(1,), (2,)]
