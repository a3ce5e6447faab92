"""What an audit finds, as values that travel between processes.

This file knows the kinds of findings and how many of them are worth listing. It must not know how
they are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from strandline.types import TopicPartition

LISTED_MAX: Final = 100
"""How many findings of one kind are listed for one replica; all are counted."""


class Kind(StrEnum):
    """What is wrong."""

    DAMAGED_BATCH = "damaged batch"
    OFFSET_GAP = "offset gap"
    OFFSET_ORDER = "offset order"
    LEADER_EPOCHS = "leader epochs"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    CHECKPOINT = "checkpoint"
    TOPIC_ID = "topic id"
    SHORT_LOG = "short log"
    DIVERGENCE = "divergence"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or several of one kind in a row."""

    kind: Kind
    topic: str
    partition: int
    brokers: tuple[int, ...]
    """Whose replicas it is about."""
    path: str
    """The file or directory to look at; empty if there is no single one."""
    offset: int
    """Where it begins; -1 if it is about no place in the log."""
    end_offset: int
    """Behind the last offset that is known to be affected."""
    sentence: str
    count: int = 1
    """How many of the same kind in a row this stands for."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "kind": self.kind.value, "brokers": list(self.brokers)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Finding:
        """The inverse of `to_json`."""
        kind, brokers = Kind(document["kind"]), tuple(document["brokers"])
        return cls(**{**document, "kind": kind, "brokers": brokers})


class Findings:
    """Collects the findings about one replica, or about several together."""

    def __init__(self, partition: TopicPartition, brokers: tuple[int, ...]) -> None:
        self.listed: list[Finding] = []
        self.counts: dict[Kind, int] = {}
        self._partition = partition
        self._brokers = brokers

    def add(
        self,
        kind: Kind,
        sentence: str,
        *,
        path: str = "",
        offset: int = -1,
        end_offset: int = -1,
        brokers: tuple[int, ...] | None = None,
    ) -> None:
        """Note a finding; one that begins where the last of its kind ends becomes part of that."""
        brokers = self._brokers if brokers is None else brokers
        self.counts[kind] = self.counts.get(kind, 0) + 1
        for at, last in enumerate(reversed(self.listed)):
            if last.kind is not kind:
                continue
            if (last.path, last.brokers) == (path, brokers) and last.end_offset == offset >= 0:
                grown = replace(last, end_offset=end_offset, count=last.count + 1)
                self.listed[len(self.listed) - 1 - at] = grown
                return
            break
        if sum(each.kind is kind for each in self.listed) < LISTED_MAX:
            self.listed.append(
                Finding(
                    kind=kind,
                    topic=self._partition.topic,
                    partition=self._partition.partition,
                    brokers=brokers,
                    path=path,
                    offset=offset,
                    end_offset=end_offset,
                    sentence=sentence,
                )
            )


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """What the audit of one partition read, judged and found."""

    topic: str
    partition: int
    brokers: tuple[int, ...]
    batches: int = 0
    records: int = 0
    bytes_read: int = 0
    start_offset: int = 0
    """Where the replica begins that reaches back farthest."""
    end_offset: int = 0
    """Up to here, the largest high watermark that a replica was judged by."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be judged, and why."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "brokers": list(self.brokers),
            "findings": [each.to_json() for each in self.findings],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> PartitionReport:
        """The inverse of `to_json`."""
        findings = [Finding.from_json(each) for each in document["findings"]]
        return cls(**{**document, "brokers": tuple(document["brokers"]), "findings": findings})
