"""Reading a node's JSON strictly and writing it the way Kafka writes it.

`Content` takes keys out of one JSON object and checks their types, so that what it was not asked
for is what the reader does not know: `rest()`. It knows no kind of node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeAlias

from strandline.cluster.store import MalformedNode

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Extra: TypeAlias = Mapping[str, Json]

DOTS: Final = {".": "%2E", "..": "%2E%2E"}
"""How names that no node of ZooKeeper may have are percent-encoded."""


class Content:
    """One node's JSON object, consumed key by key."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        try:
            value = json.loads(data)
        except ValueError as error:  # JSON and UTF-8 errors both
            raise MalformedNode(path, f"it is not JSON ({error})") from error
        except RecursionError as error:
            raise MalformedNode(path, "its JSON is nested too deeply") from error
        if not isinstance(value, dict):
            raise self.malformed("it is not a JSON object")
        self._values: dict[str, Json] = value

    def integer(self, key: str, default: int | None = None) -> int:
        """A number; Kafka writes some of them as strings."""
        value = self._values.pop(key, default)
        if isinstance(value, str) and is_decimal(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.malformed(f"{key!r} is not a number")
        return value

    def flag(self, key: str) -> bool:
        """A truth value; missing means false."""
        value = self._values.pop(key, False)
        if not isinstance(value, bool):
            raise self.malformed(f"{key!r} is neither true nor false")
        return value

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise self.malformed(f"{key!r} is not a string")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self._values.pop(key, None)
        if value is not None and not isinstance(value, str):
            raise self.malformed(f"{key!r} is not a string")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        return self._integers(key, self._values.pop(key, None))

    def optional_integers(self, key: str) -> tuple[int, ...]:
        """A list of numbers; missing means empty."""
        return self._integers(key, self._values.pop(key, []))

    def optional_pairs(self, key: str) -> tuple[tuple[int, int], ...] | None:
        """A list of lists of two numbers; None if it is missing."""
        values = self._values.pop(key, None)
        if values is None:
            return None
        if not isinstance(values, list):
            raise self.malformed(f"{key!r} is not a list")
        pairs = []
        for value in values:
            numbers = self._integers(key, value)
            if len(numbers) != 2:
                raise self.malformed(f"{key!r} holds something that is not a pair")
            pairs.append((numbers[0], numbers[1]))
        return tuple(pairs)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._values.pop(key, None)
        if not isinstance(values, list):
            raise self.malformed(f"{key!r} is not a list")
        texts = tuple(value for value in values if isinstance(value, str))
        if len(texts) != len(values):
            raise self.malformed(f"{key!r} holds something that is not a string")
        return texts

    def objects(self, key: str) -> tuple[dict[str, Json], ...]:
        """A list of objects."""
        values = self._values.pop(key, None)
        if not isinstance(values, list):
            raise self.malformed(f"{key!r} is not a list")
        objects = tuple(value for value in values if isinstance(value, dict))
        if len(objects) != len(values):
            raise self.malformed(f"{key!r} holds something that is not an object")
        return objects

    def mapping(self, key: str) -> dict[str, Json]:
        """An object; missing means empty, as Kafka leaves some out in older versions."""
        value = self._values.pop(key, None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.malformed(f"{key!r} is not an object")
        return value

    def text_mapping(self, key: str) -> dict[str, str]:
        mapping = self.mapping(key)
        texts = {name: value for name, value in mapping.items() if isinstance(value, str)}
        if len(texts) != len(mapping):
            raise self.malformed(f"{key!r} holds a value that is not a string")
        return texts

    def replica_mapping(self, key: str) -> dict[int, tuple[int, ...]]:
        """Partition numbers (JSON keys are strings) to lists of brokers, by ascending number."""
        replicas: dict[int, tuple[int, ...]] = {}
        for number, values in self.mapping(key).items():
            if not is_decimal(number) or str(int(number)) != number or int(number) < 0:
                raise self.malformed(f"{key!r} has the key {number!r}, which is no partition")
            replicas[int(number)] = self._integers(key, values)
        return dict(sorted(replicas.items()))

    def integer_mapping(self, key: str) -> dict[int, int]:
        """Numbers (JSON keys are strings) to numbers, by ascending key; missing means empty."""
        numbers: dict[int, int] = {}
        for name, value in self.mapping(key).items():
            if not is_decimal(name) or not isinstance(value, int) or isinstance(value, bool):
                raise self.malformed(f"{key!r} holds something that is not a number")
            numbers[int(name)] = value
        return dict(sorted(numbers.items()))

    def rest(self) -> Extra:
        """The keys that were not asked for."""
        return self._values

    def malformed(self, what: str) -> MalformedNode:
        """The error to raise for this node."""
        return MalformedNode(self._path, what)

    def _integers(self, key: str, values: Json) -> tuple[int, ...]:
        if not isinstance(values, list):
            raise self.malformed(f"{key!r} is not a list")
        numbers = tuple(
            value for value in values if isinstance(value, int) and not isinstance(value, bool)
        )
        if len(numbers) != len(values):
            raise self.malformed(f"{key!r} holds something that is not a number")
        return numbers


def encoded(values: Mapping[str, Json], extra: Extra) -> bytes:
    """Compact JSON of the known values and then the unknown ones."""
    content = {**values, **extra}
    try:
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can spell and UTF-8 cannot.
        return json.dumps(content, separators=(",", ":")).encode()


def replicas_json(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, Json]:
    """The JSON form of partition numbers to brokers."""
    return {str(number): list(brokers) for number, brokers in replicas.items()}


def is_decimal(text: str) -> bool:
    """Whether the text is an integer of at most 64 bits' length in ASCII digits."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 19
