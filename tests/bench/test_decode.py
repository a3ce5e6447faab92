"""The bench of the decoder: that every reader reads all of what is made for it."""

from __future__ import annotations

import os

import pytest

from bench.decode import CASES, READERS, Case, measure, print_rates, stored
from strandline.records.batch import iterate_headers


# kafka-python reads its own descriptions in a way that Python has deprecated.
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_reader_reads_every_case(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    data, count = stored(case, 200_000)
    assert sum(header.record_count for _, header in iterate_headers(data)) == count
    assert {header.codec for _, header in iterate_headers(data)} == {case.codec}
    rates = measure([case], 200_000, 1)
    assert [rate.reader for rate in rates] == list(READERS)
    assert all(rate.records_per_second > 0 for rate in rates)
    assert "STRANDLINE_PURE_PYTHON" not in os.environ
    print_rates(rates)
    assert case.name in capsys.readouterr().out
