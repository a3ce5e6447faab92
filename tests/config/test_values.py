"""Values: text to value and back, and what rules refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.config.allowed import (
    ListOf,
    OneOf,
    Range,
    ShareOffsetReset,
    ThrottledReplicas,
    at_least,
    between,
    share_reset_ms,
)
from strandline.config.definition import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from strandline.config.values import Kind, Value, format_value, parse_value

item = st.text(
    alphabet=st.characters(codec="ascii", exclude_characters=", \t\n\r\f\v", min_codepoint=33),
    min_size=1,
)


@given(st.integers(-(2**31), 2**31 - 1))
def test_integers_come_back(number: int) -> None:
    assert parse_value(Kind.INT, format_value(number) or "") == number


@given(st.integers().filter(lambda number: not -(2**31) <= number < 2**31))
def test_integers_beyond_the_kind_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)[:10]):
        parse_value(Kind.INT, str(number))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_come_back(number: float) -> None:
    assert parse_value(Kind.DOUBLE, format_value(number) or "") == number


@given(st.lists(item, min_size=1).map(tuple))
def test_lists_come_back(items: tuple[str, ...]) -> None:
    assert parse_value(Kind.LIST, f" {format_value(items)} ") == items


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.5"), (1e7, "1.0E7"), (123456789.0, "1.23456789E8"), (1e-4, "1.0E-4"),
     (1.7976931348623157e308, "1.7976931348623157E308"), (0.0, "0.0"), (-2e10, "-2.0E10")],
)  # fmt: skip
def test_doubles_are_written_as_java_does(number: float, text: str) -> None:
    assert format_value(number) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.BOOLEAN, "yes"), (Kind.BOOLEAN, ""), (Kind.INT, "1_0"), (Kind.INT, "٣"),
     (Kind.SHORT, "32768"), (Kind.LONG, "9" * 5000), (Kind.DOUBLE, "nan"), (Kind.DOUBLE, "1_0")],
)  # fmt: skip
def test_text_that_is_no_value(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match=r"^.*$"):
        parse_value(kind, text)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (at_least(1), 1, 0),
        (at_least(1), 2, None),
        (between(0, 0.5), 0.5, 0.6),
        (OneOf("a", "b"), "a", "A"),
        (OneOf("A", any_case=True), "a", "b"),
        (ListOf("a", "b"), (), ("c",)),
        (ListOf(empty=False), ("x",), ()),
        (ListOf(), ("x",), ("x", "")),
        (ThrottledReplicas(), ("1:2", "3:4"), ("1:x",)),
        (ThrottledReplicas(), ("*",), ("*", "1:2")),
    ],
)
def test_rules(rule: Range, good: Value, bad: Value) -> None:
    assert rule.problem(good) is None
    assert rule.problem(bad)


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        ("P2D", 172_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT1H1M1.25S", 90_061_250),
        ("PT0.0019S", 1),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("PT-1H", None),
        ("PT1.S", None),
        ("PT\u0661H", None),
        ("PT1H\n", None),
    ],
)
def test_where_a_share_group_starts_is_some_time_ago(duration: str, ms: int | None) -> None:
    text = f"by_duration:{duration}"
    assert share_reset_ms(text) == ms
    assert (ShareOffsetReset().problem(text) is None) == (ms is not None)


def test_every_default_is_allowed() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values(), *BROKER_SETTINGS.values()):
        if setting.default is not None:
            assert setting.allowed.problem(setting.default) is None, setting.name


def test_every_setting_has_a_sentence_of_meaning() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values(), *BROKER_SETTINGS.values()):
        assert setting.doc.endswith("."), setting.name
        assert "|" not in setting.doc
