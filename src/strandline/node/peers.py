"""The other brokers as this node reaches them: one link per broker and channel.

Channels keep what may wait long (a fetch) from what may not (a request to the controller): the
answers of one link come in order. Which addresses brokers have comes from the metadata; when a
broker registers anew, or is gone, its links end with it.

This file must not know what is asked. See `peer_link` for the life of one link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from strandline.client.channel import RequestFailed
from strandline.cluster.image import ClusterImage
from strandline.node.effects import LinkId
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.peer_link import (
    Address,
    Answered,
    OpenLinks,
    PeerLink,
    Question,
)
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.protocol.apis import KNOWN, Api
from strandline.types import BrokerId, Instant

if TYPE_CHECKING:
    from strandline.node.peer_login import PeerLogin

__all__ = ["CONTROL", "Answered", "Peers"]

CONTROL: Final = "control"
_PLAINTEXT: Final = "PLAINTEXT"

_APIS_BY_REQUEST: Final[dict[str, Api]] = {f"{api.name}Request": api for api in KNOWN.values()}


class Peers:
    """Requests to other brokers. Callbacks never run inside the call that asks."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        outbox: Outbox,
        timers: Timers,
        login: PeerLogin | None = None,
    ) -> None:
        """`login` is how this broker authenticates with others; None if it need not."""
        self._metadata = metadata
        self._settings = settings
        self._timers = timers
        self._open = OpenLinks(outbox, timers, login)
        self._links: dict[tuple[BrokerId, str], PeerLink] = {}

    def ask(
        self,
        broker_id: BrokerId,
        message: object,
        version: int,
        answered: Answered,
        now: Instant,
        *,
        timeout_ms: int,
        channel: str = CONTROL,
    ) -> None:
        """Send a request; `answered` gets the answer, or `RequestFailed` by the end of its time.

        A request for which there is no connection waits for one within the same timeout.
        """
        link = self._links.get((broker_id, channel)) or self._new_link(broker_id, channel)
        if link is None:
            self._fail_soon(answered, self._why_unreachable(broker_id), now)
            return
        api = _APIS_BY_REQUEST[message.__class__.__name__]
        deadline_ms = now.monotonic_ms + timeout_ms
        if not link.ask(Question(api, version, message, answered, deadline_ms), now):
            self._fail_soon(answered, f"too many requests wait for broker {broker_id}", now)

    def hang_up(self, broker_id: BrokerId, channel: str = CONTROL) -> None:
        """Give a link up. What was asked on it is forgotten, without a callback."""
        link = self._links.pop((broker_id, channel), None)
        if link is not None:
            link.abandon()

    def _why_unreachable(self, broker_id: BrokerId) -> str:
        if broker_id not in self._metadata.image.brokers:
            return f"broker {broker_id} is not registered"
        own = self._settings.broker.inter_broker_listener
        return f"broker {broker_id} has no listener {own.name} with {own.security_protocol}"

    def is_known(self, broker_id: BrokerId) -> bool:
        """Whether the broker is registered, so that it makes sense to ask it."""
        return broker_id in self._metadata.image.brokers

    # -- What the driver tells ---------------------------------------------------------------

    def link_opened(self, link_id: LinkId, now: Instant) -> None:
        """A `Dial` succeeded."""
        link = self._open.by_id.get(link_id)
        if link is not None:
            link.opened(now)

    def link_received(self, link_id: LinkId, frame: memoryview, now: Instant) -> None:
        """A whole frame has come, its size left out; its bytes are good during the call."""
        link = self._open.by_id.get(link_id)
        if link is not None:
            link.received(frame, now)

    def link_closed(self, link_id: LinkId, reason: str, now: Instant) -> None:
        """A link has ended, or could not be made."""
        link = self._open.by_id.get(link_id)
        if link is not None:
            link.fail(reason, now, hang_up=False)

    # -- Metadata ----------------------------------------------------------------------------

    def brokers_changed(
        self, image: ClusterImage, changed: Iterable[BrokerId], now: Instant
    ) -> None:
        """End the links to brokers that are gone or registered anew."""
        differing = set(changed)
        for key, link in list(self._links.items()):
            if link.broker_id not in differing:
                continue
            address = self._address(image, link.broker_id)
            if address is None:
                del self._links[key]
                link.fail("it is not registered any more", now, hang_up=True)
            elif address != link.address:
                link.move(address, "it has registered anew", now)

    def _new_link(self, broker_id: BrokerId, channel: str) -> PeerLink | None:
        image = self._metadata.image
        address = self._address(image, broker_id)
        if address is None:
            return None
        client_id = f"broker-{self._settings.broker.node_id}-{channel}"
        link = self._links[broker_id, channel] = PeerLink(broker_id, address, client_id, self._open)
        return link

    def _address(self, image: ClusterImage, broker_id: BrokerId) -> Address | None:
        """Where brokers reach that one: by the listener that this one has for it.

        Without security any listener without will do; what is to be secured never goes elsewhere.
        """
        broker = image.brokers.get(broker_id)
        if broker is None:
            return None
        own = self._settings.broker.inter_broker_listener
        endpoint = broker.endpoint(own.name)
        if endpoint is None or endpoint.protocol != own.security_protocol:
            if own.security_protocol != _PLAINTEXT:
                return None
            plain = (each for each in broker.endpoints if each.protocol == _PLAINTEXT)
            endpoint = next(plain, None)
        return endpoint and Address(endpoint.host, endpoint.port, broker.epoch)

    def _fail_soon(self, answered: Answered, reason: str, now: Instant) -> None:
        failed = RequestFailed(reason, was_sent=False)
        self._timers.schedule(now.monotonic_ms, lambda at: answered(failed, at))
