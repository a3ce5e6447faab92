"""What a node asks for that waits for a disk or for the metadata store, beside the event loop.

Each piece of work is a task of its own and ends with an event for the node: done, or the error.
Syncs are one queue and removals another, each with a thread, as a large removal takes seconds.
This file knows no sockets. Compaction, which takes longer still, is in `cleaners`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, assert_never

from strandline.broker.cleaners import Tell
from strandline.broker.worker import Worker
from strandline.cluster.store import OutcomeUnknown, Store, StoreError
from strandline.errors import StorageError
from strandline.node.effects import RemoveFiles, SyncLog, WriteMetadata
from strandline.node.node import Node
from strandline.storage.files import Files

log = logging.getLogger(__name__)


class SlowWork:
    """See the module. All methods belong to the event loop on which it is made."""

    def __init__(self, node: Node, store: Store, files: Files, tell: Tell) -> None:
        self._node = node
        self._store = store
        self._files = files
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._disk = Worker("strandline-sync")
        self._removals = Worker("strandline-remove")
        self._last: list[Future[int]] = []
        """Ends when a thread of an abandoned broker has come to its end."""

    def begin(self, effect: WriteMetadata | SyncLog | RemoveFiles) -> None:
        """Have it done; the node is told the outcome."""
        task = self._loop.create_task(self._work(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until_done(self) -> bool:
        """Wait for all that was begun before; whether there was anything."""
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks)
        return bool(tasks)

    async def close(self) -> None:
        """End the threads when their work has ended, as it nearly always has."""
        for worker in (self._disk, self._removals):
            await asyncio.wrap_future(worker.submit(int))
            worker.shutdown()

    def abandon(self) -> None:
        """End as a killed process does, but for a call to the disk that has begun (`ended`)."""
        for task in self._tasks:
            task.cancel()
        for worker in (self._disk, self._removals):
            self._last.append(worker.submit(int))
            worker.shutdown(wait=False)

    async def ended(self) -> None:
        """Wait for that call, after `abandon`: a process that was killed writes nothing later."""
        await asyncio.gather(*map(asyncio.wrap_future, self._last))

    def _work(self, effect: WriteMetadata | SyncLog | RemoveFiles) -> Coroutine[Any, Any, None]:
        match effect:
            case WriteMetadata():
                return self._write_metadata(effect)
            case SyncLog():
                return self._sync_log(effect)
            case RemoveFiles():
                return self._remove_files(effect)
            case _:
                assert_never(effect)

    async def _write_metadata(self, effect: WriteMetadata) -> None:
        error: StoreError | None = None
        try:
            await self._store.multi(effect.operations)
        except StoreError as refused:
            error = refused
        except Exception:
            log.exception("A metadata write failed")
            error = OutcomeUnknown("The metadata store failed.")
        self._tell(partial(self._node.metadata_written, effect.token, error))

    async def _sync_log(self, effect: SyncLog) -> None:
        result: bool | StorageError
        try:
            result = await self._loop.run_in_executor(
                self._disk, effect.plan.carry_out, self._files
            )
        except StorageError as failed:
            result = failed
        except Exception as bug:
            log.exception("A log could not be synced")
            result = StorageError(f"A log could not be synced: {bug}")
        self._tell(partial(self._node.log_synced, effect.token, result))

    async def _remove_files(self, effect: RemoveFiles) -> None:
        error: StorageError | None = None
        try:
            await self._loop.run_in_executor(self._removals, effect.carry_out, self._files)
        except StorageError as failed:
            error = failed
        except Exception as bug:
            log.exception("Files could not be removed")
            error = StorageError(f"Files could not be removed: {bug}")
        self._tell(partial(self._node.files_removed, effect.token, error))
