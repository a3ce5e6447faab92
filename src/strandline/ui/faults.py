"""Faults from the page: how every broker is, and the way to make it otherwise.

The page's process has no hand in the brokers. It asks over the channel that `strandline fault`
asks over (`client.faults`), which exists only if the cluster was started with `--faults`; where it
is was told at the start, or a broker says it. All pages together ask for states twice a second at
most. Who may send requests here at all is `guard`'s affair.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from starlette.concurrency import run_in_threadpool

from strandline.client.cluster import ClusterClient
from strandline.client.faults import (
    DELAY_MS_DEFAULT,
    DELAY_MS_MAX,
    FAULTS,
    PATIENCE_S,
    Fault,
    asking,
    asking_for_states,
    done_of,
    find_control,
    not_asked,
    states_of,
)
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.ui.questions import BadQuestion

FAULT_BYTES_MAX: Final = 4096

_FRESH_S: Final = 0.5
_LOOK_PATIENCE_S: Final = 5.0
_FORM: Final = 'A fault is asked for with {"fault": "kill", "brokers": [1], "delay_ms": 500}.'
# Brokers may be paused: the next one is asked soon.
_CLIENT: Final = ClientSettings(
    client_id="strandline-ui",
    connect_timeout_ms=2_000,
    request_timeout_ms=2_000,
    operation_timeout_ms=4_000,
)

Json = dict[str, Any]
Finder: TypeAlias = Callable[[], Address]
"""Says where faults can be asked for; may block. Raises `ProtocolError`, with POLICY_VIOLATION if
they are not allowed."""


def finder(bootstrap: str, control: Address | None, security: Security = PLAINTEXT) -> Finder:
    """For the cluster at `bootstrap`, whose control is known or is asked for."""
    settings = replace(_CLIENT, security=security)

    def find() -> Address:
        if control is not None:
            return control
        with ClusterClient(bootstrap, settings) as cluster:
            return find_control(cluster)

    return find


class FaultInjector:
    """See the module. Methods belong to the event loop of the page's server."""

    def __init__(self, find: Finder) -> None:
        self._find = find
        self._address: Address | None = None
        self._lock = asyncio.Lock()
        self._known: list[Json] | None = None
        self._states_at_s = 0.0

    async def states(self) -> Json:
        """What is allowed, and how each broker is. Raises `ProtocolError` if no answer comes.

        {"allowed": true, "faults": [...], "delay_ms": 500, "delay_ms_max": 60000, "brokers": [...]}
        or {"allowed": false, "how": "This cluster does not allow faults: ..."}
        """
        try:
            brokers = await self._states()
        except ProtocolError as error:
            if error.code is ErrorCode.POLICY_VIOLATION:
                return {"allowed": False, "how": error.message}
            raise
        return {
            "allowed": True,
            "faults": FAULTS,
            "delay_ms": DELAY_MS_DEFAULT,
            "delay_ms_max": DELAY_MS_MAX,
            "brokers": brokers,
        }

    async def cause(self, fault: Fault) -> Json:
        """Have it done: `done`, a sentence, and what `states` says then. Raises `ProtocolError`."""
        done = done_of(await self._ask(asking(fault), PATIENCE_S))
        async with self._lock:
            self._known = None  # they may have been looked up just before
        return {"done": done, **await self.states()}

    async def _states(self) -> list[Json]:
        """From the control, or what it said a moment ago."""
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if self._known is None or now_s - self._states_at_s > _FRESH_S:
                self._known = None
                self._known = states_of(await self._ask(asking_for_states(), _LOOK_PATIENCE_S))
                self._states_at_s = now_s
            return self._known

    async def _ask(self, line: bytes, patience_s: float) -> bytes:
        address = self._address
        if address is None:
            address = self._address = await run_in_threadpool(self._find)
        try:
            return await _exchange(address, line, patience_s)
        except (OSError, ValueError) as error:
            # The cluster may have been started anew, and its control is elsewhere.
            self._address = None
            raise not_asked(address, error) from error


async def _exchange(address: Address, line: bytes, patience_s: float) -> bytes:
    async with asyncio.timeout(patience_s):
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(line)
            return await reader.readline()
        finally:
            writer.close()


def wanted_fault(body: bytes) -> Fault:
    """What a request's body asks for. Raises `BadQuestion`."""
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError):
        raise BadQuestion(_FORM) from None
    if not isinstance(wanted, dict) or not wanted.keys() <= {"fault", "brokers", "delay_ms"}:
        raise BadQuestion(_FORM)
    name, brokers = wanted.get("fault"), wanted.get("brokers")
    delay_ms = wanted.get("delay_ms", DELAY_MS_DEFAULT)
    if name not in FAULTS:
        raise BadQuestion(f"There is no fault {name!r}; there are {', '.join(FAULTS)}.")
    if not isinstance(brokers, list) or any(type(each) is not int for each in brokers):
        raise BadQuestion("'brokers' is a list of broker ids.")
    if type(delay_ms) is not int or not 0 < delay_ms <= DELAY_MS_MAX:
        raise BadQuestion(f"'delay_ms' is a whole number from 1 to {DELAY_MS_MAX}.")
    return Fault(name, tuple(brokers), delay_ms)
