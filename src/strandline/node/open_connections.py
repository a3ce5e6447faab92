"""The connections of a node's clients, for what concerns all of them at once."""

from __future__ import annotations

from strandline.node.connection import Connection


class OpenConnections:
    """See the module."""

    def __init__(self) -> None:
        self._connections: dict[Connection, None] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._connections

    def add(self, connection: Connection) -> None:
        """A client has connected."""
        self._connections[connection] = None

    def remove(self, connection: Connection) -> None:
        """It has gone."""
        self._connections.pop(connection, None)

    def forget_fast_paths(self) -> None:
        """What requests are asked and charged has changed: all take the general way once more."""
        for connection in self._connections:
            connection.forget_fast_path()
