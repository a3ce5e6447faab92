"""A broker in a process of its own, which a supervisor has started: the process's side.

    order ── start ── ready ── stop (told, SIGTERM, SIGHUP, or unfit) ── leave ── ended

A signal stops this broker alone, cleanly; then its supervisor starts it again. When the supervisor
is dead the process ends at once, as by SIGKILL: nothing could be written to the metadata any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from random import SystemRandom
from typing import IO, TYPE_CHECKING

from strandline.broker import child_words as words
from strandline.broker.frame_memory import FrameMemory
from strandline.broker.handle_budget import raise_limit
from strandline.broker.remote_store import RemoteStore
from strandline.broker.running import Broker
from strandline.broker.settle import import_later, look_for_less_garbage, settle
from strandline.broker.startup import start_broker
from strandline.config.broker import SettingLayers
from strandline.config.load import make_broker_config
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.node.authentication.first_users import FirstUser

_SUPERVISOR_IS_DEAD = 3

log = logging.getLogger(__name__)


async def run(orders: IO[bytes], answers: int, begin_log: Callable[[words.Order], None]) -> bool:
    """Be the broker that the first line of `orders` asks for; tell the descriptor `answers`.

    Returns whether the broker was ready and stopped cleanly.
    """
    reader = asyncio.StreamReader(limit=words.LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), orders)
    line = await reader.readline()
    if not line:
        os._exit(_SUPERVISOR_IS_DEAD)
    order = words.read_order(line)
    begin_log(order)
    raise_limit()
    look_for_less_garbage()
    child = _ChildProcess(order, reader, answers)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
            loop.add_signal_handler(number, child.stop.set)
    return await child.run()


class _Gate:
    """Behind which brokers of several processes start or stop together."""

    def __init__(self, arrive: Callable[[], None]) -> None:
        self._arrive = arrive
        self.is_open = asyncio.Event()

    async def wait(self) -> None:
        """Say that this broker is there, and wait until all are."""
        self._arrive()
        await self.is_open.wait()


class _ChildProcess:
    def __init__(self, order: words.Order, reader: asyncio.StreamReader, answers: int) -> None:
        self._order = order
        self._reader = reader
        self._answers = answers
        self.stop = asyncio.Event()
        self._start_gate = _Gate(lambda: self._say(words.line_of(words.PREPARED)))
        self._stop_gate = _Gate(lambda: self._say(words.line_of(words.LEAVING)))

    async def run(self) -> bool:
        """From the start to the end."""
        listening = asyncio.create_task(self._listen())
        stopped = asyncio.create_task(self.stop.wait())
        starting = asyncio.create_task(self._start())
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        was_clean = False
        if not starting.cancelled():
            try:
                broker = starting.result()
            except StrandlineError as error:
                self._say(words.line_of_failure(error))
            else:
                was_clean = await self._run(broker, stopped)
        listening.cancel()
        return was_clean

    async def _start(self) -> Broker:
        order = self._order
        config = make_broker_config(SettingLayers(static=order.settings)).config
        store = RemoteStore(
            order.store, config.node_id, session_timeout_ms=config.zookeeper_session_timeout_ms
        )
        return await start_broker(
            config,
            store,
            is_alone=order.brokers == 1,
            gate=self._start_gate,
            frames=FrameMemory.of_process(config.queued_max_request_bytes, processes=order.brokers),
            users=_users(order.users),
        )

    async def _run(self, broker: Broker, stopped: asyncio.Task[bool]) -> bool:
        settle()
        imports = import_later()
        self._say(words.line_of_report(broker.report, broker.handle_warning))
        unfit = asyncio.create_task(broker.until_unfit())
        await asyncio.wait((stopped, unfit), return_when=asyncio.FIRST_COMPLETED)
        imports.cancel()
        if unfit.done():
            self._say(words.line_of(words.UNFIT, reason=unfit.result()))
            self._stop_gate.is_open.set()  # the others go on
        unfit.cancel()
        clean = await broker.stop(self._stop_gate)
        self._say(words.line_of(words.ENDED, clean=clean))
        return clean

    async def _listen(self) -> None:
        """Hear what the supervisor says, as long as it lives."""
        events = {
            words.GO: self._start_gate.is_open,
            words.STOP: self.stop,
            words.LEAVE: self._stop_gate.is_open,
        }
        async for line in self._reader:
            word, _ = words.read_line(line)
            events[word].set()
        log.error("The supervisor is dead, and with it the metadata: this broker ends.")
        sys.stderr.flush()
        os._exit(_SUPERVISOR_IS_DEAD)

    def _say(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._answers, line) :]


def _users(texts: list[str]) -> list[FirstUser]:
    if not texts:
        return []
    from strandline.node.authentication.first_users import parse_first_user

    return [parse_first_user(text, SystemRandom()) for text in texts]
