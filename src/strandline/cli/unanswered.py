"""How commands tell, on standard error, what brokers did not: the rest of an answer is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from strandline.cli.output import listed
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, TopicPartition

_NAMED_MAX: Final = 10
"""Of the partitions in one sentence."""


def tell_brokers(unanswered: Mapping[BrokerId, ProtocolError], what: str) -> None:
    """A line for each broker that did not tell `what`, such as "its moves"."""
    for broker, error in unanswered.items():
        reason = error.message or "it refused."
        click.echo(f"Broker {broker} did not tell {what}: {reason} [{error.code.name}]", err=True)


def tell_partitions(refused: Mapping[TopicPartition, ProtocolError], lacking: str) -> None:
    """A line for each reason. `lacking` begins it, such as "No offsets of"."""
    by_reason: dict[tuple[str, str], list[TopicPartition]] = {}
    for partition, error in refused.items():
        reason = error.message or "the broker refused."
        if error.code is ErrorCode.LEADER_NOT_AVAILABLE:
            reason = "no broker leads there at the moment."  # once, not for each partition
        by_reason.setdefault((reason, error.code.name), []).append(partition)
    for (reason, code), partitions in by_reason.items():
        what = listed(partitions, _NAMED_MAX, "partition")
        click.echo(f"{lacking} {what}: {reason} [{code}]", err=True)


def reasons_as_json(refused: Mapping[TopicPartition, ProtocolError]) -> list[dict[str, str]]:
    """The same for programs."""
    return [
        {"partition": str(at), "error": error.code.name, "message": error.message}
        for at, error in refused.items()
    ]
