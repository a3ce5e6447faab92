"""`python -m bench.stall_sampler FILE serve ...`: a broker that writes down what held its loop.

A thread looks at the loop every half millisecond. While a round lasts longer than `STALL_MS` it
reads the stack of the loop's thread; when the round ends it adds a line of JSON to FILE:

    {"ms": how long, "waited_ms": of it without a processor,
     "where": the innermost of our functions seen most often, and what the loop had called}

The thread takes time from the loop. What the broker's own status says of rounds has that in it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Final

from strandline.broker import event_loop
from strandline.broker.event_loop import BrokerLoop
from strandline.broker.loop_rounds import LoopRounds

STALL_MS: Final = 5
_LOOK_S: Final = 0.0005
_SWITCH_S: Final = 0.0002
"""How long a thread may keep the interpreter from the one that looks."""


class Sampler(threading.Thread):
    """See the module. Made in the loop's own thread."""

    def __init__(self, rounds: LoopRounds, out: IO[str]) -> None:
        super().__init__(name="stall sampler", daemon=True)
        self._rounds = rounds
        self._out = out
        self._loop_thread = threading.get_ident()
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def run(self) -> None:
        """Look until the process ends."""
        since, waited_ns, seen = 0, self._waited_ns(), Counter[str]()
        while True:
            time.sleep(_LOOK_S)
            now, busy_since = time.monotonic_ns(), self._rounds.since_ns
            if since and busy_since != since:
                self._tell(now - since, self._waited_ns() - waited_ns, seen)
                since, seen = 0, Counter()
            if not busy_since or now - busy_since < STALL_MS * 1_000_000:
                if not since:
                    waited_ns = self._waited_ns()
                continue
            since = busy_since
            seen[self._where()] += 1

    def _tell(self, took_ns: int, waited_ns: int, seen: Counter[str]) -> None:
        where = seen.most_common(1)[0][0] if seen else "not seen"
        line = {
            "ms": round(took_ns / 1e6, 2),
            "waited_ms": round(waited_ns / 1e6, 2),
            "where": where,
        }
        print(json.dumps(line), file=self._out, flush=True)

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        names = [] if frame is None else list(_names(frame))
        return " < ".join([*names[:1], *names[-1:]]) if names else "outside"

    def _waited_ns(self) -> int:
        return int(self._schedule.read_text().split()[1])


def _names(frame: FrameType) -> Iterator[str]:
    """Our functions on a stack, the innermost first."""
    at: FrameType | None = frame
    while at is not None:
        _, ours, path = at.f_code.co_filename.partition("/strandline/")
        if ours and "event_loop" not in path and "/cli/" not in f"/{path}":
            yield f"{path.removesuffix('.py')}:{at.f_lineno} {at.f_code.co_qualname}"
        at = at.f_back


def main() -> None:
    """See the module."""
    path = sys.argv.pop(1)
    out = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  # until the process ends

    class SampledLoop(BrokerLoop):
        def __init__(self) -> None:
            super().__init__()
            Sampler(self.rounds, out).start()

    event_loop.BrokerLoop = SampledLoop  # type: ignore[assignment,misc]  # before what runs brokers takes it
    sys.setswitchinterval(_SWITCH_S)
    from strandline.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
