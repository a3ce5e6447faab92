"""The promises of the metadata store hold under any faults; a seed gives one history."""

from __future__ import annotations

from random import Random

import pytest

from strandline.cluster.store import Create, Delete, Operation, SetData, StoreUnavailable
from strandline.types import BrokerId
from tests.sim.store_followers import TIMEOUT_US, Ensemble, Follower

BROKERS = (1, 2, 3)
ROUNDS = 600


class Chaos:
    """Clients that write, die and come back, while everything goes wrong."""

    def __init__(self, seed: int, *, torn: bool) -> None:
        self.random = random = Random(seed)
        self.torn = torn
        self.world = Ensemble(
            seed,
            latency_us=random.choice((0, 500, 20_000)),
            lag_us=random.choice((0, 0, 50_000)),
        )
        self.alive: dict[int, Follower] = {}
        self.paused: set[int] = set()
        self.all_followers: list[Follower] = []
        self.count = 0

    def run(self) -> None:
        for _ in range(ROUNDS):
            self.step()
            self.world.run(
                self.random.choice((0, 1, 1, 10, 100, 1000, self.random.random() * 8000))
            )
        self.heal()

    def step(self) -> None:
        random, store = self.random, self.world.store
        broker_id = random.choice(BROKERS)
        at = BrokerId(broker_id)
        follower = self.alive.get(broker_id)
        if follower is None:
            self.join(broker_id)
            return
        match random.randrange(60):
            case 0:
                store.cut(at)
            case 1 | 2:
                store.heal(at)
            case 3:
                store.reset(at)
            case 4:
                store.expire(at)
            case 5:
                store.lose_next(at, random.random() < 0.5)
            case 6:
                store.lag(at, random.choice((0, 0, 1000, 10**6, 2 * 10**7)), torn=self.torn)
            case 7:
                store.set_unavailable(random.random() < 0.4)
            case 8:
                follower.client.die(at_once=random.random() < 0.5)
                del self.alive[broker_id]
                self.paused.discard(broker_id)
            case 9:
                follower.client.pause()
                self.paused.add(broker_id)
            case 10 | 11:
                follower.client.resume()
                self.paused.discard(broker_id)
            case _:
                if broker_id not in self.paused:
                    self.write(follower)

    def join(self, broker_id: int) -> None:
        try:
            follower = self.world.join(broker_id, torn=self.torn)
        except StoreUnavailable:
            return
        self.alive[broker_id] = follower
        self.all_followers.append(follower)

    def write(self, follower: Follower) -> None:
        random = self.random
        self.count += 1
        node = f"/node-{random.randrange(4)}"
        known = follower.nodes.get(node)
        operation: Operation = Create(node, ephemeral=random.random() < 0.5)
        if known is not None:
            operation = random.choice((Delete(node), SetData(node, b"", known[1].version)))
        follower.wish(f"/w{self.count}", operation)

    def heal(self) -> None:
        self.world.store.heal_all()
        for follower in self.alive.values():
            follower.client.resume()
        self.world.run(4 * TIMEOUT_US // 1000 + 45_000)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_under_all_faults_the_promises_hold(seed: int, torn: bool) -> None:
    chaos = Chaos(seed, torn=torn)
    chaos.run()
    world, truth = chaos.world, chaos.world.truth[-1]
    sessions = {follower.client.session for follower in chaos.alive.values()}
    owners = {stat.owner for _, stat in truth.values() if stat.is_ephemeral}
    assert owners <= sessions, "a session that is gone still owns nodes"
    for follower in chaos.alive.values():
        assert follower.client.is_up_to_date
        assert follower.nodes == truth
    alive = {id(follower) for follower in chaos.alive.values()}
    for wish in world.wishes.values():
        assert wish.outcomes <= 1
    for follower in world.followers:
        assert follower.client.is_gone != (id(follower) in alive)
    assert world.store.image.zxid == world.store.tree.zxid


def test_a_live_client_gets_every_outcome() -> None:
    for seed in range(10):
        chaos = Chaos(seed, torn=False)
        for broker_id in BROKERS:
            chaos.join(broker_id)
        wishes = []
        for number in range(200):
            follower = chaos.alive[chaos.random.choice(BROKERS)]
            at = follower.broker_id
            fault = chaos.random.randrange(8)
            if fault == 0:
                chaos.world.store.cut(at)
            elif fault == 1:
                chaos.world.store.heal(at)
            elif fault == 2:
                chaos.world.store.lose_next(at, chaos.random.random() < 0.5)
            elif fault == 3:
                chaos.world.store.set_unavailable(chaos.random.random() < 0.4)
            elif fault == 4:
                chaos.world.store.expire(at)
            wishes.append(follower.wish(f"/w{number}"))
            chaos.world.run(chaos.random.choice((0, 5, 500, 3000)))
        chaos.heal()
        assert [wish.outcomes for wish in wishes] == [1] * 200
        kinds = {type(wish.outcome).__name__ for wish in wishes}
        assert kinds == {"NoneType", "OutcomeUnknown", "StoreUnavailable"}


@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    logs = []
    for _ in range(2):
        chaos = Chaos(seed, torn=True)
        chaos.run()
        logs.append(chaos.world.log)
    assert logs[0] == logs[1]
    assert len(logs[0]) > 100


def test_a_fault_on_one_broker_shifts_no_draw_of_another() -> None:
    def told_to_two(*, disturbed: bool) -> list[str]:
        world = Ensemble(9)
        for number in BROKERS:
            world.join(number)
        if disturbed:
            world.store.cut(BrokerId(3))
        for number in range(20):
            world.followers[0].wish(f"/{number}")
            world.run(100)
        return [line for line in world.log if line.split()[1] == "2"]

    assert told_to_two(disturbed=True) == told_to_two(disturbed=False)
