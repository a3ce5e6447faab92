"""How far numbers of threads may change at run time: to the half or the double at most, as in
Kafka, whose sentences these are. Without the limit one change could take all threads away. From
none, which a file may say and earlier versions stored, the way goes to one or two."""

from __future__ import annotations

from typing import Final, cast

from strandline.config.broker import BrokerConfig
from strandline.config.resolve import broker_values, merge
from strandline.errors import InvalidSetting

_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def check_threads(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `InvalidSetting` unless the numbers of one may become those of the other."""
    counts_before, counts_after = (broker_values(merge(each.layers)) for each in (before, after))
    for name in _THREADS:
        old, new = cast("int", counts_before[name]), cast("int", counts_after[name])
        if new == old:
            continue
        rule = ""
        if new < 1:
            rule = "be at least 1"
        elif new < old // 2:
            rule = f"be at least half the current value {old}"
        elif new > 2 * max(1, old):
            rule = f"not be greater than double the current value {old}" if old else "be at most 2"
        if rule:
            raise InvalidSetting(
                name,
                f"Dynamic thread count update validation failed for {name}={new}, value should "
                f"{rule}",
            )
