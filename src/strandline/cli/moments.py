"""Times as people give them on a command line: ISO dates and ISO durations.

A time may also be milliseconds since 1970, as programs have it, from 1973 on: `2027` would silently
be two seconds after the beginning of 1970. More digits are not milliseconds either.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import click

from strandline.numerals import INT64_MAX

_MILLISECONDS: Final = re.compile(r"\d{12,15}", re.ASCII)
_DURATION: Final = re.compile(
    r"P(?:(\d{1,19})D)?(?:T(?:(\d{1,19})H)?(?:(\d{1,19})M)?(?:(\d{1,19}(?:\.\d{1,3})?)S)?)?",
    re.ASCII,
)


def parse_time(text: str, option: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time; without a zone it is UTC. Or milliseconds."""
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"{option} takes an ISO 8601 time such as 2026-11-21T13:45:00Z, or milliseconds since "
            f"1970 (12 to 15 digits), not '{text}'."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str, option: str) -> int:
    """Milliseconds of an ISO 8601 duration of days, hours, minutes and seconds."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise click.UsageError(
            f"{option} takes an ISO 8601 duration such as P1D or PT1H30M, not '{text}'."
        )
    days, hours, minutes, seconds = match.groups()
    whole = (int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)
    duration_ms = whole * 60_000 + round(float(seconds or 0) * 1000)
    if duration_ms > INT64_MAX:
        raise click.UsageError(f"{option} takes a duration of at most {INT64_MAX} ms.")
    return duration_ms
