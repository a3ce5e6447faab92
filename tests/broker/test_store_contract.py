"""What every store promises, checked on the embedded one, in its process and over its socket, and
on a real ZooKeeper alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from strandline.cluster.store import (
    NO_SESSION,
    BadVersion,
    Changes,
    Check,
    Checked,
    Create,
    Created,
    DataSet,
    Delete,
    Deleted,
    InvalidPath,
    MultiRefused,
    NoChildrenForEphemerals,
    NodeCreated,
    NodeDeleted,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OutcomeUnknown,
    SetData,
    StoreError,
    StoreUnavailable,
)
from strandline.errors import InvariantViolated
from tests.broker.store_worlds import (
    LONG_MS,
    PATIENCE_S,
    SHORT_MS,
    EmbeddedWorld,
    Follower,
    RemoteWorld,
    World,
    ZooKeeperWorld,
    outcome_of,
    until,
    written,
)

Scenario = Callable[[World], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture(params=["embedded", "remote", "zookeeper"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a scenario in a world of one kind."""

    async def in_world(scenario: Scenario) -> None:
        world: World
        if request.param == "embedded":
            world = EmbeddedWorld(tmp_path)
        elif request.param == "remote":
            world = RemoteWorld(tmp_path)
        else:
            world = ZooKeeperWorld(request.getfixturevalue("ensemble"))
        async with asyncio.timeout(2 * PATIENCE_S):
            try:
                await scenario(world)
            finally:
                await world.close()

    return lambda scenario: asyncio.run(in_world(scenario))


