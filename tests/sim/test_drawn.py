"""What seeds draw, counted over many plans. Nothing is run."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.protocol.apis import KNOWN, ApiKey
from strandline.sim.clients.versions import IDS_SINCE, Versions
from strandline.sim.options import draw_plan
from strandline.sim.plan import ClientSpec, Plan
from strandline.sim.sometimes import FAULT_STATES
from strandline.sim.streams import Streams
from strandline.sim.sweep import SEEDS_FOR_ALL_STATES
from strandline.sim.workload import NEAREST

SEEDS_MIN = 5
"""So many of the seeds that must reach all states have each kind of action: some are skipped."""


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [draw_plan(seed) for seed in range(SEEDS_FOR_ALL_STATES)]


def test_every_action_is_drawn_by_several_of_the_seeds_that_must_reach_all(
    plans: list[Plan],
) -> None:
    seeds = Counter(verb for plan in plans for verb in {each.verb for each in plan.actions})
    rare = {name: seeds[name.removeprefix("fault ")] for name in FAULT_STATES}
    assert {name: count for name, count in rare.items() if count < SEEDS_MIN} == {}


def test_readers_at_followers_in_a_fifth_of_the_seeds_with_racks(plans: list[Plan]) -> None:
    """A reader is sent to a follower if its rack has some of the brokers, and not all."""
    with_racks = [plan for plan in plans if plan.options.racks]
    assert len(with_racks) > len(plans) / 5
    near = [plan for plan in with_racks if any(may_read_a_follower(plan, c) for c in plan.clients)]
    assert len(near) > len(with_racks) / 2


@pytest.mark.parametrize(
    ("kind", "key"), [("producer", ApiKey.PRODUCE), ("consumer", ApiKey.FETCH)]
)
def test_every_version_that_names_topics_by_their_names_is_spoken(
    plans: list[Plan], kind: str, key: ApiKey
) -> None:
    """Each version from before there were ids is spoken by clients of some seeds."""
    spoken = Counter(
        version_of(client, key, seed)
        for seed, plan in enumerate(plans)
        for client in plan.clients
        if client.kind == kind
    )
    lowest, _ = KNOWN[key].versions
    old = {version: spoken[version] for version in range(lowest, IDS_SINCE)}
    assert {version: count for version, count in old.items() if count < SEEDS_MIN} == {}
    assert sum(old.values()) > len(plans) / 10


def test_half_of_the_members_of_share_groups_have_a_limit_of_records(plans: list[Plan]) -> None:
    modes = Counter(
        client.options.get("acquire")
        for plan in plans
        for client in plan.clients
        if client.kind == "share"
    )
    assert modes["record_limit"] > 10
    assert modes[None] > 10


def version_of(client: ClientSpec, key: ApiKey, seed: int) -> int:
    drawn = client.options.get("versions") == "drawn"
    random = Streams(seed)(f"client {client.name}") if drawn else None
    return Versions(drawn_from=random, by=client.options.get("by", "any")).of(key)


def may_read_a_follower(plan: Plan, client: ClientSpec) -> bool:
    racks = plan.options.racks
    return (
        client.kind == "consumer"
        and plan.options.settings.get("replica.selector.class") == NEAREST
        and 0 < racks.count(client.options.get("rack", "")) < len(racks)
    )
