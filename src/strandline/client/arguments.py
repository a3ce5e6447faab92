"""What programs give, checked where Python would take a mistake for something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Final

from strandline.errors import InvalidSetting
from strandline.numerals import INT32_MAX, INT64_MAX
from strandline.types import Offset, TopicPartition

_NUMBER: Final = "The number of a partition"


def several(names: Iterable[str], what: str) -> list[str]:
    """The names. Raises `TypeError` for a string alone, which would be taken for its letters:
    `delete_topics("ab")` would delete the topics `a` and `b`."""
    if isinstance(names, str):
        raise TypeError(f"{what} are several names: [{names!r}], not {names!r}.")
    return [a_name(each) for each in names]


def a_name(name: str) -> str:
    """The name. Raises `TypeError` for what is no text, since brokers would be asked about its text
    form, and `ValueError` for what no request can have."""
    if not isinstance(name, str):
        raise TypeError(f"A name is text, not {type(name).__name__}: {name!r}.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"A name is UTF-8, which {name!r} is not.") from error
    return name


def check_name(setting: str, name: str) -> None:
    """Raise `InvalidSetting` for a name that is empty, or that no request can have."""
    if not name:
        raise InvalidSetting(setting, f"{setting} must not be empty.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidSetting(setting, f"{setting} is {name!r}, which is not UTF-8.") from error


def a_number(number: int, what: str) -> int:
    """The number. Raises `TypeError` for what is no whole number: 1.0 equals 1 in every comparison,
    and cannot be sent."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} is a whole number, not {type(number).__name__}: {number!r}.")
    return index(number)


def several_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions. Raises `TypeError` for one alone, which is a tuple itself, and for what is
    none, and `ValueError` for a number that no partition has."""
    if isinstance(partitions, TopicPartition):
        raise TypeError(f"Partitions are several: [{partitions!r}], not {partitions!r}.")
    found = list(partitions)
    for each in found:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"A partition is a TopicPartition('orders', 0), not {each!r}.")
        a_name(each.topic)
        number = a_number(each.partition, _NUMBER)
        _within(number, 0, INT32_MAX, _NUMBER)
    return found


def by_partition(
    offsets: Mapping[TopicPartition, int], *, least: int = 0
) -> dict[TopicPartition, Offset]:
    """The offsets. Raises `TypeError` for keys that are no partitions, and for values that are no
    whole numbers, and `ValueError` for those below the `least` and for those that are too large."""
    return {each: an_offset(offsets[each], least=least) for each in several_partitions(offsets)}


def an_offset(offset: int, *, least: int = 0) -> Offset:
    """The offset. Raises `TypeError` for what is no whole number, and `ValueError` for one below
    the `least`: to brokers some of these mean other things than an offset; and for one that cannot
    be sent."""
    return Offset(_within(index(offset), least, INT64_MAX, "An offset"))


def a_time(timestamp_ms: int) -> int:
    """The time. Raises `TypeError` for what is no whole number, and `ValueError` for one below 0,
    which is another question to brokers, as -1 for the end; and for one that cannot be sent."""
    return _within(a_number(timestamp_ms, "A time in milliseconds"), 0, INT64_MAX, "A time")


def _within(number: int, least: int, most: int, what: str) -> int:
    if not least <= number <= most:
        raise ValueError(f"{what} is a whole number from {least} to {most}, not {number}.")
    return number


def as_texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of topics and groups as brokers take them: numbers and truth values as text.
    Raises `TypeError` for other values."""
    return {name: _as_text(name, value) for name, value in settings.items()}


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(f"The setting {name} is text, a number or a truth value, not {value!r}.")
