"""How a member behaves in its group, by Kafka's names of consumer settings. Knows no request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from strandline.client.arguments import check_name
from strandline.client.assignors import DEFAULT_ASSIGNORS, parse_assignors
from strandline.client.backoff import (
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    ExponentialBackoff,
)
from strandline.client.router import Coordinated, CoordinatorKey
from strandline.errors import InvalidSetting
from strandline.numerals import INT32_MAX, whole_number

RESETS: Final = ("earliest", "latest", "none")
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
PROTOCOLS: Final = (CLASSIC, CONSUMER)
_TIMES: Final = {
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "auto.commit.interval.ms": "auto_commit_interval_ms",
}
NAMES: Final = (
    *_TIMES,
    "auto.offset.reset",
    "client.rack",
    "enable.auto.commit",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "partition.assignment.strategy",
)
_ONLY: Final = {
    CLASSIC: ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"),
    CONSUMER: ("group.remote.assignor",),
}
"""What has a meaning in one protocol only. In the consumer protocol brokers have these times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times in milliseconds; defaults are Kafka's."""

    group: str
    protocol: str = CLASSIC
    """One of `PROTOCOLS`: who assigns, a member of the group or its coordinator (KIP-848)."""
    remote_assignor: str | None = None
    """The coordinator's assignor that the member prefers; None: the coordinator's choice."""
    instance_id: str | None = None
    """The name of a static member (KIP-345): it may restart without a rebalance."""
    session_timeout_ms: int = 45_000
    """After so much silence the coordinator takes the member out."""
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """How long the program may take between two calls of `poll`; and how long a rebalance waits
    for the member."""
    assignors: tuple[str, ...] = DEFAULT_ASSIGNORS
    """Names of `assignors.ASSIGNORS`, the preferred one first."""
    rack: str | None = None
    """Told to leaders that assign by racks (KIP-881)."""
    auto_offset_reset: str = "latest"
    """Where to begin without a committed offset: one of `RESETS`."""
    enable_auto_commit: bool = True
    """Whether `poll` commits what earlier calls of it returned."""
    auto_commit_interval_ms: int = 5_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS

    def __post_init__(self) -> None:
        check_name("group.id", self.group)
        for setting, name in (
            ("group.instance.id", self.instance_id),
            ("group.remote.assignor", self.remote_assignor),
            ("client.rack", self.rack or None),
        ):
            if name is not None:
                check_name(setting, name)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidSetting(
                "heartbeat.interval.ms",
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be less than "
                f"session.timeout.ms ({self.session_timeout_ms}).",
            )

    @property
    def coordinator_key(self) -> CoordinatorKey:
        """Whose coordinator a member asks."""
        return CoordinatorKey(Coordinated.GROUP, self.group)

    def backoff(self, random: Random) -> ExponentialBackoff:
        """Growing waits of something that is tried again."""
        return ExponentialBackoff(random, self.retry_backoff_ms, self.retry_backoff_max_ms)


def parse_group_settings(
    group: str, settings: Mapping[str, str], *, reset: str = "latest"
) -> GroupSettings:
    """Settings by their names in Kafka; `reset` is the default of auto.offset.reset.

    Raises `InvalidSetting` for unknown names and for values that are none.
    """
    unknown = next((name for name in settings if name not in NAMES), None)
    if unknown is not None:
        raise InvalidSetting(
            unknown, f"There is no setting '{unknown}' here; there are {', '.join(sorted(NAMES))}."
        )
    times = {
        field: _time(name, settings[name]) for name, field in _TIMES.items() if name in settings
    }
    where = settings.get("auto.offset.reset", reset)
    if where not in RESETS:
        raise InvalidSetting(
            "auto.offset.reset", f"auto.offset.reset takes {', '.join(RESETS)}, not '{where}'."
        )
    protocol = settings.get("group.protocol", CLASSIC).lower()
    _check_protocol(protocol, settings)
    strategy = settings.get("partition.assignment.strategy")
    session_ms = times.get("session_timeout_ms", 45_000)
    # A short session alone is meant to work; Kafka would refuse it because of the other's default.
    times.setdefault("heartbeat_interval_ms", min(3_000, max(1, session_ms // 3)))
    return GroupSettings(
        group=group,
        protocol=protocol,
        remote_assignor=settings.get("group.remote.assignor") or None,
        instance_id=settings.get("group.instance.id"),
        rack=settings.get("client.rack"),
        enable_auto_commit=_flag("enable.auto.commit", settings.get("enable.auto.commit", "true")),
        assignors=DEFAULT_ASSIGNORS if strategy is None else parse_assignors(strategy),
        auto_offset_reset=where,
        **times,
    )


def _check_protocol(protocol: str, settings: Mapping[str, str]) -> None:
    if protocol not in PROTOCOLS:
        raise InvalidSetting(
            "group.protocol", f"group.protocol takes {' or '.join(PROTOCOLS)}, not '{protocol}'."
        )
    for other in PROTOCOLS:
        wrong = next((name for name in _ONLY[other] if name in settings), None)
        if other != protocol and wrong is not None:
            raise InvalidSetting(
                wrong, f"{wrong} cannot be set with group.protocol={protocol}, only with {other}."
            )


def _time(name: str, text: str) -> int:
    found = whole_number(text, INT32_MAX)
    if not found:
        raise InvalidSetting(name, f"{name} takes milliseconds from 1 on, not '{text}'.")
    return found


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidSetting(name, f"{name} takes true or false, not '{text}'.")
    return text.lower() == "true"
