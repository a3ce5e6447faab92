"""What programs give, checked where Python would take a mistake for something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index

from strandline.types import Offset, TopicPartition


def several(names: Iterable[str], what: str) -> list[str]:
    """The names. Raises `TypeError` for a string alone, which would be taken for its letters:
    `delete_topics("ab")` would delete the topics `a` and `b`."""
    if isinstance(names, str):
        raise TypeError(f"{what} are several names: [{names!r}], not {names!r}.")
    return [a_name(each) for each in names]


def a_name(name: str) -> str:
    """The name. Raises `TypeError` for what is no text: brokers would be asked about its text form,
    or the request could not be written."""
    if not isinstance(name, str):
        raise TypeError(f"A name is text, not {type(name).__name__}: {name!r}.")
    return name


def a_number(number: int, what: str) -> int:
    """The number. Raises `TypeError` for what is no whole number: 1.0 equals 1 in every comparison,
    and cannot be sent."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} is a whole number, not {type(number).__name__}: {number!r}.")
    return index(number)


def several_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions. Raises `TypeError` for one alone, which is a tuple itself, and for what is
    none."""
    if isinstance(partitions, TopicPartition):
        raise TypeError(f"Partitions are several: [{partitions!r}], not {partitions!r}.")
    found = list(partitions)
    for each in found:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"A partition is a TopicPartition('orders', 0), not {each!r}.")
        a_name(each.topic)
        a_number(each.partition, "The number of a partition")
    return found


def by_partition(
    offsets: Mapping[TopicPartition, int], *, least: int = 0
) -> dict[TopicPartition, Offset]:
    """The offsets. Raises `TypeError` for keys that are no partitions, and for values that are no
    whole numbers, and `ValueError` for those below the `least`."""
    return {each: an_offset(offsets[each], least=least) for each in several_partitions(offsets)}


def an_offset(offset: int, *, least: int = 0) -> Offset:
    """The offset. Raises `TypeError` for what is no whole number, and `ValueError` for one below
    the `least`: to brokers some of these mean other things than an offset."""
    found = index(offset)
    if found < least:
        raise ValueError(f"An offset is a whole number from {least} on, not {found}.")
    return Offset(found)


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
