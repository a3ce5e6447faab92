from __future__ import annotations

import pytest

from bench.results import Result, Results, Spread, spread


def results_of(**values: list[float]) -> Results:
    """Requests per second of each broker, one value per round."""
    results = Results()
    for broker, rounds in values.items():
        for number, value in enumerate(rounds, start=1):
            results.add(Result("tiny", broker, number, {"requests_per_second": value}))
    return results


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert spread([9.0, 1.0, 4.0]) == Spread(median=4.0, low=1.0, high=9.0, rounds=3)


def test_nothing_has_no_spread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        spread([])
    assert results_of(ours=[1.0]).spread("tiny", "p50_us", "ours") is None


def test_the_ratio_is_of_medians_and_its_spread_is_round_by_round() -> None:
    results = results_of(ours=[100.0, 300.0, 200.0], theirs=[50.0, 100.0, 400.0])

    comparison = results.compare("tiny", "requests_per_second", subject="ours", other="theirs")

    assert comparison is not None
    assert (comparison.ratio, comparison.low, comparison.high) == (2.0, 0.5, 3.0)


def test_rounds_that_only_one_broker_finished_count_for_medians_only() -> None:
    results = results_of(ours=[10.0, 10.0, 90.0], theirs=[5.0, 5.0])

    comparison = results.compare("tiny", "requests_per_second", subject="ours", other="theirs")

    assert comparison is not None
    assert (comparison.ratio, comparison.low, comparison.high) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("theirs", [[], [0.0]])
def test_there_is_no_ratio_to_nothing(theirs: list[float]) -> None:
    results = results_of(ours=[1.0], theirs=theirs)

    assert results.compare("tiny", "requests_per_second", subject="ours", other="theirs") is None


def test_a_metric_that_the_report_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="requests_per_fortnight"):
        Results().add(Result("tiny", "ours", 1, {"requests_per_fortnight": 1.0}))


def test_workloads_keep_the_order_of_their_first_run() -> None:
    results = Results(Result(name, "ours", 1, {}) for name in ("b", "a", "b"))

    assert results.workloads() == ["b", "a"]
