"""The version of each API that a client uses: the newest, or one drawn for each API.

All brokers of a world are of one build, so no handshake is needed to know what they serve. Drawn
versions exercise the old encodings and the rules that only old clients meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from strandline.protocol.apis import KNOWN, ApiKey

IDS_SINCE: Final = 13
"""Produce and Fetch name topics by id from this version on, and by name before it."""
STATIC_LEAST: Final = {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 3,
    ApiKey.OFFSET_COMMIT: 7,
}
"""Older versions have no place for the name of a static member (KIP-345)."""
EPOCHS_LEAST: Final = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}
"""Older versions have no place for a member's epoch (KIP-848)."""
_LEAST: Final = {ApiKey.METADATA: 12}
"""The versions below do not tell the ids of topics (or tell them without a way to ask by them)."""
_SPOKEN: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)


class Versions:
    """The versions of one client."""

    __slots__ = ("_lowered",)

    def __init__(
        self, *, drawn_from: Random | None, by: str, least: Mapping[ApiKey, int] = _LEAST
    ) -> None:
        """`by` is `id`, `name`, or `any`: how Produce and Fetch are to name topics. Without a
        generator every version is the newest that does so. `least` are versions that a client
        cannot do without."""
        self._lowered: dict[ApiKey, int] = {}
        for key in _SPOKEN:
            lowest, highest = KNOWN[key].versions
            if key in _LEAST or key in least:
                lowest = max(_LEAST.get(key, 0), least.get(key, 0))
            elif key in (ApiKey.PRODUCE, ApiKey.FETCH) and by == "id":
                lowest = IDS_SINCE
            elif key in (ApiKey.PRODUCE, ApiKey.FETCH) and by == "name":
                highest = IDS_SINCE - 1
            if drawn_from is not None:
                highest = drawn_from.randint(lowest, highest)
            self._lowered[key] = highest

    def of(self, key: ApiKey) -> int:
        """The version to speak."""
        version = self._lowered.get(key)
        return KNOWN[key].versions.highest if version is None else version