def test_results_tell_paths_versions_and_transactions(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower = await world.join()
        first = await follower.store.multi(
            [Create("/a", b"1"), SetData("/a", b"2", 0), Check("/a", 1), Create("/a/b")]
        )
        created, data_set, checked, below = first
        assert (created, checked, below) == (Created("/a"), Checked(), Created("/a/b"))
        assert isinstance(data_set, DataSet)
        assert (data_set.stat.version, data_set.stat.owner) == (1, NO_SESSION)
        assert data_set.stat.created_zxid == data_set.stat.modified_zxid == follower.zxid
        assert follower.nodes["/a"].stat == data_set.stat
        (again,) = await follower.store.multi([SetData("/a", b"", 1)])
        assert isinstance(again, DataSet)
        assert again.stat.created_zxid == data_set.stat.created_zxid
        assert again.stat.modified_zxid > data_set.stat.modified_zxid
        assert await follower.store.multi([Delete("/a/b", 0), Delete("/a")]) == (
            Deleted(),
            Deleted(),
        )
        assert follower.paths() == []
        assert await follower.store.multi([]) == ()
        assert not follower.problems

    run(scenario)


REFUSED: list[tuple[type[MultiRefused], Operation]] = [
    (NodeExists, Create("/full")),
    (NoNode, Create("/none/child")),
    (NoNode, SetData("/none", b"")),
    (NoNode, Delete("/none")),
    (NoNode, Check("/none")),
    (BadVersion, SetData("/full", b"", 7)),
    (BadVersion, Delete("/full/child", 7)),
    (BadVersion, Check("/full", 7)),
    (NotEmpty, Delete("/full")),
    (NoChildrenForEphemerals, Create("/mine/child")),
    (InvalidPath, Create("no-slash")),
    (InvalidPath, Create("/a//b")),
    (InvalidPath, Create("/a/../b")),
    (InvalidPath, Create("/a\0b")),
]


def test_a_refusal_says_why_and_where_and_nothing_has_happened(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower = await world.join()
        await follower.store.multi(
            [Create("/full"), Create("/full/child"), Create("/mine", ephemeral=True)]
        )
        before = dict(follower.nodes)
        for kind, operation in REFUSED:
            with pytest.raises(kind) as refused:
                await follower.store.multi(
                    [Check("/full", 0), Create("/new"), operation, SetData("/none", b"")]
                )
            assert refused.value.index == 2, operation
            assert refused.value.path == operation.path
            assert type(refused.value) is kind
        assert follower.nodes == before
        assert (await world.join()).nodes == before

    run(scenario)


def test_sequential_names_grow_within_their_parent(run: Run) -> None:
    async def scenario(world: World) -> None:
        one, other = await world.join(), await world.join()
        await one.store.multi([Create("/q")])
        names: list[str] = []

        async def append(follower: Follower) -> None:
            results = await follower.store.multi(
                [Create("/q/n-", b"x", sequential=True), Create("/q/n-", sequential=True)]
            )
            for result in results:
                assert isinstance(result, Created)
                assert result.path in follower.nodes
                names.append(result.path)

        await asyncio.gather(*(append(follower) for follower in (one, other) * 10))
        assert sorted(names) == [f"/q/n-{number:010d}" for number in range(40)]

    run(scenario)


def test_contents_of_any_kind_come_back(run: Run) -> None:
    async def scenario(world: World) -> None:
        one, other = await world.join(), await world.join()
        contents = {"/empty": b"", "/bytes": bytes(range(256)), "/große ∂atei": b"x" * 300_000}
        await one.store.multi([Create(path, data) for path, data in contents.items()])
        await until(lambda: len(other.nodes) == 3)
        third = await world.join()
        for follower in (one, other, third):
            assert {path: node.data for path, node in follower.nodes.items()} == contents

    run(scenario)


def test_a_transaction_is_told_whole_and_in_an_order_that_fits(run: Run) -> None:
    async def scenario(world: World) -> None:
        one, other = await world.join(), await world.join()
        await one.store.multi(
            [Create("/t"), Create("/t/p"), Create("/t/p/0"), Create("/config", ephemeral=True)]
        )
        await one.store.multi(
            [Delete("/t/p/0"), Delete("/t/p"), Delete("/t"), Create("/u"), Create("/u/0", b"1")]
        )
        await until(lambda: "/u/0" in other.nodes)
        assert other.paths() == one.paths() == ["/config", "/u", "/u/0"]
        assert [len(changes.changes) for changes in one.heard] == [4, 5]
        assert not one.problems + other.problems
        # The other one hears what happened in its own time, but never a part of a transaction.
        assert [len(changes.changes) for changes in other.heard] in ([4, 5], [3])

    run(scenario)


def test_everything_is_told_before_the_write_returns(run: Run) -> None:
    async def scenario(world: World) -> None:
        followers = [await world.join() for _ in range(3)]
        await followers[0].store.multi([Create("/counter", b"0")])
        await until(lambda: all("/counter" in follower.nodes for follower in followers))

        async def count(follower: Follower, rounds: int) -> None:
            """A refusal comes after the change that caused it: the next attempt is from newer."""
            while rounds:
                node = follower.nodes["/counter"]
                data = str(int(node.data) + 1).encode()
                try:
                    await follower.store.multi([SetData("/counter", data, node.stat.version)])
                except BadVersion:
                    assert follower.nodes["/counter"].stat.version > node.stat.version
                else:
                    assert follower.nodes["/counter"].stat.version > node.stat.version
                    rounds -= 1

        await asyncio.gather(*(count(follower, 20) for follower in followers))
        await until(lambda: all(follower.data("/counter") == b"60" for follower in followers))
        assert not [problem for follower in followers for problem in follower.problems]

    run(scenario)


def random_operations(random: Random) -> list[Operation]:
    """A multi on a handful of nodes, of which most are refused."""

    def path() -> str:
        return "/" + "/".join(random.choice("abc") for _ in range(random.randint(1, 3)))

    def operation() -> Operation:
        kind = random.randrange(6)
        if kind < 3:
            return Create(path(), random.randbytes(3), ephemeral=random.random() < 0.2)
        if kind < 4:
            return SetData(path(), random.randbytes(3))
        return Delete(path())

    return [operation() for _ in range(random.choice([1, 1, 2, 3]))]


@pytest.mark.parametrize("seed", range(3))
def test_followers_of_a_random_history_agree_with_the_tree(run: Run, seed: int) -> None:
    async def scenario(world: World) -> None:
        followers = [await world.join() for _ in range(3)]

        async def work(number: int) -> None:
            random = Random(seed * 100 + number)
            for _ in range(80):
                try:
                    await followers[number % 3].store.multi(random_operations(random))
                except MultiRefused:
                    continue

        await asyncio.gather(*(work(number) for number in range(6)))
        await followers[0].store.multi([Create("/end")])
        await until(lambda: all("/end" in follower.nodes for follower in followers))
        last = await world.join()
        for follower in followers:
            assert follower.nodes == last.nodes
            assert not follower.problems

    run(scenario)


# Sessions.


def test_closing_ends_the_session_and_its_nodes_at_once(run: Run) -> None:
    async def scenario(world: World) -> None:
        leaving, staying = await world.join(), await world.join()
        assert NO_SESSION not in (leaving.store.session, staying.store.session)
        assert leaving.store.session != staying.store.session
        await leaving.store.multi([Create("/leaving", ephemeral=True), Create("/kept")])
        await staying.store.multi([Create("/staying", ephemeral=True)])
        assert staying.nodes["/staying"].stat.owner == staying.store.session
        assert staying.nodes["/leaving"].stat.owner == leaving.store.session
        await leaving.store.close()
        await until(lambda: staying.paths() == ["/kept", "/staying"])
        with pytest.raises(StoreUnavailable):
            await leaving.store.multi([Create("/late")])
        await leaving.store.close()

    run(scenario)


def test_a_store_is_loaded_once(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower = await world.join()
        with pytest.raises(InvariantViolated):
            await follower.store.load(follower.hear)

    run(scenario)


def test_an_ended_session_is_replaced_and_its_end_is_told(run: Run) -> None:
    async def scenario(world: World) -> None:
        victim, other = await world.join(), await world.join()
        (_, registered) = await victim.store.multi(
            [Create("/id", ephemeral=True), SetData("/id", b"me", 0)]
        )
        assert isinstance(registered, DataSet)
        before = victim.store.session
        sessions_heard: list[int] = []

        def hear(changes: Changes) -> None:
            sessions_heard.append(victim.store.session)
            victim.hear(changes)

        victim.store._listener = hear  # type: ignore[attr-defined]
        world.expire(victim)
        await until(lambda: "/id" not in victim.nodes)
        assert sessions_heard == [victim.store.session] != [before]
        results = await written(victim.store, Create("/id", b"", ephemeral=True))
        assert results == (Created("/id"),)
        assert victim.nodes["/id"].stat.owner == victim.store.session
        assert victim.nodes["/id"].stat.created_zxid > registered.stat.created_zxid
        await until(lambda: other.nodes.get("/id") == victim.nodes["/id"])
        assert not victim.problems + other.problems

    run(scenario)


def test_f35_all_sessions_may_end_together(run: Run) -> None:
    async def scenario(world: World) -> None:
        followers = [await world.join() for _ in range(3)]
        for number, follower in enumerate(followers):
            await follower.store.multi([Create(f"/{number}", ephemeral=True)])
        for follower in followers:
            world.expire(follower)

        def has_no_old_node(follower: Follower) -> bool:
            return not follower.nodes and follower.store.session != NO_SESSION

        await until(lambda: all(map(has_no_old_node, followers)))
        for number, follower in enumerate(followers):
            await written(follower.store, Create(f"/{number}", ephemeral=True))
        await until(lambda: all(len(follower.nodes) == 3 for follower in followers))
        assert not [problem for follower in followers for problem in follower.problems]

    run(scenario)


# The network between a store and the tree.


def test_who_is_cut_off_cannot_write_and_catches_up_when_it_is_back(run: Run) -> None:
    async def scenario(world: World) -> None:
        cut_off, other = await world.join(), await world.join()
        await cut_off.store.multi(
            [Create("/mine", ephemeral=True), Create("/bounced"), Create("/set"), Create("/gone")]
        )
        session, heard = cut_off.store.session, len(cut_off.heard)
        bounced = cut_off.nodes["/bounced"].stat
        await world.cut(cut_off)
        with pytest.raises(StoreUnavailable):
            await cut_off.store.multi([Create("/nothing")])
        missed: list[list[Operation]] = [
            [Delete("/bounced"), Create("/new"), Create("/short")],
            [Create("/bounced"), SetData("/new", b"2"), Create("/new/below")],
            [SetData("/set", b"1"), Delete("/gone"), Delete("/short")],
            [SetData("/set", b"2")],
        ]
        for operations in missed:
            await other.store.multi(operations)
        assert len(cut_off.heard) == heard
        world.heal(cut_off)
        await until(lambda: "/new/below" in cut_off.nodes)
        (changes,) = cut_off.heard[heard:]
        assert cut_off.store.session == session
        assert cut_off.nodes == other.nodes
        assert cut_off.nodes["/bounced"].stat.created_zxid > bounced.created_zxid
        assert NodeDeleted("/bounced") in changes.changes
        assert cut_off.data("/set") == b"2"
        created = [change.path for change in changes.changes if isinstance(change, NodeCreated)]
        assert created == ["/bounced", "/new", "/new/below"]
        assert not cut_off.problems + other.problems
        await written(cut_off.store, SetData("/mine", b"still mine"))

    run(scenario)


def test_nothing_missed_nothing_told(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower = await world.join()
        await follower.store.multi([Create("/a")])
        await world.cut(follower)
        world.heal(follower)
        await written(follower.store, Create("/b"))
        assert [len(changes.changes) for changes in follower.heard] == [1, 1]

    run(scenario)


def test_f24_who_is_cut_off_for_too_long_loses_its_session(run: Run) -> None:
    async def scenario(world: World) -> None:
        cut_off, other = await world.join(SHORT_MS), await world.join()
        await cut_off.store.multi([Create("/controller", b"1", ephemeral=True)])
        session = cut_off.store.session
        await until(lambda: "/controller" in other.nodes)
        await world.cut(cut_off)
        await until(lambda: "/controller" not in other.nodes)
        await other.store.multi([Create("/controller", b"2", ephemeral=True)])
        with pytest.raises(StoreUnavailable):
            await cut_off.store.multi([SetData("/controller", b"zombie")])
        assert cut_off.data("/controller") == b"1"
        world.heal(cut_off)
        await until(lambda: cut_off.data("/controller") == b"2")
        assert cut_off.store.session != session
        assert cut_off.nodes == other.nodes
        assert not cut_off.problems + other.problems

    run(scenario)


def test_f36_a_write_whose_answer_is_lost_is_told_before_its_outcome(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower, other = await world.join(), await world.join()
        writing = await world.lose_reply(
            follower, [Create("/done", b"", ephemeral=True)], witness=other
        )
        assert "/done" in other.nodes
        assert "/done" not in follower.nodes
        assert not writing.done()
        world.heal(follower)
        outcome = await writing
        assert isinstance(outcome, OutcomeUnknown)
        # A caller that decides again recognises its own work by the owner.
        assert follower.nodes["/done"].stat.owner == follower.store.session
        with pytest.raises(NodeExists):
            await written(follower.store, Create("/done", ephemeral=True))

    run(scenario)


def test_the_outcome_of_a_write_is_told_even_if_the_store_stays_away(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower, other = await world.join(SHORT_MS), await world.join()
        writing = await world.lose_reply(follower, [Create("/done")], witness=other)
        assert isinstance(await writing, OutcomeUnknown)
        assert "/done" not in follower.nodes
        world.heal(follower)
        await until(lambda: "/done" in follower.nodes)

    run(scenario)


def test_closing_ends_all_waits(run: Run) -> None:
    async def scenario(world: World) -> None:
        follower, other = await world.join(), await world.join()
        writing = await world.lose_reply(follower, [Create("/done")], witness=other)
        await follower.store.close()
        outcome = await asyncio.wait_for(writing, 0.75 * LONG_MS / 1000)
        assert isinstance(outcome, OutcomeUnknown)

    run(scenario)


def test_a_listener_that_fails_does_not_disturb_the_others(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        one, other = await world.join(), await world.join()

        def fail(_: object) -> None:
            raise LookupError("a bug")

        one.store._listener = fail  # type: ignore[attr-defined]
        await one.store.multi([Create("/a")])
        await other.store.multi([Create("/b")])
        await until(lambda: other.paths() == ["/a", "/b"])
        assert "could not be taken in" in caplog.text

    run(scenario)


async def hears_more(follower: Follower) -> None:
    """Wait until the listener has heard something after now."""
    heard = len(follower.heard)
    await until(lambda: len(follower.heard) > heard)


def test_a_random_history_with_faults_ends_in_agreement(run: Run) -> None:
    async def scenario(world: World) -> None:
        followers = [await world.join() for _ in range(3)]
        is_over = False

        async def work(number: int) -> None:
            random = Random(number)
            while not is_over:
                outcome = await outcome_of(followers[number].store.multi(random_operations(random)))
                if isinstance(outcome, StoreError) and not isinstance(outcome, MultiRefused):
                    await asyncio.sleep(0.001)

        async def disturb() -> None:
            nonlocal is_over
            random = Random(11)
            for _ in range(12):
                victim = random.choice(followers)
                if random.random() < 0.7:
                    await world.cut(victim)
                    world.heal(victim)
                else:
                    world.expire(victim)
                await hears_more(victim)
            is_over = True

        await asyncio.gather(disturb(), *(work(number) for number in range(3)))
        await written(followers[0].store, Create("/end"))
        await until(lambda: all("/end" in follower.nodes for follower in followers))
        await asyncio.gather(
            *(
                written(follower.store, Create(f"/end/{number}"))
                for number, follower in enumerate(followers)
            )
        )
        last = await world.join()
        await until(lambda: all(follower.nodes == last.nodes for follower in followers))
        assert not [problem for follower in followers for problem in follower.problems]

    run(scenario)
