"""One broker's access to the embedded store, which can be taken away as a network would take it.

In one process a session lives as long as its client is in touch. `cut` and `pause` end the touch,
`heal` and `resume` restore it; a client that stays out of touch for its session timeout loses the
session, exactly as a broker loses it that a network partition or a long pause separates from
ZooKeeper. Theory: while out of touch a client gathers the net effect of what it misses, and hears
it at once when it is back, which is what reading everything anew after a reconnection amounts to.

Knows the sessions and the clock of the event loop; knows neither disk nor the nodes' contents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from strandline.broker.embedded_store import EmbeddedStore
from strandline.cluster.net_effect import NetEffect
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    MultiResult,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoreError,
    StoreUnavailable,
    StoreView,
)
from strandline.errors import InvariantViolated

_CUT, _PAUSED, _EXPIRED, _GONE = "cut off", "paused", "without a session", "closed"
SESSION_TIMEOUT_MS: Final = 18_000


class EmbeddedClient:
    """A `Store`. All methods belong to the store's event loop."""

    def __init__(
        self, store: EmbeddedStore, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        """Nothing is written before the client writes."""
        self._store = store
        store.attach(self)
        self._session_timeout_s = session_timeout_ms / 1000
        self._session = NO_SESSION
        self._listener: Callable[[Changes], None] | None = None
        # Why the client is out of touch; empty while it is in touch.
        self._reasons: set[str] = set()
        self._losses = 0
        # Set unless the client may get in touch again: there is nothing to wait for.
        self._settled = asyncio.Event()
        self._settled.set()
        self._missed = NetEffect()
        self._expiry: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def session(self) -> SessionId:
        """The present session; `NO_SESSION` before `load`."""
        return self._session

    @property
    def is_ready(self) -> bool:
        """Whether the listener is up to date and writes are taken."""
        return self._listener is not None and not self._reasons

    async def load(self, listener: Callable[[Changes], None]) -> StoreView:
        """Open the session and return the present nodes; see `Store.load`."""
        if self._listener is not None:
            raise InvariantViolated("A client of the metadata store is loaded twice.")
        self._expect_touch()
        self._listener = listener
        view = await self._store.load(self._hear)
        self._session = self._store.open_session()
        return view

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations durably, or none. Raises a `StoreError`."""
        self._expect_touch()
        losses = self._losses
        try:
            results = await self._store.multi(operations, self._session)
        except StoreError:
            if losses == self._losses:
                raise
        else:
            if losses == self._losses:
                return results
        return await self._lost_reply()

    async def close(self) -> None:
        """End the session, so that its ephemeral nodes go, and hear nothing any more.

        A client that is out of touch cannot say good-bye: its session ends by its timeout.
        """
        if self._reasons:
            self.abandon()
            return
        self._lose_touch(_GONE)
        if self._listener is None:
            return
        self._unload()
        self._cancel_expiry()
        await self._store.close_session(self._session)

    # -- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Separate the client from the store, as a network partition does."""
        self._lose_touch(_CUT)

    def heal(self) -> None:
        """End the separation."""
        self._regain_touch(_CUT)

    def pause(self) -> None:
        """Let the client hear and send nothing, as a process that is stopped."""
        self._lose_touch(_PAUSED)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._regain_touch(_PAUSED)

    def expire(self) -> None:
        """Have the store end the session now. The client gets a new one when it is in touch."""
        if self._listener is not None and not self._is_gone:
            self._end_session()

    def abandon(self) -> None:
        """Behave as if the process had died: nothing is told any more, the session times out."""
        if self._is_gone:
            return
        self._lose_touch(_GONE)
        if self._listener is not None:
            self._unload()

    async def drop(self) -> None:
        """Let go of timers and tasks, since the store closes. The session is left as it is."""
        self.abandon()
        self._cancel_expiry()
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.wait([self._ending])

    # -- inside ------------------------------------------------------------------------------

    @property
    def _is_gone(self) -> bool:
        return _GONE in self._reasons

    def _hear(self, changes: Changes) -> None:
        """What the store tells: passed on, or kept for later."""
        if self._reasons:
            self._missed.add(changes)
        elif self._listener is not None:
            self._listener(changes)

    def _unload(self) -> None:
        self._store.unload(self._hear)
        self._missed = NetEffect()

    def _expect_touch(self) -> None:
        if self._reasons:
            state = " and ".join(sorted(self._reasons))
            raise StoreUnavailable(f"This broker is {state}: the metadata store is out of reach.")

    async def _lost_reply(self) -> MultiResult:
        """Touch was lost under a multi: be up to date, if that is soon, before telling so."""
        try:
            async with asyncio.timeout(self._session_timeout_s):
                await self._settled.wait()
        except TimeoutError:
            pass  # The present state is not known; the caller's next write is refused for that.
        raise OutcomeUnknown("The connection to the metadata store was lost during a write.")

    def _lose_touch(self, reason: str) -> None:
        self._losses += 1
        self._reasons.add(reason)
        if self._is_gone:
            self._settled.set()
        else:
            self._settled.clear()
        has_session = self._session != NO_SESSION
        if has_session and self._expiry is None and self._ending is None:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(self._session_timeout_s, self._end_session)

    def _regain_touch(self, reason: str) -> None:
        """Be in touch again if this was the last reason not to be: hear what was missed."""
        if reason not in self._reasons:
            return
        self._reasons.remove(reason)
        if self._reasons:
            return
        self._cancel_expiry()
        if self._ending is not None:
            self._ending = None
            self._session = self._store.open_session()
        missed = self._missed.take()
        if missed is not None and self._listener is not None:
            self._listener(missed)
        self._settled.set()

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _end_session(self) -> None:
        """Have the store delete what the session owns; the client is back only after that."""
        self._cancel_expiry()
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._delete_owned())
            self._lose_touch(_EXPIRED)

    async def _delete_owned(self) -> None:
        await self._store.end_session(self._session)
        self._regain_touch(_EXPIRED)
