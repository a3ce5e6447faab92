"""Where a group of any kind goes on in its partitions: read, set elsewhere, forgotten.

This file knows which requests are for which kind of group. It must not know why offsets change.
"""

from __future__ import annotations

from strandline.client.admin_groups import SHARE, GroupAdmin, GroupDescription
from strandline.client.admin_share_groups import ShareGroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.errors import ProtocolError
from strandline.types import Offset, TopicPartition


class GroupPositions:
    """See the module. All raise `ProtocolError`."""

    def __init__(self, client: ClusterClient, name: str, found: GroupDescription | None) -> None:
        """`found` is the group of that name, or None if there is none yet."""
        self._name = name
        self._consumers = GroupAdmin(client)
        is_share = found is not None and found.group_type == SHARE
        self._shares = ShareGroupAdmin(client) if is_share else None

    def stored(self) -> dict[TopicPartition, Offset]:
        """The offsets at which it goes on."""
        if self._shares is not None:
            found = self._shares.offsets(self._name)
            return {at: each.start for at, each in found.items() if each.start is not None}
        return {at: each.offset for at, each in self._consumers.offsets(self._name).items()}

    def store(self, offsets: dict[TopicPartition, Offset]) -> None:
        """Have it go on there."""
        if self._shares is not None:
            self._shares.set_offsets(self._name, offsets)
        else:
            self._consumers.set_offsets(self._name, offsets)

    def forget(self, topic: str) -> None:
        """Have it begin in the topic like a new group. Raises the first refusal."""
        outcomes: list[ProtocolError | None]
        if self._shares is not None:
            outcomes = list(self._shares.delete_offsets(self._name, [topic]).values())
        else:
            stored = [at for at in self.stored() if at.topic == topic]
            outcomes = list(self._consumers.delete_offsets(self._name, stored).values())
        for error in outcomes:
            if error is not None:
                raise error
