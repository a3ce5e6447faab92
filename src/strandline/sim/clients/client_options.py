"""The options of one client's line, read as what they mean.

`client producer p1 topic=t acks=all every=20ms`: everything is text until it is asked for here. An
option that the client does not know is a mistake in the plan and refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.sim.plan import ClientSpec
from strandline.sim.scenarios.script import BadScript, parse_us
from strandline.types import TopicPartition


class ClientOptions:
    """See the module."""

    def __init__(self, spec: ClientSpec) -> None:
        self._spec = spec
        self._asked: set[str] = set()

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be there."""
        self._asked.add(name)
        found = self._spec.options.get(name, default)
        if found is None:
            raise BadScript(f"'{self._spec}' lacks {name}=.")
        return found

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        """One of some words; the first is the default."""
        word = self.text(name, allowed[0])
        if word not in allowed:
            raise BadScript(f"{name}={word} of '{self._spec}' is not one of {', '.join(allowed)}.")
        return word

    def flag(self, name: str, *, default: bool = False) -> bool:
        """`yes` or `no`."""
        return self.one_of(name, ("yes", "no") if default else ("no", "yes")) == "yes"

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        """A number."""
        text = self.text(name, str(default))
        if not text.isdecimal() or int(text) < least:
            raise BadScript(f"{name}={text} of '{self._spec}' is no number from {least} on.")
        return int(text)

    def time_us(self, name: str, default: str) -> int:
        """A time such as `20ms`."""
        return parse_us(self.text(name, default))

    def partitions(self) -> list[TopicPartition]:
        """`topic=t partition=0,2`, by default partition 0."""
        topic = self.text("topic")
        numbers = self.text("partition", "0").split(",")
        if not all(number.isdecimal() for number in numbers):
            raise BadScript(f"partition= of '{self._spec}' is no list of numbers.")
        return [TopicPartition(topic, int(number)) for number in numbers]

    def check(self) -> None:
        """Raise `BadScript` for options that the client does not know."""
        unknown = [name for name in self._spec.options if name not in self._asked]
        if unknown:
            raise BadScript(f"'{self._spec}' has unknown options: {', '.join(unknown)}.")
