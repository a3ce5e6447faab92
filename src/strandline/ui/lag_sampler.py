"""Asks for the lags of groups again and again, so that pages can draw them over time.

What groups have stored is asked of their coordinators; where logs end is in the picture already.
Every `INTERVAL_S` while a page is open, every `UNWATCHED_INTERVAL_S` while none is, and less often
where that takes long: at most a fiftieth of the time goes into asking.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.errors import InvalidSetting, MalformedFrame, ProtocolError
from strandline.ui import questions
from strandline.ui.picture import Key, Picture
from strandline.ui.request_cache import RequestCache, Values
from strandline.ui.watcher import Watcher

INTERVAL_S: Final = 10.0
UNWATCHED_INTERVAL_S: Final = 60.0
_SHARE: Final = 50
_LOOK_S: Final = 1.0
"""A page that is opened is noticed after so long."""

_HIGH_WATERMARK: Final = 2


async def sample_lags(watcher: Watcher, cache: RequestCache) -> None:
    """Until it is cancelled; from the moment at which the watcher has seen all partitions."""
    begun, took_s = -math.inf, 0.0
    while True:
        pause_s = max(_interval_s(watcher), _SHARE * took_s)
        if watcher.has_seen_all and time.monotonic() - begun >= pause_s:
            begun = time.monotonic()
            await _sample(watcher, cache)
            took_s = time.monotonic() - begun
        await asyncio.sleep(_LOOK_S)


async def _sample(watcher: Watcher, cache: RequestCache) -> None:
    try:
        found = await cache.ask(lambda client, values: _lags(watcher, client, values), {})
    except (ProtocolError, MalformedFrame, InvalidSetting):
        return  # the watcher tells of brokers that do not answer
    watcher.series.add_lags(time.time_ns() // 1_000_000, found)


def _interval_s(watcher: Watcher) -> float:
    return INTERVAL_S if watcher.is_watched else UNWATCHED_INTERVAL_S


def _lags(watcher: Watcher, client: ClusterClient, values: Values) -> dict[str, int]:
    return questions.lags(client, values, ends_of(watcher.latest))


def ends_of(picture: Picture | None) -> dict[Key, int | None]:
    """The highest high watermark of each partition: a follower's is behind its leader's. None where
    no broker that has a replica answers."""
    if picture is None:
        return {}
    return {
        key: max((copy[_HIGH_WATERMARK] or 0 for copy in row[6]), default=None)
        for key, row in picture.partitions.items()
    }
