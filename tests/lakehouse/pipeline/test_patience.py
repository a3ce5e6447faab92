"""What a run says while it tries again."""

from __future__ import annotations

import math
import re

import pytest

from strandline.lakehouse.pipeline.events import Event, Notice
from strandline.lakehouse.pipeline.patience import Patience


@pytest.mark.parametrize(
    ("limit_s", "said"),
    [
        (60.0, r"No\. Trying again until \d\d:\d\d:\d\d \(--patience 60 s\), from where .*"),
        (172_800.0, r"No\. Trying again \(--patience 172800 s\), from where .*"),
        (1e15, r"No\. Trying again \(--patience 1e\+15 s\), from where .*"),
        (math.inf, r"No\. Trying again \(--patience inf s\), from where .*"),
    ],
)
def test_a_time_of_the_day_is_said_of_today_only(limit_s: float, said: str) -> None:
    told: list[Event] = []
    patience = Patience(limit_s, told.append)
    assert not patience.is_over()
    patience.tell("No.")
    [notice] = told
    assert isinstance(notice, Notice)
    assert re.fullmatch(said, notice.sentence)
