"""Reads the tables that Kafka's tools print, and names their main classes."""

from __future__ import annotations

from typing import Final

TOOLS: Final = "org.apache.kafka.tools."
TOKENS: Final = TOOLS + "DelegationTokenCommand"
TOPICS: Final = TOOLS + "TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
GROUPS: Final = TOOLS + "consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER: Final = TOOLS + "consumer.ConsoleConsumer"
CONSOLE_PRODUCER: Final = TOOLS + "ConsoleProducer"
OFFSETS: Final = TOOLS + "GetOffsetShell"


def table(text: str) -> list[dict[str, str]]:
    """The rows of the table that begins at the first line of two or more capitalised names."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    for at, names in enumerate(lines):
        if len(names) > 1 and all(name == name.upper() for name in names):
            return [dict(zip(names, row, strict=False)) for row in lines[at + 1 :]]
    return []


def fields(line: str) -> dict[str, str]:
    """The fields of a line like `Topic: a<tab>Partition: 0`."""
    pairs = (part.split(":", 1) for part in line.strip().split("\t"))
    return {name.strip(): value.strip() for name, value in pairs}
