"""The simulated metadata store keeps the promises of `cluster.store.Store`, fault by fault."""

from __future__ import annotations

import pytest

from strandline.cluster.store import (
    BadVersion,
    Create,
    Delete,
    NodeCreated,
    NodeDeleted,
    NodeExists,
    OutcomeUnknown,
    SetData,
    StoreUnavailable,
)
from strandline.errors import InvariantViolated
from strandline.types import BrokerId
from tests.sim.store_followers import TIMEOUT_US, Ensemble, outcomes_of

ONE, TWO = BrokerId(1), BrokerId(2)
TIMEOUT_MS = TIMEOUT_US // 1000
SOON_MS = 1000


def test_a_write_is_heard_by_all_and_by_its_author_before_the_outcome() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    wish = one.wish("/a", Create("/a/b", b"x"))
    world.run_until(lambda: bool(wish.outcomes))
    assert wish.outcome is None
    assert one.nodes["/a/b"][0] == b"x"
    world.run(SOON_MS)
    assert two.nodes == one.nodes
    assert two.client.is_up_to_date
    assert world.store.image.zxid == world.store.tree.zxid == 1


def test_a_refusal_comes_after_what_caused_it_and_changes_nothing() -> None:
    world = Ensemble(latency_us=20_000)
    one, two = world.join(1), world.join(2)
    first, second = one.wish("/a", Create("/race")), two.wish("/b", Create("/race"))
    world.run(SOON_MS)
    loser, knower = (second, two) if first.outcome is None else (first, one)
    assert isinstance(loser.outcome, NodeExists)
    assert loser.outcome.index == 1
    assert loser.mark not in knower.nodes
    assert "/race" in knower.nodes


def test_f41_a_version_can_be_used_once() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/node")
    world.run(SOON_MS)
    wishes = [
        follower.wish(f"/{follower.broker_id}", SetData("/node", b"", 0)) for follower in (one, two)
    ]
    world.run(SOON_MS)
    assert sorted(outcomes_of(wishes)) == ["BadVersion", "done"]
    assert any(isinstance(wish.outcome, BadVersion) for wish in wishes)


def test_writes_of_one_client_happen_in_their_order() -> None:
    world = Ensemble(latency_us=50_000)
    one = world.join(1)
    wishes = [one.wish(f"/{number}") for number in range(30)]
    world.run(10 * SOON_MS)
    assert outcomes_of(wishes) == ["done"] * 30
    assert [wish.applied for wish in wishes] == list(range(1, 31))


def test_an_empty_write_needs_no_store() -> None:
    world = Ensemble()
    one = world.join(1)
    world.store.cut(ONE, silent=True)
    told: list[object] = []
    one.client.write([], told.append)
    assert not told
    world.run(1)
    assert told == [None]


# Connections.


def test_who_is_cut_off_is_refused_and_hears_the_net_effect_when_it_is_back() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    two.wish("/old", Create("/bounced"))
    world.run(SOON_MS)
    heard, session = len(one.heard), one.client.session
    world.store.cut(ONE, silent=False)
    world.run(50)
    refused = one.wish("/nothing")
    for number in range(5):
        two.wish(f"/{number}", Delete("/bounced"), Create("/bounced"))
        world.run(20)
    two.wish("/gone")
    world.run(20)
    world.store.apply([Delete("/gone")])
    assert outcomes_of([refused]) == ["StoreUnavailable"]
    assert len(one.heard) == heard
    world.store.heal(ONE)
    world.run_until(lambda: one.client.is_ready)
    (changes,) = one.heard[heard:]
    assert NodeDeleted("/bounced") in changes.changes
    assert "/gone" not in {change.path for change in changes.changes}
    assert one.nodes == world.truth[-1]
    assert one.client.session == session
    again = one.wish("/again")
    world.run(SOON_MS)
    assert outcomes_of([again]) == ["done"]


