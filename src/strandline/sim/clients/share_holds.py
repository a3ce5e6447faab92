"""What a simulated member of a share group has, and says of it: from its core to `share_watch`.

A member has a record from the answer that brought it until it says what became of it, or until the
session ends in which it came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from strandline.client.share_group.acknowledgements import Parcel
from strandline.client.share_group.membership import Place as Key
from strandline.client.share_group.observer import ShareObserver
from strandline.client.share_group.session import Sent, ShareSession
from strandline.errors import ErrorCode
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.messages.share_fetch import AcquiredRecords
from strandline.sim.clients.client import place_of
from strandline.sim.clients.share_watch import Hold, ShareWatch
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.lookups import Leadership
from strandline.types import TopicPartition

_ROUNDING_US: Final = 5_000
"""Brokers keep time in whole milliseconds, by clocks that drift: so much earlier a lock may end."""
_SETTLING: Final = (AckType.ACCEPT, AckType.REJECT, AckType.GAP)


class ShareHolds(ShareObserver):
    """See the module. One for each life of a member."""

    def __init__(
        self, world: ClientWorld, watch: ShareWatch, name: str, group: str, counters: Counter[str]
    ) -> None:
        self.news_us = 0
        """When a record came last."""
        self._world = world
        self._watch = watch
        self._name = name
        self._group = group
        self._counters = counters
        self._held: dict[ShareSession, dict[Key, dict[int, Hold]]] = {}
        self._names: dict[Key, TopicPartition] = {}
        self._asked: dict[ShareSession, tuple[int, dict[Key, Leadership | None]]] = {}
        """When the request under way was made, and how what it fetches was led then."""
        self._settled: dict[Parcel, dict[int, Hold]] = {}
        """What each parcel accepts or rejects."""

    def asking(
        self, session: ShareSession, sent: Sent, places: Iterable[tuple[Key, TopicPartition]]
    ) -> None:
        """See `ShareObserver`."""
        led: dict[Key, Leadership | None] = {}
        for key, at in places:
            self._names[key] = at
            led[key] = self._world.leadership(session.broker, at)
        self._asked[session] = self._world.schedule.now_us, led
        for parcel in sent.parcels:
            self._say(session, parcel)

    def _say(self, session: ShareSession, parcel: Parcel) -> None:
        held = self._held.get(session, {}).get(parcel.place, {})
        settled = self._settled.setdefault(parcel, {})
        place = place_of(parcel.at, parcel.place.topic_id)
        for offset, kind in parcel.types.items():
            if kind is AckType.RENEW:
                continue  # it has the record still; a longer lock is not counted on
            hold = held.pop(offset, None)
            if hold is not None:
                hold.is_over = True
                if kind in _SETTLING:
                    settled[offset] = hold
        for offset, hold in settled.items():
            self._watch.said(self._group, place, offset, hold)

    def heard(self, session: ShareSession) -> None:
        """See `ShareObserver`."""
        for key, holds in self._held.get(session, {}).items():
            place = place_of(self._names[key], key.topic_id)
            self._watch.still_there(place, holds.values())

    def acquired(
        self,
        session: ShareSession,
        sent: Sent,
        place: Key,
        ranges: Collection[AcquiredRecords],
        lock_ms: int,
    ) -> None:
        """See `ShareObserver`."""
        del sent
        asked_us, led_then = self._asked[session]
        at = self._names[place]
        led = led_then.get(place)
        is_led = led is not None and led == self._world.leadership(session.broker, at)
        newest_epoch = self._world.leader_epoch(at, place.topic_id)
        is_newest = led is not None and is_led and led.leader_epoch == newest_epoch
        until_us = asked_us + 1000 * lock_ms - _ROUNDING_US
        held = self._held.setdefault(session, {}).setdefault(place, {})
        for each in ranges:
            for offset in range(each.first_offset, each.last_offset + 1):
                hold = Hold(self._name, led if is_led else None, until_us, each.delivery_count)
                held[offset] = hold
                self._watch.given(
                    self._group,
                    place_of(at, place.topic_id),
                    offset,
                    hold,
                    asked_us=asked_us,
                    is_newest=is_newest,
                )
                self.news_us = self._world.schedule.now_us
                if each.delivery_count > 1:
                    self._counters["share record again"] += 1

    def told(self, parcel: Parcel, code: ErrorCode) -> None:
        """See `ShareObserver`."""
        self._counters[f"share ack {code.name}"] += 1
        place = place_of(parcel.at, parcel.place.topic_id)
        settled = self._settled.get(parcel, {})
        if code is ErrorCode.NONE:
            self._watch.confirmed(self._group, place, settled)
        elif code is ErrorCode.INVALID_RECORD_STATE:
            self._watch.refused(self._group, place, settled)
        if code is not ErrorCode.NONE:
            held = self._held.get(parcel.session, {}).get(parcel.place, {})
            for offset in parcel.renewed:
                hold = held.pop(offset, None)
                if hold is not None:
                    hold.is_over = True

    def refused(self, code: ErrorCode) -> None:
        """See `ShareObserver`."""
        self._counters[f"share fetch {code.name}"] += 1
        if code is ErrorCode.NETWORK_EXCEPTION:
            self._watch.unheard(self._group)

    def over(self, session: ShareSession) -> None:
        """See `ShareObserver`."""
        for holds in self._held.pop(session, {}).values():
            for hold in holds.values():
                hold.is_over = True

    def end(self) -> None:
        """The member is gone, with all of its sessions."""
        for session in list(self._held):
            self.over(session)
