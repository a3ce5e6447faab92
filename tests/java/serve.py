"""Starts one broker for the tests of this directory and tells where it listens.

Runs as its own process: `python serve.py NAME=VALUE...`. Prints one line of JSON when the broker
accepts connections, one more when it has stopped after SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import asdict

from strandline.broker.startup import start_broker
from strandline.config.load import load_broker_config


async def serve(overrides: list[str]) -> None:
    """Serve until SIGTERM."""
    broker = await start_broker(load_broker_config(None, overrides).config)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    report = asdict(broker.report)
    report["port"] = broker.report.addresses[0].port
    print(json.dumps(report, default=str), flush=True)
    await stop.wait()
    print(json.dumps({"clean": await broker.stop()}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
