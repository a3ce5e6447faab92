"""Clients that send single requests, each over a connection of its own."""

from __future__ import annotations

from typing import Final

from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Wire
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import BrokerId

PATIENCE_US: Final = 6_000_000
"""How long a broker may say nothing."""


class Try:
    """One connection with one piece of data. At its end it calls the client with the outcome in a
    word or two."""

    def __init__(self, owner: TryingClient, what: str, data: bytes) -> None:
        self.what = what
        self.wire: Wire | None = None
        self.is_over = False
        self._owner = owner
        self._data = data

    def opened(self) -> None:
        """See `Peer`."""
        if self.wire is not None:
            self.wire.send(self._data)

    def received(self, frame: bytes) -> None:
        """See `Peer`."""
        del frame
        self.end("answered")

    def closed(self, reason: str) -> None:
        """See `Peer`."""
        del reason
        self.is_over = True
        self._owner.ended(self, "hung up on")

    def end(self, how: str) -> None:
        """Go."""
        if not self.is_over and self.wire is not None:
            self.is_over = True
            self.wire.close()
            self._owner.ended(self, how)


class TryingClient(SimClient):
    """Tries something every now and then (`every=`), until it is to finish."""

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, every: str
    ) -> None:
        super().__init__(world, spec, options)
        self._every_us = options.time_us("every", every)
        self._tries: list[Try] = []

    @property
    def outstanding(self) -> int:
        """See `SimClient`."""
        return len(self._tries)

    def start(self) -> None:
        """See `SimClient`."""
        self.after(self.about(self._every_us), self._tick)

    def finishing(self) -> None:
        """See `SimClient`."""
        for each in list(self._tries):
            each.end("given up")
        self.done()

    def _tick(self) -> None:
        self.act()
        self.after(self.about(self._every_us), self._tick)

    def act(self) -> None:
        """Try the next things."""
        raise NotImplementedError

    def begin(
        self,
        attempt: Try,
        target: BrokerId,
        *,
        patience_us: int = PATIENCE_US,
        how: str = "ignored",
    ) -> None:
        """Connect, and give up after a while, as `how` says."""
        self._tries.append(attempt)
        attempt.wire = self.world.network.dial(self.name, target, attempt)
        self.after(patience_us, lambda: attempt.end(how))

    def ended(self, attempt: Try, how: str) -> None:
        """A try is over."""
        self._tries.remove(attempt)
        self.counters[f"{self.kind} {how}"] += 1
        self.counters[f"{self.kind}: {attempt.what}"] += 1
