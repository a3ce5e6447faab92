"""Asks for the lags of groups again and again, so that pages can draw them over time.

What groups have stored is asked of their coordinators; where logs end is in the picture already.
Every `INTERVAL_S` while a page is open, every `UNWATCHED_INTERVAL_S` while none is, and less often
where that takes long: at most a fiftieth of the time goes into asking.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.errors import InvalidSetting, MalformedFrame, ProtocolError
from strandline.ui import questions
from strandline.ui.picture import Key
from strandline.ui.request_cache import RequestCache, Values
from strandline.ui.watcher import Watcher

INTERVAL_S: Final = 10.0
UNWATCHED_INTERVAL_S: Final = 60.0
_SHARE: Final = 50

_HIGH_WATERMARK: Final = 2


async def sample_lags(watcher: Watcher, cache: RequestCache) -> None:
    """Until it is cancelled."""
    while True:
        begun = time.monotonic()
        try:
            found = await cache.ask(lambda client, values: _lags(watcher, client, values), {})
        except (ProtocolError, MalformedFrame, InvalidSetting):
            pass  # the watcher tells of brokers that do not answer
        else:
            watcher.series.add_lags(time.time_ns() // 1_000_000, found)
        took_s = time.monotonic() - begun
        interval_s = INTERVAL_S if watcher.is_watched else UNWATCHED_INTERVAL_S
        await asyncio.sleep(max(interval_s, _SHARE * took_s))


def _lags(watcher: Watcher, client: ClusterClient, values: Values) -> dict[str, int]:
    return questions.lags(client, values, _ends(watcher))


def _ends(watcher: Watcher) -> dict[Key, int]:
    """The highest high watermark of each partition: a follower's is behind its leader's."""
    if watcher.latest is None:
        return {}
    return {
        key: max((copy[_HIGH_WATERMARK] or 0 for copy in row[6]), default=0)
        for key, row in watcher.latest.partitions.items()
    }
