"""The embedded store on real files: what its clients share, and what they hear and lose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.durable_tree import JOURNAL
from strandline.broker.embedded_store import EmbeddedStore
from strandline.cluster.journal_format import DamagedJournal
from strandline.cluster.store import (
    Changes,
    Create,
    Created,
    DataSet,
    NodeExists,
    SetData,
)
from strandline.storage.files import LockHeld
from strandline.storage.real_files import RealFiles


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


def test_a_store_that_cannot_be_read_gives_its_lock_back(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b"not a journal at all")
    for _ in range(2):
        with pytest.raises(DamagedJournal):
            EmbeddedStore(RealFiles(), str(tmp_path))
