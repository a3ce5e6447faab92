"""Closing the logs of a broker that stops: what has to be synced waits for its disk in threads.

Each log has several files and a directory to sync, and a broker may have thousands of logs. The
event loop writes what is to be written, of a few logs at a time, and goes on with its other work
(other brokers, in a cluster of one process) while `num.recovery.threads.per.data.dir` threads per
log directory sync. Directories are closed beside one another.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from strandline.node.node import Node
from strandline.storage.flush_plan import Closing

_LOGS_PER_THREAD: Final = 4
"""So many are written in one go: a thread that is done early finds the next one."""


async def close_logs(node: Node) -> bool:
    """Close all of them; whether the next start needs no recovery."""
    threads = node.settings.broker.num_recovery_threads_per_data_dir
    closings = node.closings(node.oldest_valid_broker_epoch, at_once=threads * _LOGS_PER_THREAD)
    return all(await asyncio.gather(*(_finish(closing, threads) for closing in closings)))


async def _finish(closing: Closing, threads: int) -> bool:
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="strandline-close")
    try:
        while True:
            try:
                plans = next(closing)
            except StopIteration as end:
                return bool(end.value)
            await asyncio.sleep(0)
            await asyncio.gather(*(loop.run_in_executor(pool, each.carry_out) for each in plans))
    finally:
        closing.close()
        pool.shutdown()
