"""Questions to the demo's table, and their answers as rows of text.

Flights that left more than the watermark late are in the table of late rows: they are part of the
truth, so that every question is asked of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import SparkSession

from strandline.lakehouse.demo.flights import airport_names
from strandline.lakehouse.rebuild.rows import rows_of
from strandline.lakehouse.tables.definition import LATE
from strandline.lakehouse.tables.store import TableStore


class Answer(NamedTuple):
    """A question, and a table of values."""

    question: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


_QUESTIONS = {
    "From which airport do flights leave latest?": """
        select origin as airport, count(*) as flights,
               round(avg(dep_delay), 1) as mean_delay_min, max(dep_delay) as worst_min,
               round(100 * avg(cast(dep_delay > 60 as int)), 1) as over_an_hour_percent
        from flights group by origin order by mean_delay_min desc""",
    "Where do they arrive latest?": """
        select coalesce(names.name, dest) as destination, count(*) as flights,
               round(avg(arr_delay), 1) as mean_delay_min
        from flights left join names on names.code = dest
        group by 1 having count(*) >= {least} order by mean_delay_min desc limit 5""",
    "At what hour should one leave?": """
        select hour, count(*) as flights, round(avg(dep_delay), 1) as mean_delay_min
        from flights group by hour having count(*) >= {least} order by mean_delay_min limit 5""",
}


def answers(spark: SparkSession, store: TableStore) -> Iterator[Answer]:
    """Ask them all."""
    flights = rows_of(spark, store, None).unionByName(rows_of(spark, store, LATE)).persist()
    flights.createOrReplaceTempView("flights")
    names = spark.createDataFrame(sorted(airport_names().items()), "code string, name string")
    names.createOrReplaceTempView("names")
    least = max(1, flights.count() // 500)
    for question, query in _QUESTIONS.items():
        found = spark.sql(query.format(least=least))
        yield Answer(question, tuple(found.columns), [tuple(row) for row in found.collect()])
    flights.unpersist()
