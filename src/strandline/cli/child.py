"""`python -m strandline.cli.child`: one broker's process of `strandline serve --processes`.

Its supervisor speaks with it by standard input and output (`broker/child_words`); its log goes to
standard error, which it shares with the supervisor, so every line names the broker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from strandline.broker.child_process import run
from strandline.broker.child_words import Order
from strandline.broker.event_loop import BrokerLoop
from strandline.cli.log_lines import log_to_standard_error


def main() -> None:
    """See the module."""
    # Ctrl-C is the supervisor's, which decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may come out there
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        was_clean = runner.run(run(sys.stdin.buffer, answers, _begin_log))
    sys.exit(0 if was_clean else 1)


def _begin_log(order: Order) -> None:
    log_to_standard_error(order.log_level, f"broker {order.broker_id}: ")


if __name__ == "__main__":
    main()