def test_nothing_missed_nothing_told() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    world.store.cut(ONE, silent=False)
    world.run(50)
    two.wish("/short")
    world.run(50)
    world.store.apply([Delete("/short")])
    world.store.heal(ONE)
    world.run(SOON_MS)
    assert not one.heard
    assert one.client.is_up_to_date


def test_a_silent_cut_that_is_short_delays_everything_and_loses_nothing() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    world.store.cut(ONE, silent=True)
    wishes = [one.wish("/a"), one.wish("/b")]
    two.wish("/c")
    world.run(TIMEOUT_MS // 3 - 1)
    assert one.client.is_ready
    assert not one.client.is_up_to_date
    assert not one.heard
    assert outcomes_of(wishes) == ["-", "-"]
    world.store.heal(ONE)
    world.run(SOON_MS)
    assert outcomes_of(wishes) == ["done", "done"]
    assert sorted(one.nodes) == ["/a", "/b", "/c"]


def test_a_silent_cut_is_noticed_and_what_was_sent_into_it_never_happens() -> None:
    world = Ensemble()
    one = world.join(1)
    world.store.cut(ONE, silent=True)
    lost = one.wish("/a")
    world.run(2 * TIMEOUT_MS // 3 + 1)
    assert not one.client.is_ready
    assert outcomes_of([lost]) == ["-"]
    world.store.heal(ONE)
    world.run(SOON_MS)
    assert outcomes_of([lost]) == ["OutcomeUnknown"]
    assert lost.applied is None


def test_no_write_waits_for_its_outcome_much_longer_than_the_session_timeout() -> None:
    world = Ensemble()
    one = world.join(1)
    world.store.lose_next(ONE, applied=True)
    lost = one.wish("/a")
    world.store.lag(ONE, 100)
    world.run(5)
    world.store.cut(ONE, silent=False)
    world.run(2 * TIMEOUT_MS)
    assert outcomes_of([lost]) == ["OutcomeUnknown"]
    assert "/a" not in one.nodes
    world.store.heal(ONE)
    world.run(SOON_MS)
    assert "/a" in one.nodes


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_f36_f37_a_lost_answer_leaves_the_outcome_open(applied: bool, seed: int) -> None:
    world = Ensemble(seed)
    one, two = world.join(1), world.join(2)
    world.store.lose_next(ONE, applied=applied)
    lost = one.wish("/a", Create("/mine", ephemeral=True))
    world.run_until(lambda: bool(lost.outcomes))
    world.run(SOON_MS)
    assert (lost.applied is not None) == applied
    assert ("/mine" in one.nodes) == ("/mine" in two.nodes) == applied
    # What had arrived before the connection broke may be known: then it is the truth.
    assert isinstance(lost.outcome, OutcomeUnknown) or (applied and lost.outcome is None)
    following = one.wish("/b")
    world.run(SOON_MS)
    assert outcomes_of([following]) == ["done"], "only one write was to be lost"


def test_f36_the_answer_that_had_arrived_may_be_told_after_the_news() -> None:
    kinds = set()
    for seed in range(30):
        world = Ensemble(seed)
        one = world.join(1)
        world.store.lose_next(ONE, applied=True)
        lost = one.wish("/a")
        world.run(SOON_MS)
        kinds.update(outcomes_of([lost]))
    assert kinds == {"done", "OutcomeUnknown"}


def test_a_session_that_moves_to_another_server_goes_on() -> None:
    world = Ensemble()
    one = world.join(1)
    one.wish("/a", Create("/mine", ephemeral=True))
    world.run(SOON_MS)
    session = one.client.session
    world.store.reset(ONE)
    world.run_until(lambda: not one.client.is_ready)
    world.run_until(lambda: one.client.is_ready)
    world.run(2 * TIMEOUT_MS)
    assert one.client.session == session
    assert "/mine" in world.truth[-1]


# News.


def test_f38_f39_a_lagging_client_hears_late_and_at_once_but_its_own_writes_wait_for_it() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    world.store.lag(ONE, 400_000)
    for number in range(20):
        two.wish(f"/{number}")
        world.run(5)
    assert not one.heard
    wish = one.wish("/own")
    world.run(50)
    assert not wish.outcomes
    world.run(SOON_MS)
    assert len(one.heard) < 4
    assert len(two.heard) > 15
    assert outcomes_of([wish]) == ["done"]
    assert one.nodes == two.nodes == world.truth[-1]
    world.store.lag(ONE, 0)
    quick = one.wish("/quick")
    world.run(20)
    assert outcomes_of([quick]) == ["done"]


def test_a_lag_of_all_news_gathers_them_but_no_write_waits_for_it() -> None:
    world = Ensemble(lag_us=200_000)
    one, two = world.join(1), world.join(2)
    for number in range(40):
        two.wish(f"/{number}")
        world.run(5)
    world.run(SOON_MS)
    assert len(one.heard) < 10
    assert len(two.heard) > 30
    assert one.nodes == two.nodes


def test_a_torn_transaction_is_heard_in_two_parts_in_order() -> None:
    torn = 0
    for seed in range(10):
        world = Ensemble(seed)
        one, two = world.join(1, torn=True), world.join(2)
        world.store.lag(ONE, 1000, torn=True)
        two.wish("/a", Create("/b"), Create("/b/c"), Create("/d"))
        world.run(SOON_MS)
        assert sum(len(changes.changes) for changes in one.heard) == 4
        assert one.nodes == world.truth[-1]
        torn += len(one.heard) > 1
        two.wish("/e")
        world.run(SOON_MS)
        assert one.nodes == world.truth[-1]
    assert 0 < torn < 10


# Sessions.


def test_f35_an_expired_client_learns_of_it_last_and_has_a_new_session() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/a", Create("/id", ephemeral=True))
    world.run(SOON_MS)
    before = one.client.session
    world.store.expire(ONE)
    assert "/id" not in world.truth[-1]
    zombie = one.wish("/zombie")
    world.run_until(lambda: "/id" not in two.nodes)
    world.run_until(lambda: "/id" not in one.nodes)
    assert one.sessions[-1] == one.client.session != before
    assert outcomes_of([zombie]) == ["OutcomeUnknown"]
    assert zombie.applied is None
    made = one.wish("/b", Create("/id", ephemeral=True))
    world.run(SOON_MS)
    assert outcomes_of([made]) == ["done"]
    assert two.nodes["/id"][1].owner == one.client.session


def test_f35_all_sessions_end_together() -> None:
    world = Ensemble()
    followers = [world.join(number) for number in (1, 2, 3)]
    for follower in followers:
        follower.wish(f"/w{follower.broker_id}", Create(f"/{follower.broker_id}", ephemeral=True))
    world.run(SOON_MS)
    sessions = {follower.client.session for follower in followers}
    world.store.expire_all()
    world.run(SOON_MS)
    for follower in followers:
        assert follower.client.is_up_to_date
        assert follower.client.session not in sessions
        assert sorted(follower.nodes) == ["/w1", "/w2", "/w3"]


@pytest.mark.parametrize("silent", [True, False])
def test_f24_who_is_cut_off_for_its_timeout_loses_its_session(silent: bool) -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/a", Create("/id", ephemeral=True))
    world.run(SOON_MS)
    world.store.cut(ONE, silent=silent)
    world.run(2 * TIMEOUT_MS // 3 - 1)
    assert "/id" in two.nodes
    world.run(TIMEOUT_MS // 3 + TIMEOUT_MS // 8 + 100)
    assert "/id" not in two.nodes
    assert "/id" in one.nodes
    world.store.heal(ONE)
    world.run(SOON_MS)
    assert "/id" not in one.nodes


@pytest.mark.parametrize("silent", [True, False])
def test_who_is_back_in_time_keeps_its_session(silent: bool) -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/a", Create("/id", ephemeral=True))
    world.run(SOON_MS)
    for _ in range(6):
        world.store.cut(ONE, silent=silent)
        world.run(TIMEOUT_MS // 3)
        world.store.heal(ONE)
        world.run(SOON_MS)
        assert one.client.is_up_to_date
    world.run(2 * TIMEOUT_MS)
    assert "/id" in one.nodes
    assert one.nodes == two.nodes


def test_a_short_pause_costs_nothing_a_long_one_the_session() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/a", Create("/id", ephemeral=True))
    world.run(SOON_MS)
    before, heard = one.client.session, len(one.heard)
    one.client.pause()
    for mark in ("/b", "/c", "/d"):
        two.wish(mark)
        world.run(50)
    world.run(TIMEOUT_MS // 2)
    assert len(one.heard) == heard
    one.client.resume()
    world.run(20)
    assert len(one.heard) == heard + 1
    assert one.client.session == before
    one.client.pause()
    world.run(2 * TIMEOUT_MS)
    assert "/id" not in two.nodes
    one.client.resume()
    assert one.client.is_ready, "it cannot know yet"
    zombie = one.wish("/zombie")
    world.run(SOON_MS)
    assert outcomes_of([zombie]) == ["OutcomeUnknown"]
    assert zombie.applied is None
    assert one.client.session != before
    assert "/id" not in one.nodes


def test_a_write_before_a_pause_is_answered_after_it() -> None:
    world = Ensemble()
    one = world.join(1)
    wish = one.wish("/a")
    one.client.pause()
    world.run(SOON_MS)
    assert wish.applied is not None
    assert not wish.outcomes
    one.client.resume()
    world.run(SOON_MS)
    assert outcomes_of([wish]) == ["done"]


def test_f11_a_dead_process_is_registered_until_its_session_ends() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/a", Create("/id", ephemeral=True))
    world.run(SOON_MS)
    one.client.die(at_once=False)
    reborn = world.join(1)
    assert "/id" in reborn.nodes
    taken = reborn.wish("/b", Create("/id", ephemeral=True))
    world.run(2 * TIMEOUT_MS // 3 - 1)
    assert outcomes_of([taken]) == ["NodeExists"]
    world.run(TIMEOUT_MS)
    assert "/id" not in reborn.nodes
    assert "/id" not in two.nodes
    with pytest.raises(InvariantViolated):
        one.wish("/c")


def test_a_process_that_says_good_bye_is_gone_at_once_but_only_if_it_can() -> None:
    world = Ensemble()
    followers = [world.join(number) for number in (1, 2)]
    for follower in followers:
        follower.wish(f"/w{follower.broker_id}", Create(f"/{follower.broker_id}", ephemeral=True))
    world.run(SOON_MS)
    world.store.cut(TWO, silent=True)
    for follower in followers:
        follower.client.die(at_once=True)
    assert sorted(world.truth[-1]) == ["/2", "/w1", "/w2"]
    world.run(2 * TIMEOUT_MS)
    assert sorted(world.truth[-1]) == ["/w1", "/w2"]


def test_a_request_of_a_process_that_died_may_still_be_done() -> None:
    world = Ensemble()
    one = world.join(1)
    wish = one.wish("/a")
    one.client.die(at_once=False)
    world.run(SOON_MS)
    assert wish.applied is not None
    assert not wish.outcomes


def test_a_request_that_arrives_after_the_good_bye_is_not_done() -> None:
    for seed in range(10):
        world = Ensemble(seed)
        one = world.join(1)
        wish = one.wish("/a", Create("/id", ephemeral=True))
        one.client.die(at_once=True)
        world.run(SOON_MS)
        assert wish.applied is None


def test_who_is_paused_is_told_nothing_and_gives_up_waiting_when_it_goes_on() -> None:
    world = Ensemble()
    one = world.join(1)
    world.store.lose_next(ONE, applied=False)
    wish = one.wish("/a")
    one.client.pause()
    world.run(5 * TIMEOUT_MS)
    assert not wish.outcomes
    one.client.resume()
    world.run(0)
    assert outcomes_of([wish]) == ["OutcomeUnknown"]
    assert one.client.is_ready, "it has found out nothing else yet"


def test_who_is_cut_off_during_a_pause_notices_it_after_the_pause() -> None:
    world = Ensemble()
    one = world.join(1)
    one.client.pause()
    world.store.cut(ONE, silent=True)
    world.run(2 * TIMEOUT_MS)
    one.client.resume()
    wish = one.wish("/a")
    world.run(TIMEOUT_MS)
    assert not one.client.is_ready
    world.store.heal(ONE)
    world.run(SOON_MS)
    assert outcomes_of([wish]) == ["OutcomeUnknown"]
    assert wish.applied is None
    assert one.client.is_up_to_date


def test_patience_with_one_silence_is_not_used_up_by_another() -> None:
    for seed in range(10):
        world = Ensemble(seed)
        one = world.join(1)
        for _ in range(4):
            world.store.cut(ONE, silent=True)
            world.run(TIMEOUT_MS // 3 - 100)
            assert one.client.is_ready
            world.store.heal(ONE)
            world.run(100)
            assert one.client.is_up_to_date


# The whole ensemble.


def test_f40_out_of_service_no_client_writes_and_no_session_ends() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    one.wish("/a", Create("/id", ephemeral=True))
    two.wish("/b", Create("/dead", ephemeral=True))
    world.run(SOON_MS)
    two.client.die(at_once=False)
    world.store.set_unavailable(True)
    world.run(20)
    refused = one.wish("/c")
    with pytest.raises(StoreUnavailable):
        world.join(3)
    with pytest.raises(StoreUnavailable):
        world.store.apply([Create("/d")])
    world.store.expire_all()
    world.run(10 * TIMEOUT_MS)
    assert outcomes_of([refused]) == ["StoreUnavailable"]
    assert sorted(world.truth[-1]) == ["/a", "/b", "/dead", "/id"]
    world.store.set_unavailable(False)
    world.run(TIMEOUT_MS - 1)
    assert sorted(world.truth[-1]) == ["/a", "/b", "/dead", "/id"]
    world.run(TIMEOUT_MS)
    assert sorted(world.truth[-1]) == ["/a", "/b", "/id"]
    assert one.client.is_up_to_date


def test_f40_what_was_under_way_when_the_ensemble_failed_may_be_done_when_it_is_back() -> None:
    fates = set()
    for seed in range(20):
        world = Ensemble(seed, latency_us=5000)
        one = world.join(1)
        wish = one.wish("/a")
        world.store.set_unavailable(True)
        world.run(3 * TIMEOUT_MS)
        assert outcomes_of([wish]) == ["OutcomeUnknown"]
        assert wish.applied is None
        world.store.set_unavailable(False)
        world.run(SOON_MS)
        fates.add(wish.applied is not None)
        assert one.nodes == world.truth[-1]
    assert fates == {True, False}


def test_healing_ends_every_fault() -> None:
    world = Ensemble()
    one, two = world.join(1), world.join(2)
    store = world.store
    store.cut(ONE)
    store.lag(TWO, 10**7)
    store.lose_next(TWO, applied=False)
    store.set_unavailable(True)
    world.run(SOON_MS)
    store.heal_all()
    world.run(SOON_MS)
    wishes = [follower.wish(f"/{follower.broker_id}") for follower in (one, two)]
    world.run(SOON_MS)
    assert outcomes_of(wishes) == ["done", "done"]
    assert one.nodes == two.nodes
    assert isinstance(one.heard[-1].changes[0], NodeCreated)
