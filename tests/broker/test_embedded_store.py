"""The embedded store on real files: what its clients share, and what they hear and lose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.broker import durable_tree
from strandline.broker.durable_tree import JOURNAL, SNAPSHOT
from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.cluster.journal_format import JOURNAL_HEADER, DamagedJournal, encode_snapshot
from strandline.cluster.store import (
    Changes,
    Create,
    Created,
    DataSet,
    NodeDeleted,
    NodeExists,
    SetData,
    StoreUnavailable,
)
from strandline.cluster.tree import NodeTree
from strandline.storage.files import LockHeld
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.real_files import RealFiles
from tests.broker.store_worlds import until


def run(test: Callable[[EmbeddedStore], Coroutine[Any, Any, None]], directory: Path) -> None:
    async def with_store() -> None:
        store = EmbeddedStore(RealFiles(), str(directory))
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(with_store())


def test_listeners_hear_every_change_once_before_the_caller_goes_on(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await store.multi([Create("/before")])
        heard: list[Changes] = []
        view = await store.load(heard.append)
        assert [node.path for node in view.nodes] == ["/before"]

        async def create(number: int) -> None:
            (created,) = await store.multi([Create("/before/n-", b"", sequential=True)])
            assert isinstance(created, Created)
            assert any(c.path == created.path for change in heard for c in change.changes)

        await asyncio.gather(*(create(number) for number in range(50)))
        assert [change.zxid for change in heard] == list(range(2, 52))

    run(scenario, tmp_path)

    async def reopened(store: EmbeddedStore) -> None:
        assert store.recovery.replayed == 51

    run(reopened, tmp_path)


def test_registration_gives_a_growing_broker_epoch(tmp_path: Path) -> None:
    epochs: list[int] = []

    async def register(store: EmbeddedStore) -> None:
        session = store.open_session()
        assert session > 0
        results = await store.multi([Create("/1", ephemeral=True), SetData("/1", b"", 0)], session)
        assert isinstance(results[1], DataSet)
        epochs.append(results[1].stat.created_zxid)

    for _ in range(3):
        run(register, tmp_path)
    assert epochs == sorted(set(epochs))


def test_closing_a_session_deletes_its_nodes_and_no_others(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        mine, other = store.open_session(), store.open_session()
        assert mine != other
        await store.multi([Create("/mine", ephemeral=True)], mine)
        await store.multi([Create("/other", ephemeral=True), Create("/kept")], other)
        await store.close_session(mine)
        view = await store.load(lambda changes: None)
        assert [node.path for node in view.nodes] == ["/kept", "/other"]

    run(scenario, tmp_path)


def test_a_refusal_reaches_only_its_caller(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        outcomes = await asyncio.gather(
            store.multi([Create("/a")]),
            store.multi([Create("/a")]),
            store.multi([Create("/b")]),
            return_exceptions=True,
        )
        assert outcomes[0] == (Created("/a"),)
        assert isinstance(outcomes[1], NodeExists)
        assert outcomes[2] == (Created("/b"),)

    run(scenario, tmp_path)


def test_a_cancelled_caller_leaves_the_store_in_order(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        writing = asyncio.create_task(store.multi([Create("/writing")]))
        waiting = asyncio.create_task(store.multi([Create("/waiting")]))
        late = asyncio.create_task(late_multi(store))
        await asyncio.sleep(0)
        waiting.cancel()
        writing.cancel()
        results = await asyncio.gather(writing, waiting, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await late
        view = await store.load(lambda changes: None)
        assert "/late" in [node.path for node in view.nodes]

    async def late_multi(store: EmbeddedStore) -> None:
        await store.multi([Create("/late")])

    run(scenario, tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        with pytest.raises(LockHeld):
            EmbeddedStore(RealFiles(), str(tmp_path))

    run(scenario, tmp_path)


def test_other_users_cannot_read_the_metadata(tmp_path: Path) -> None:
    """It holds the salted keys of SCRAM. What a former version left readable is closed."""

    async def scenario(store: EmbeddedStore) -> None:
        view = await store.load(lambda changes: None)
        assert view is not None

    (tmp_path / SNAPSHOT).write_bytes(encode_snapshot(NodeTree()))
    (tmp_path / JOURNAL).write_bytes(JOURNAL_HEADER)
    for name in (SNAPSHOT, JOURNAL):
        (tmp_path / name).chmod(0o644)
    run(scenario, tmp_path)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in (SNAPSHOT, JOURNAL)] == [0o600] * 2


def test_a_store_that_cannot_be_read_gives_its_lock_back(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b"not a journal at all")
    for _ in range(2):
        with pytest.raises(DamagedJournal):
            EmbeddedStore(RealFiles(), str(tmp_path))


# Clients and their sessions; what they share with ZooKeeper's is in test_store_contract.py.


class Listener:
    """A loaded client and what it heard."""

    def __init__(self, client: EmbeddedClient) -> None:
        self.client = client
        self.heard: list[Changes] = []

    async def load(self) -> Listener:
        await self.client.load(self.heard.append)
        return self

    def changed(self) -> list[str]:
        return [change.path for changes in self.heard for change in changes.changes]


async def joined(store: EmbeddedStore, session_timeout_ms: int = 20_000) -> Listener:
    return await Listener(EmbeddedClient(store, session_timeout_ms=session_timeout_ms)).load()


def test_a_client_that_writes_nothing_costs_no_write(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        size = (tmp_path / JOURNAL).stat().st_size
        listener = await joined(store)
        assert listener.client.session > 0
        await listener.client.close()
        assert (tmp_path / JOURNAL).stat().st_size == size

    run(scenario, tmp_path)


def test_a_paused_client_is_out_of_touch_until_nothing_keeps_it_away(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        one, other = await joined(store), await joined(store)
        one.client.pause()
        one.client.cut()
        one.client.pause()
        await other.client.multi([Create("/a")])
        one.client.heal()
        with pytest.raises(StoreUnavailable, match="paused"):
            await one.client.multi([Create("/b")])
        one.client.heal()
        assert not one.heard
        one.client.resume()
        assert one.changed() == ["/a"]
        await one.client.multi([Create("/b")])
        assert one.changed() == other.changed() == ["/a", "/b"]

    run(scenario, tmp_path)


def test_a_client_that_is_away_cannot_be_loaded(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        client = EmbeddedClient(store)
        client.cut()
        with pytest.raises(StoreUnavailable):
            await client.load(lambda changes: None)
        assert not client.is_ready
        client.heal()
        await client.load(lambda changes: None)
        assert client.is_ready

    run(scenario, tmp_path)


def test_who_is_abandoned_is_missed_after_its_session_timeout(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        dead, other = await joined(store, 50), await joined(store)
        await dead.client.multi([Create("/dead", ephemeral=True)])
        heard = len(dead.heard)
        dead.client.abandon()
        dead.client.abandon()
        view = await store.load(lambda changes: None)
        assert [node.path for node in view.nodes] == ["/dead"]
        await until(lambda: NodeDeleted("/dead") in other.heard[-1].changes)
        assert len(dead.heard) == heard
        with pytest.raises(StoreUnavailable):
            await dead.client.multi([Create("/late")])
        dead.client.expire()
        await dead.client.close()

    run(scenario, tmp_path)


def test_good_bye_cannot_be_said_from_far_away(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        leaving, other = await joined(store, 50), await joined(store)
        await leaving.client.multi([Create("/leaving", ephemeral=True)])
        leaving.client.cut()
        await leaving.client.close()
        assert len(other.heard) == 1
        await until(lambda: len(other.heard) == 2)

    run(scenario, tmp_path)


def test_a_session_that_ends_in_the_dark_is_replaced_in_the_light(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        one, other = await joined(store), await joined(store)
        await one.client.multi([Create("/one", ephemeral=True)])
        session = one.client.session
        one.client.cut()
        one.client.expire()
        await until(lambda: len(other.heard) == 2)
        assert one.client.session == session
        assert len(one.heard) == 1
        one.client.heal()
        assert one.client.session > other.client.session
        assert one.heard[-1].changes == (NodeDeleted("/one"),)

    run(scenario, tmp_path)


def test_healing_while_the_session_ends_waits_for_its_end(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        one = await joined(store)
        await one.client.multi([Create("/one", ephemeral=True)])
        one.client.cut()
        one.client.expire()
        one.client.heal()
        with pytest.raises(StoreUnavailable, match="without a session"):
            await one.client.multi([Create("/two")])
        await until(lambda: len(one.heard) == 2)
        await one.client.multi([Create("/one", ephemeral=True)])

    run(scenario, tmp_path)


def test_a_store_that_closes_leaves_no_timers_and_tasks(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        cut, dead, ending, idle = [await joined(store, 60_000) for _ in range(4)]
        for listener in (cut, dead, ending):
            await listener.client.multi([Create(f"/{id(listener)}", ephemeral=True)])
        cut.client.cut()
        dead.client.abandon()
        ending.client.expire()
        await store.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for listener in (cut, dead, ending, idle):
            assert not listener.client.is_ready

    async def alone() -> None:
        await scenario(EmbeddedStore(RealFiles(), str(tmp_path)))

    asyncio.run(alone())

    async def reopened(store: EmbeddedStore) -> None:
        assert store.recovery.expired_sessions in (2, 3)
        assert (await store.load(lambda changes: None)).nodes == ()

    run(reopened, tmp_path)


def test_an_expired_session_is_ended_even_if_the_disk_fails_at_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.broker.embedded_store._RETRY_S", 0.01)
    files = MemoryFiles()

    async def scenario() -> None:
        store = EmbeddedStore(files, "/meta")
        one = await joined(store)
        await one.client.multi([Create("/one", ephemeral=True)])
        files.capacity_bytes = files.used_bytes
        one.client.expire()
        await until(lambda: "cannot be ended" in caplog.text)
        assert len(one.heard) == 1
        files.capacity_bytes = 1 << 20
        await until(lambda: len(one.heard) == 2)
        await one.client.multi([Create("/one", ephemeral=True)])
        await store.close()

    asyncio.run(scenario())


def test_what_is_durable_is_heard_when_there_is_no_memory_for_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_is_left(tree: NodeTree) -> bytes:
        raise MemoryError

    async def test() -> None:
        store = EmbeddedStore(RealFiles(), str(tmp_path), journal_bytes_max=1)
        heard: list[Changes] = []
        await store.load(heard.append)
        monkeypatch.setattr(durable_tree, "encode_snapshot", none_is_left)
        for number in range(3):
            await store.multi([Create(f"/{number}")])
        await store.close()
        assert len(heard) == 3
        assert "There is no memory for a snapshot of the metadata." in caplog.text

    asyncio.run(test())
