"""The way in which another process asks for faults: one line of JSON, answered with one.

    {"fault": "pause", "brokers": [1], "delay_ms": 0}
    {"done": "Paused broker 1."}   or   {"error": "There is no broker 9; ..."}

    {"question": "states"}
    {"brokers": [{"id": 1, "life": "paused", "is_cut_off": false, "slow_ms": null}, ...]}

It listens on loopback only, and only if the cluster was started with `--faults`. Not on the
brokers' own ports: those of a paused broker do not answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from strandline.broker.faults import Faults
from strandline.broker.local_cluster import LocalCluster
from strandline.config.listeners import host_and_port
from strandline.config.loopback import loopback
from strandline.errors import StrandlineError

log = logging.getLogger(__name__)

LINE_BYTES_MAX: Final = 1 << 16

_STATES_QUESTION: Final = {"question": "states"}


@asynccontextmanager
async def fault_control(cluster: LocalCluster) -> AsyncIterator[str]:
    """Listen while the context lasts; gives the address, which the brokers tell clients that ask.

    At its end everything is healed: a broker that is cut off could not shut down cleanly.
    """
    faults = Faults(cluster)
    reading: set[asyncio.StreamWriter] = set()
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        task.add_done_callback(handlers.discard)
        try:
            reading.add(writer)
            try:
                line = await reader.readline()
            finally:
                reading.discard(writer)
            if line:
                answer = await _answer(faults, line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            log.info("A request for a fault could not be read or answered: %s", error)
        finally:
            writer.close()

    host = loopback()
    server = await asyncio.start_server(serve, host, 0, limit=LINE_BYTES_MAX)
    address = host_and_port(host, server.sockets[0].getsockname()[1])
    cluster.tell_fault_control(address)
    try:
        yield address
    finally:
        server.close()
        await faults.close()
        for writer in reading:
            writer.close()  # who has not asked yet is told nothing
        if handlers:
            await asyncio.wait(handlers)


async def _answer(faults: Faults, line: bytes) -> dict[str, object]:
    try:
        asked = json.loads(line)
        if asked == _STATES_QUESTION:
            return {"brokers": faults.states()}
        verb, brokers, delay_ms = asked["fault"], asked["brokers"], asked.get("delay_ms", 0)
        well_formed = (
            isinstance(verb, str)
            and isinstance(brokers, list)
            and all(type(each) is int for each in [*brokers, delay_ms])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        well_formed = False
    if not well_formed:
        return {"error": "A fault is asked for with {fault, brokers, delay_ms}."}
    try:
        return {"done": await faults.carry_out(verb, brokers, delay_ms)}
    except StrandlineError as error:
        return {"error": getattr(error, "message", "") or str(error)}
