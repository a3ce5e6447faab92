"""Patterns are matched in steps, between which other clients are served."""

from __future__ import annotations

from itertools import pairwise

import pytest

from strandline.errors import ErrorCode
from strandline.groups.consumer import regex
from tests.groups.consumer.world import Client, Cluster, ConsumerWorld, code

TOPICS = 1_000
MATCHES_MAX = 4_000
"""How many matches of small patterns a step has at most."""


class Prefix:
    """A pattern of this test: the names that begin with it, or all others. Counts matches."""

    matches = 0

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern.removeprefix("big:")
        self.programsize = 50_000 if pattern.startswith("big:") else 10

    def fullmatch(self, text: str, /) -> object | None:
        Prefix.matches += 1
        return True if text.startswith(self._pattern) else None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ConsumerWorld:
    monkeypatch.setattr(regex, "_compiled", Prefix)
    return ConsumerWorld(cluster=Cluster(**{f"t{number:04}": 1 for number in range(TOPICS)}))


def pattern_client(world: ConsumerWorld, pattern: str, **said: str) -> Client:
    name = f"m-{pattern}"
    return world.client(name, topics=None, subscribed_topic_regex=pattern, **said)


def steps(world: ConsumerWorld, ms: int) -> list[tuple[int, int]]:
    """(time, matches) of everything that was due within a time and matched something."""
    found: list[tuple[int, int]] = []
    end_ms = world.now.monotonic_ms + ms
    while (due_ms := world.coordinator.next_deadline()) is not None and due_ms <= end_ms:
        world.advance(due_ms - world.now.monotonic_ms - 1)
        before = Prefix.matches
        world.advance(1)
        if Prefix.matches > before:
            found.append((world.now.monotonic_ms, Prefix.matches - before))
    return found


def test_many_patterns_take_many_steps(world: ConsumerWorld) -> None:
    members = [pattern_client(world, f"t{number:03}") for number in range(30)]
    for member in members:
        assert code(member.beat()) is ErrorCode.NONE
    taken = steps(world, 2_000)
    assert sum(matches for _, matches in taken) == 30 * TOPICS
    assert max(matches for _, matches in taken) <= MATCHES_MAX
    times = [at for at, _ in taken]
    assert min(later - at for at, later in pairwise(times)) >= 10
    world.settle(*members)
    for number, member in enumerate(members):
        assert member.owned == {(f"t{number:03}{digit}", 0) for digit in range(10)}
    assert world.states()[0] == "Stable"
    assert world.fail_over(2).describe() == world.describe()


def test_the_epoch_follows_with_the_last_step(world: ConsumerWorld) -> None:
    members = [pattern_client(world, f"t{number:03}") for number in range(10)]
    for member in members:
        member.beat()
    epoch = world.states()[1]
    world.advance(1)
    assert world.states()[1] == epoch
    world.advance(1_000)
    assert world.states()[1] == epoch + 1


def test_a_large_pattern_takes_steps_of_its_own(world: ConsumerWorld) -> None:
    """Each character of a name may cost as much as the whole program of the pattern."""
    pattern_client(world, "big:t0001").beat()
    taken = steps(world, 20_000)
    assert sum(matches for _, matches in taken) == TOPICS
    assert max(matches for _, matches in taken) <= 10


def test_groups_take_their_steps_one_after_the_other(world: ConsumerWorld) -> None:
    members = [pattern_client(world, "t000", group=f"g{number}") for number in range(20)]
    for member in members:
        member.beat()
    taken = steps(world, 2_000)
    assert sum(matches for _, matches in taken) == 20 * TOPICS
    times = [at for at, _ in taken]
    assert min(later - at for at, later in pairwise(times)) >= 10


def test_a_pattern_that_is_not_used_any_more_is_not_stored(world: ConsumerWorld) -> None:
    members = [pattern_client(world, f"t{number:03}") for number in range(30)]
    for member in members:
        member.beat()
    world.advance(1)
    members[-1].beat(subscribed_topic_regex="")
    world.advance(2_000)
    [served] = world.coordinator._shards
    [group] = served.shard.consumer_groups.values()
    assert set(group.image.regexes) == {f"t{number:03}" for number in range(29)}


def test_what_a_group_that_is_gone_had_begun_ends(world: ConsumerWorld) -> None:
    members = [pattern_client(world, f"t{number:03}") for number in range(30)]
    for member in members:
        member.beat()
    world.advance(1)
    for member in members:
        member.leave()
    world.advance(700_000)
    assert world.state() is None
    before = Prefix.matches
    world.advance(20_000)
    assert Prefix.matches == before


def test_a_step_that_cannot_be_stored_is_taken_again(world: ConsumerWorld) -> None:
    members = [pattern_client(world, f"t{number:03}") for number in range(30)]
    for member in members:
        member.beat()
    world.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(1)
    world.advance(12_000)
    world.settle(*members)
    world.advance(2_000)
    world.settle(*members)
    assert {len(member.owned) for member in members} == {10}
