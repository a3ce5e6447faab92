"""Reading the arguments of an inspection: what is of the wrong kind is refused with a sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition

_MISSING = object()


def allow_only(arguments: Mapping[str, object], names: Collection[str]) -> None:
    """Refuse arguments that the subject does not know: they would silently have no effect."""
    unknown = sorted(arguments.keys() - set(names))
    if unknown:
        known = ", ".join(sorted(names)) or "none"
        raise _refusal(f"There is no argument '{unknown[0]}' here; there are {known}.")


def text(arguments: Mapping[str, object], name: str) -> str:
    """A text that must be given."""
    found = arguments.get(name, _MISSING)
    if not isinstance(found, str):
        raise _refusal(f"The argument '{name}' must be given as a text.")
    return found


def optional_text(arguments: Mapping[str, object], name: str) -> str | None:
    """A text, or None if it is not given."""
    return None if arguments.get(name) is None else text(arguments, name)


def optional_integer(arguments: Mapping[str, object], name: str) -> int | None:
    """A whole number, or None if it is not given."""
    found = arguments.get(name)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool):
        raise _refusal(f"The argument '{name}' must be a whole number.")
    return found


def optional_count(arguments: Mapping[str, object], name: str) -> int | None:
    """A whole number of at least 1, or None if it is not given."""
    found = optional_integer(arguments, name)
    if found is not None and found < 1:
        raise _refusal(f"The argument '{name}' must be at least 1.")
    return found


def integer(arguments: Mapping[str, object], name: str) -> int:
    """A whole number that must be given."""
    found = optional_integer(arguments, name)
    if found is None:
        raise _refusal(f"The argument '{name}' must be given as a whole number.")
    return found


def flag(arguments: Mapping[str, object], name: str) -> bool:
    """A truth value; false if it is not given."""
    found = arguments.get(name, False)
    if not isinstance(found, bool):
        raise _refusal(f"The argument '{name}' must be true or false.")
    return found


def optional_texts(arguments: Mapping[str, object], name: str) -> list[str] | None:
    """A list of texts, or None if it is not given."""
    found = arguments.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _refusal(f"The argument '{name}' must be a list of texts.")
    return found


def optional_partition(arguments: Mapping[str, object], name: str) -> TopicPartition | None:
    """A topic and the number of a partition, or None if it is not given."""
    found = arguments.get(name)
    return None if found is None else _partition(found, name)


def partitions(arguments: Mapping[str, object], name: str, *, at_most: int) -> list[TopicPartition]:
    """A list of topics with numbers of partitions; empty if it is not given."""
    found = arguments.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > at_most:
        raise _refusal(f"The argument '{name}' must be a list of at most {at_most} partitions.")
    return [_partition(each, name) for each in found]


def _partition(found: object, name: str) -> TopicPartition:
    match found:
        case [str(topic), int(number)] if not isinstance(number, bool):
            return TopicPartition(topic, number)
        case _:
            raise _refusal(f"The argument '{name}' names partitions as [\"topic\", number].")


def _refusal(sentence: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, sentence)
