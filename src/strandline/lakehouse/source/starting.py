"""Where a query begins or ends: what a user said becomes positions.

This file knows how places stand to the logs at one moment, and which of them are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.errors import InvalidSetting
from strandline.lakehouse.reading.catalogue import Catalogue
from strandline.lakehouse.source.facts import Facts, look
from strandline.lakehouse.source.losses import Losses
from strandline.lakehouse.source.options import SourceOptions
from strandline.lakehouse.source.places import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimes,
    Behind,
    Everywhere,
)
from strandline.lakehouse.source.positions import Positions
from strandline.lakehouse.source.progress import begins_of
from strandline.types import TopicPartition


def look_at_start(catalogue: Catalogue, options: SourceOptions) -> Facts:
    """What `starting_positions` has to know. Raises `ProtocolError`, also for what is not there."""
    known = options.starting.positions if isinstance(options.starting, Behind) else None
    return look(catalogue, options.selection, known)


def starting_positions(
    options: SourceOptions, facts: Facts, catalogue: Catalogue, losses: Losses
) -> Positions:
    """Where reading begins. Raises `InvalidSetting`, and `DataLost` as `losses` decides."""
    if isinstance(options.starting, Behind):
        begins = begins_of(options.starting.positions, facts, losses)
        epochs = {each: end.leader_epoch for each, end in facts.ends.items()}
        return Positions.of(facts.topic_ids, {at: (begins[at], epochs[at]) for at in begins})
    late = LATEST if options.begins_late_at_end else None
    return _positions(options.starting, facts, catalogue, losses, late)


def ending_positions(
    options: SourceOptions, facts: Facts, catalogue: Catalogue, losses: Losses
) -> Positions:
    """Where a batch query ends. A time after every record is the end of the log."""
    return _positions(options.ending, facts, catalogue, losses, LATEST)


def _positions(
    place: Everywhere | AtOffsets | AtTimes,
    facts: Facts,
    catalogue: Catalogue,
    losses: Losses,
    late: int | None,
) -> Positions:
    """`late` stands for times after every record; None refuses them."""
    match place:
        case Everywhere(offset):
            wanted = dict.fromkeys(facts.ends, offset)
        case AtOffsets(option, offsets):
            _refuse_others(option, offsets, facts.ends)
            wanted = dict(offsets)
        case AtTimes(option, times):
            wanted = _at_times(option, times, facts, catalogue, late)
    found = {
        partition: (_offset(partition, offset, facts, losses), facts.ends[partition].leader_epoch)
        for partition, offset in wanted.items()
    }
    return Positions.of(facts.topic_ids, found)


def _offset(partition: TopicPartition, wanted: int, facts: Facts, losses: Losses) -> int:
    earliest, end = facts.earliest[partition], facts.ends[partition].offset
    if wanted == EARLIEST:
        return earliest
    if wanted == LATEST:
        return end
    if wanted < earliest:
        losses.report(
            f"Partition {partition} begins at offset {earliest}: the records from {wanted} on, "
            "which the query asks for, are deleted."
        )
        return earliest
    if wanted > end:
        losses.report(
            f"Partition {partition} ends at offset {end}: there are no records up to {wanted}, "
            "which the query asks for."
        )
        return end
    return wanted


def _at_times(
    option: str,
    times: Mapping[TopicPartition, int] | int,
    facts: Facts,
    catalogue: Catalogue,
    late: int | None,
) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(facts.ends, times) if isinstance(times, int) else dict(times)
    _refuse_others(option, wanted, facts.ends)
    found: dict[TopicPartition, int] = {}
    for partition, offset in catalogue.at_times(wanted).items():
        if offset is not None:
            # A reader of committed records may not see as far as the record of that time.
            found[partition] = min(offset, facts.ends[partition].offset)
        elif late is not None:
            found[partition] = late
        else:
            raise InvalidSetting(
                option,
                f"No record of partition {partition} is as late as {wanted[partition]}, which "
                f"{option} names; startingOffsetsByTimestampStrategy=latest begins at its end.",
            )
    return found


def _refuse_others(
    option: str, named: Iterable[TopicPartition], there: Iterable[TopicPartition]
) -> None:
    """All partitions must be named and no others: what is not said cannot be guessed."""
    missing, strange = sorted(set(there) - set(named)), sorted(set(named) - set(there))
    if missing:
        raise InvalidSetting(
            option,
            f"{option} must name every partition that is read: {missing[0]} is missing. In "
            f"offsets, {LATEST} is the latest and {EARLIEST} the earliest.",
        )
    if strange:
        raise InvalidSetting(option, f"{option} names {strange[0]}, which is not read.")
