"""What a share consumer can be watched by: the simulator, which checks what it is given."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from strandline.client.share_group.acknowledgements import Parcel
from strandline.client.share_group.membership import Place
from strandline.client.share_group.session import Sent, ShareSession
from strandline.errors import ErrorCode
from strandline.protocol.messages.share_fetch import AcquiredRecords
from strandline.types import TopicPartition


class ShareObserver:
    """Hears what happens, in its order. This one does nothing with it."""

    def asking(
        self, session: ShareSession, sent: Sent, places: Iterable[tuple[Place, TopicPartition]]
    ) -> None:
        """A request is on its way, which acknowledges and perhaps fetches these partitions."""

    def heard(self, session: ShareSession) -> None:
        """The broker has answered in the session."""

    def acquired(
        self,
        session: ShareSession,
        sent: Sent,
        place: Place,
        ranges: Collection[AcquiredRecords],
        lock_ms: int,
    ) -> None:
        """An answer to `sent` brought these records."""

    def told(self, parcel: Parcel, code: ErrorCode) -> None:
        """What came of acknowledgements; some are sent again after that."""

    def refused(self, code: ErrorCode) -> None:
        """A request as a whole was refused, or not answered (NETWORK_EXCEPTION)."""

    def over(self, session: ShareSession) -> None:
        """The session has ended: what was acquired in it is for others."""
