"""The effects of the turn in progress, in order, and the connections that have answers to send."""

from __future__ import annotations

from strandline.node.connection import Connection
from strandline.node.effects import Close, Effect, Send


class Outbox:
    """Collects what the driver has to do: at most one `Send` per connection and turn."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._speaking: dict[Connection, None] = {}

    def add(self, effect: Effect) -> None:
        """Queue an effect behind those already queued."""
        self._effects.append(effect)

    def speaks(self, connection: Connection) -> None:
        """Note that the connection may have answers to send or is to be closed."""
        self._speaking[connection] = None

    def take(self) -> list[Effect]:
        """Hand over what was collected since the last call: stores and disks first, then sends."""
        effects, self._effects = self._effects, []
        for connection in self._speaking:
            if connection.outgoing:
                effects.append(Send(connection.id, connection.take_outgoing()))
            if connection.closing is not None:
                effects.append(Close(connection.id, connection.closing))
        self._speaking.clear()
        return effects
