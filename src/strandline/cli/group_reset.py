"""The target of `strandline groups reset`: one of many options."""

from __future__ import annotations

import click

from strandline.cli.moments import parse_duration, parse_time
from strandline.client.group_reset import Target, TargetKind


def parse_target(
    now_ms: int,
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
) -> Target:
    """The one target among the options. Raises `click.UsageError` for none or several."""
    targets: list[Target] = []
    if to_earliest:
        targets.append(Target(TargetKind.EARLIEST))
    if to_latest:
        targets.append(Target(TargetKind.LATEST))
    if to_offset is not None:
        if to_offset < 0:
            raise click.UsageError(f"--to-offset takes an offset, not {to_offset}.")
        targets.append(Target(TargetKind.OFFSET, to_offset))
    if to_datetime is not None:
        targets.append(Target(TargetKind.TIME, parse_time(to_datetime, "--to-datetime")))
    if by_duration is not None:
        past_ms = now_ms - parse_duration(by_duration, "--by-duration")
        targets.append(Target(TargetKind.TIME, max(0, past_ms)))
    if shift_by is not None:
        targets.append(Target(TargetKind.SHIFT, shift_by))
    if len(targets) != 1:
        raise click.UsageError(
            "Give exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, "
            "--by-duration and --shift-by."
        )
    return targets[0]
