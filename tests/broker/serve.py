"""One broker in a process of its own: `python serve.py NAME=VALUE...`.

Prints a line of JSON when it accepts connections or why it does not start, and another when it has
stopped after SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from dataclasses import asdict

from strandline.broker.startup import start_broker
from strandline.config.load import load_broker_config
from strandline.errors import StrandlineError


async def serve(overrides: list[str]) -> int:
    """Serve until SIGTERM."""
    try:
        broker = await start_broker(load_broker_config(None, overrides).config)
    except StrandlineError as error:
        print(json.dumps({"refused": str(error), "kind": type(error).__name__}), flush=True)
        return 1
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    report = asdict(broker.report)
    report["port"] = broker.report.addresses[0].port
    print(json.dumps(report, default=str), flush=True)
    await stop.wait()
    print(json.dumps({"clean": await broker.stop()}), flush=True)
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(asyncio.run(serve(sys.argv[1:])))
