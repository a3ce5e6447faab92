"""Runs one broker for the tests of this directory, as a process of its own.

`python serve.py NAME=VALUE...` prints one line of JSON when connections are accepted, and one more
after a clean stop, which SIGTERM asks for. Its log goes to standard error. Its standard input is
the rope that ties it to the test run: when that ends, however it ends, the broker stops, too.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import signal
import sys

from strandline.broker.startup import start_broker
from strandline.config.load import load_broker_config


async def serve(overrides: list[str]) -> None:
    """Serve until SIGTERM or the end of standard input."""
    broker = await start_broker(load_broker_config(None, overrides).config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def tied() -> None:
        assert isinstance(sys.stdin.buffer, io.BufferedReader)
        if not sys.stdin.buffer.raw.read(1):
            loop.remove_reader(sys.stdin)
            stop.set()

    loop.add_reader(sys.stdin, tied)
    print(json.dumps({"port": broker.report.addresses[0].port}), flush=True)
    await stop.wait()
    print(json.dumps({"clean": await broker.stop()}), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(serve(sys.argv[1:]))
