"""What an earlier proof has shown for good, so that the next one need not look at it again.

Theory: a file of a table never changes. So what was proven of a file that the table still names
stands, and only these offsets are open: those that came since, those that files which are gone held
(they are in other files now, or nowhere), and those that files have which came since. Bounds say
which these can be; more of them only costs time.

It is kept beside the table, in `proof.json`, after a proof that found nothing wrong. It is no part
of the table: without it everything is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.verify.coverage import Span
from strandline.types import TopicPartition

PROOF_FILE: Final = "proof.json"
_VERSION: Final = 1
_ROWS: Final = "rows"
"""What the table itself is called among its side tables."""

Held: TypeAlias = "tuple[int, int] | None"
"""The least and the greatest offset in a file, of whatever partition; None: they are not known."""
Spans: TypeAlias = Mapping[TopicPartition, Sequence[Span]]
"""Offsets by partition: apart from one another, in order."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a proof of the commit `sequence`, made at `at_ms`, has shown."""

    sequence: int
    at_ms: int
    ends: Mapping[TopicPartition, tuple[int, str]]
    """How far each partition was proven, and the id of its topic."""
    files: Mapping[str | None, Mapping[str, Held]]
    """By their names, of the table and of those beside it."""


@dataclass(frozen=True, slots=True)
class Open:
    """What is left to prove: these offsets, in new files or in some of those that stand."""

    standing: Standing
    spans: Spans
    new: Mapping[str | None, Sequence[DataFile]]
    kept: Mapping[str | None, Sequence[DataFile]]
    """Files that stand, and may have rows with open offsets."""


def open_since(
    standing: Standing,
    state: TableState,
    files: Mapping[str | None, Sequence[DataFile]],
    held: Mapping[str | None, Mapping[str, Held]],
) -> Open | None:
    """What a proof has left open; None if the table is not what it was made for.

    `held` are the offsets in its files now.
    """
    for partition, (end, topic_id) in standing.ends.items():
        frontier = state.frontiers.get(partition)
        if frontier is None or frontier.end < end or frontier.topic_id != topic_id:
            return None
    changed: list[Held] = []
    for side in {*files, *standing.files}:
        before, now = standing.files.get(side, {}), held.get(side, {})
        changed += [at for name, at in before.items() if name not in now]
        changed += [at for name, at in now.items() if name not in before]
    if None in changed:
        return None
    again = _merged(Span(at[0], at[1] + 1) for at in changed if at is not None)
    spans = {}
    for partition, frontier in state.frontiers.items():
        proven = standing.ends[partition][0] if partition in standing.ends else frontier.start
        spans[partition] = _merged(
            [
                *_within(again, Span(frontier.start, proven)),
                *([Span(proven, frontier.end)] if proven < frontier.end else []),
            ]
        )
    every = _merged(span for each in spans.values() for span in each)
    new: dict[str | None, list[DataFile]] = {}
    kept: dict[str | None, list[DataFile]] = {}
    for side, named in files.items():
        known = standing.files.get(side, {})
        new[side] = [each for each in named if each.path.name not in known]
        old = [each for each in named if each.path.name in known]
        kept[side] = [each for each in old if _meets(known[each.path.name], every)]
    return Open(standing, spans, new, kept)


def noted(
    state: TableState, files: Mapping[str | None, Mapping[str, Held]], *, now_ms: int
) -> Standing:
    """What a proof of everything in `files` has shown."""
    ends = {
        partition: (frontier.end, frontier.topic_id)
        for partition, frontier in state.frontiers.items()
    }
    return Standing(state.sequence, now_ms, ends, files)


def keep(spec: TableSpec, standing: Standing) -> None:
    """Write it down; a store that does not take it costs the next proof time, and nothing else."""
    document = {
        "version": _VERSION,
        "commit": standing.sequence,
        "at_ms": standing.at_ms,
        "ends": [[*place, *end] for place, end in sorted(standing.ends.items())],
        "files": {side or _ROWS: named for side, named in standing.files.items()},
    }
    with suppress(StoreTrouble, OSError):
        stores.replace_text(spec.place / PROOF_FILE, json.dumps(document))


def kept(spec: TableSpec) -> Standing | None:
    """What the last proof has shown; None if there was none that this release can read."""
    try:
        document: dict[str, Any] = json.loads(stores.read_text(spec.place / PROOF_FILE))
        if document["version"] != _VERSION:
            return None
        return Standing(
            document["commit"],
            document["at_ms"],
            {
                TopicPartition(topic, number): (end, topic_id)
                for topic, number, end, topic_id in document["ends"]
            },
            {
                None if side == _ROWS else side: {
                    name: None if held is None else (held[0], held[1])
                    for name, held in named.items()
                }
                for side, named in document["files"].items()
            },
        )
    except (StoreTrouble, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: each.start):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _within(spans: Iterable[Span], limits: Span) -> list[Span]:
    cut = [Span(max(each.start, limits.start), min(each.end, limits.end)) for each in spans]
    return [each for each in cut if each.start < each.end]


def _meets(held: Held, spans: Sequence[Span]) -> bool:
    return held is None or any(each.start <= held[1] and held[0] < each.end for each in spans)
