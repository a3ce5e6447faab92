"""What is kept of many looks, to be drawn over time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.node.status.meters import BUCKETS_MS
from strandline.ui.lag_sampler import ends_of
from strandline.ui.picture import Picture
from strandline.ui.series import COARSE_MAX, COLUMNS, FINE_MAX, LAGS_MAX, Series


def look(number: int, wall_ms: int, **broker: Any) -> Picture:
    """A cluster of one broker, whose partition has two replicas of 100 bytes."""
    rates = {"bytes_in": 10.0 * number, "bytes_out": 0.0, "records_in": 1.0}
    told = {"id": 1, "error": None, "rates": rates, "produce": None} | broker
    in_sync = broker.pop("in_sync", [1, 2])
    copies: list[list[Any]] = [[each, 0, 0, 0, 0, [], False, None, 100] for each in (1, 2)]
    row = ["t", 0, 1, 0, [1, 2], in_sync, copies]
    return Picture(number, wall_ms, 1, (told,), {("t", 0): row})


def points(series: Series, kind: str = "fine", after: int = 0) -> list[dict[str, Any]]:
    told = series.told(kind, after)
    return [dict(zip(told["columns"], point, strict=True)) for point in told["points"]]


def test_a_point_is_the_mean_of_rates_and_the_sum_of_events() -> None:
    series = Series()
    for number, in_sync in enumerate(([1, 2], [1, 2], [1], [1, 2]), start=1):
        series.add(look(number, 10_000 + 500 * (number - 1), in_sync=in_sync))
    (point,) = points(series)
    assert point["bytes_in"] == 25.0
    assert point["in_sync_changes"] == 2
    assert (point["under_replicated"], point["log_bytes"]) == (0, 200)
    assert (point["wall_ms"], set(point)) == (11_500, {"wall_ms", *COLUMNS})


def test_times_of_produce_requests_are_bounds_of_buckets() -> None:
    series = Series()
    buckets = [0] * (len(BUCKETS_MS) + 1)
    series.add(look(1, 10_000, produce=[0, *buckets]))
    buckets[0], buckets[4] = 95, 5
    series.add(look(2, 12_000, produce=[100, *buckets]))
    series.add(look(3, 14_000, produce=[3, *buckets]))  # counts from zero again
    times = [(each["produce_median_ms"], each["produce_p99_ms"]) for each in points(series)]
    assert times == [(None, None), (1, 50), (None, None)]


def test_rings_have_an_end() -> None:
    series = Series()
    for number in range(COARSE_MAX + 5):
        series.add(look(number, 60_000 * number))
        series.add(look(number, 60_000 * number + 30_000))
        series.add_lags(number, {"readers": number})
    fine, coarse = points(series), points(series, "coarse")
    assert (len(fine), len(coarse)) == (FINE_MAX, COARSE_MAX)
    assert coarse[0]["wall_ms"] == 60_000 * 5 + 30_000
    assert len(series.told("fine", 0)["lags"]) == LAGS_MAX


def test_only_what_is_newer_is_told() -> None:
    series = Series()
    for number in range(5):
        series.add(look(number, 2_000 * number))
        series.add_lags(2_000 * number, {"readers": number})
    assert [each["wall_ms"] for each in points(series, after=4_000)] == [6_000, 8_000]
    assert series.told("fine", 4_000)["lags"] == [[6_000, {"readers": 3}], [8_000, {"readers": 4}]]


def test_a_silent_broker_has_no_rates() -> None:
    series = Series()
    series.add(look(1, 2_000, error="It does not answer in time.", rates=None))
    (point,) = points(series)
    assert (point["bytes_in"], point["brokers"]) == (None, 0)


def test_nothing_is_known_of_partitions_while_no_broker_answers() -> None:
    series = Series()
    series.add(look(1, 2_000, error="It does not answer in time.", rates=None))
    (point,) = points(series)
    assert point["brokers"] == 0
    assert {point[name] for name in ("under_replicated", "without_leader", "log_bytes")} == {None}


def test_the_end_of_a_partition_whose_brokers_are_silent_is_not_known() -> None:
    seen = look(1, 2_000)
    row = seen.partitions["t", 0]
    assert ends_of(seen) == {("t", 0): 0}
    assert ends_of(replace(seen, partitions={("t", 0): [*row[:5], None, []]})) == {("t", 0): None}
    assert ends_of(None) == {}
