"""A process that holds an ephemeral node through a ZooKeeper store, to be stopped by a signal.

Usage: python client_process.py CONNECT_STRING SESSION_TIMEOUT_MS PATH

It makes PATH, again whenever PATH is gone, and prints a line for what it learns: `made OWNER` when
a write was done, `gone SESSION` when the node was deleted, `refused ERROR` when a write was not
done. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import sys

from strandline.broker.zookeeper_store import ZooKeeperStore
from strandline.cluster.store import Changes, Create, NodeDeleted, NodeExists, StoreError

_RETRY_S = 0.02


async def main(hosts: str, session_timeout_ms: int, path: str) -> None:
    store = ZooKeeperStore(hosts, session_timeout_ms=session_timeout_ms, roots=("/",))
    gone = asyncio.Event()

    def hear(changes: Changes) -> None:
        if NodeDeleted(path) in changes.changes:
            print(f"gone {store.session}", flush=True)
            gone.set()

    await store.load(hear)
    gone.set()

    async def hold() -> None:
        while True:
            await gone.wait()
            try:
                await store.multi([Create(path, ephemeral=True)])
            except NodeExists:
                gone.clear()
            except StoreError as error:
                print(f"refused {type(error).__name__}", flush=True)
                await asyncio.sleep(_RETRY_S)
            else:
                gone.clear()
                print(f"made {store.session}", flush=True)

    holding = asyncio.create_task(hold())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    holding.cancel()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
