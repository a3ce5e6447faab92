"""Closing the logs of a broker that stops: what has to be synced waits for its disk in threads.

Each log has several files and a directory to sync, and a broker may have thousands of logs. The
event loop writes what is to be written, of a few logs at a time, and goes on with its other work
(other brokers, in a cluster of one process) while `num.recovery.threads.per.data.dir` threads per
log directory sync. Directories are closed beside one another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from itertools import cycle
from typing import Final

from strandline.broker.worker import Worker
from strandline.errors import StorageError
from strandline.node.node import Node
from strandline.storage.flush_plan import Closing

log = logging.getLogger(__name__)

_LOGS_PER_THREAD: Final = 4
"""So many are written in one go: a thread that is done early finds the next one."""


async def close_logs(node: Node) -> bool:
    """Close all of them; whether the next start needs no recovery."""
    threads = node.settings.broker.num_recovery_threads_per_data_dir
    closings = node.closings(node.oldest_valid_broker_epoch, at_once=threads * _LOGS_PER_THREAD)
    return all(await asyncio.gather(*(_finish(closing, threads) for closing in closings)))


async def _finish(closing: Closing, threads: int) -> bool:
    workers = list(_workers(threads))
    try:
        while True:
            try:
                plans = next(closing)
            except StopIteration as end:
                return bool(end.value)
            await asyncio.sleep(0)
            if workers:
                syncs = zip(cycle(workers), plans, strict=False)
                await asyncio.gather(
                    *(asyncio.wrap_future(worker.submit(plan.carry_out)) for worker, plan in syncs)
                )
            else:
                for plan in plans:
                    plan.carry_out()
    finally:
        closing.close()
        for worker in workers:
            worker.shutdown()


def _workers(threads: int) -> Iterator[Worker]:
    """As many as there are to be had, maybe none."""
    for _ in range(threads):
        try:
            yield Worker("strandline-close")
        except StorageError as error:
            log.warning("Fewer threads than are set close logs: %s", error)
            return
