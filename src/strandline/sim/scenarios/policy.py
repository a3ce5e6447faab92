"""The exchangeable rules of a scenario: their names, their values, and what they stand for.

    truncate       leader-epoch | leader-epoch-once | high-watermark      what a new follower trusts
    answer         post | pre            the high watermark in an answer: after or before the fetch
    strict         yes | no              the high watermark stays while too few are in sync
    joins-at       epoch-start | high-watermark    what a replica must have to join the in-sync set
    counts-joining yes | no              a replica that was proposed is waited for
    lag-records    no | NUMBER           the limit before 0.9: so many records behind is out of sync
    eligible       yes | no              eligible leader replicas (KIP-966)
    unclean        no | yes              unclean elections
    isr-writes     controller | direct   who writes the in-sync set

The first value is what a broker does. This file knows how to choose; what the rules do stands in
`strandline.replication.policies` and in `controller`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.replication.policies import (
    AnswerWatermark,
    LagPolicy,
    Policies,
    RecordLag,
    TimeLag,
    TruncateBy,
)
from strandline.sim.scenarios.controller import Rules
from strandline.sim.scenarios.script import BadScript, Entry, Script, parse_int

Policy = Mapping[str, str]
"""A value for each of the rules."""

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "truncate": ("leader-epoch", "leader-epoch-once", "high-watermark"),
    "answer": ("post", "pre"),
    "strict": ("yes", "no"),
    "joins-at": ("epoch-start", "high-watermark"),
    "counts-joining": ("yes", "no"),
    "lag-records": ("no",),
    "eligible": ("yes", "no"),
    "unclean": ("no", "yes"),
    "isr-writes": ("controller", "direct"),
}


def choose(script: Script, wanted: Policy) -> dict[str, str]:
    """A value for every rule: what is wanted, else what the header says, else what brokers do.

    Raises `BadScript` for rules and values that there are not.
    """
    for entry in script.entries:
        _check_entry(script, entry)
    for name, value in wanted.items():
        _check(name, value)
    return {name: values[0] for name, values in VALUES.items()} | script.policy | dict(wanted)


def variants(script: Script) -> list[dict[str, str]]:
    """What the header offers, in all combinations; the first one is the script's own policy."""
    found: list[dict[str, str]] = [{}]
    for name, values in script.offered.items():
        found = [{**before, name: value} for before in found for value in values]
    return found


def differing(policy: Policy) -> dict[str, str]:
    """Where a policy is not what brokers do."""
    return {name: value for name, value in policy.items() if value != VALUES[name][0]}


def _check_entry(script: Script, entry: Entry) -> None:
    try:
        check_conditions(entry.when)
        if entry.name == "policy":
            for name, offered in script.offered.items():
                check_conditions({name: "|".join(offered)})
    except BadScript as error:
        raise BadScript(f"{script.where(entry.line)}: {error}") from None
    if entry.when and entry.name != "violates":
        where = script.where(entry.line)
        raise BadScript(f"{where}: Only 'violates' can depend on the policy, not '{entry.name}'.")


def check_conditions(conditions: Policy) -> None:
    """Raise `BadScript` for conditions on rules and values that there are not."""
    for name, values in conditions.items():
        for value in values.split("|"):
            _check(name, value)


def _check(name: str, value: str) -> None:
    if name not in VALUES:
        raise BadScript(f"There is no rule '{name}'; there are {', '.join(VALUES)}.")
    if value in VALUES[name] or (name == "lag-records" and value.isdigit()):
        return
    raise BadScript(f"The rule {name} can be {' or '.join(VALUES[name])}, not '{value}'.")


def policies_of(policy: Policy) -> Policies:
    """What replicas ask."""
    lag: LagPolicy = TimeLag()
    if policy["lag-records"] != "no":
        lag = RecordLag(parse_int(policy["lag-records"]))
    return Policies(
        strict_min_isr=policy["strict"] == "yes",
        answer_watermark=AnswerWatermark(policy["answer"]),
        lag=lag,
        truncate_by=TruncateBy(policy["truncate"]),
        joins_at_epoch_start=policy["joins-at"] == "epoch-start",
        counts_joining=policy["counts-joining"] == "yes",
    )


def rules_of(policy: Policy, *, min_in_sync: int) -> Rules:
    """What the controller asks."""
    return Rules(
        min_in_sync_replicas=min_in_sync,
        has_eligible=policy["eligible"] == "yes",
        allows_unclean=policy["unclean"] == "yes",
        writes_directly=policy["isr-writes"] == "direct",
    )
