"""What a program says of the records that it was given, and what comes of that.

    held ── acknowledge ──> said ── hand over ──> parcel ── sent, told ──> outcome

This file knows the records that the program has, by the share sessions in which they were acquired.
It must not know requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from strandline.client.share_group.membership import Place
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.types import BrokerId, TopicPartition

ACK_TYPES: Final = {each.name.lower(): each for each in AckType if each}
"""By the names that programs use."""


class ShareRecord(NamedTuple):
    """A record that a member of a share group was given.

    - `timestamp_ms`: in milliseconds since 1970, -1 for none.
    - `delivery_count`: the how-manieth time it is given to a member of the group, from 1 on.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int


class SessionEnd(Protocol):
    """The share session in which records were acquired, as far as this file knows it."""

    broker: BrokerId
    ended: ErrorCode | None
    """Why it is over, and with it what was acquired in it."""


@dataclass(eq=False, slots=True)
class Holding:
    """Records of a partition that the program has, all acquired in one session."""

    at: TopicPartition
    place: Place
    session: Any
    records: dict[int, ShareRecord]
    said: dict[int, AckType] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Parcel:
    """Acknowledgements of a partition that go together, and have one outcome."""

    at: TopicPartition
    place: Place
    session: Any
    types: dict[int, AckType]
    until_ms: int
    """For how long it may be tried again."""
    then: Callable[[Parcel, ErrorCode], None]
    renewed: dict[int, ShareRecord] = field(default_factory=dict)
    """The records whose locks it renews: the program gets them again."""

    @property
    def is_of_gaps(self) -> bool:
        """Whether it says nothing but where there is no record: that can wait."""
        return not any(self.types.values())


class Acknowledged(NamedTuple):
    """What became of acknowledgements of one partition."""

    partition: TopicPartition
    offsets: tuple[int, ...]
    error: ErrorCode
    """NONE: they count. Any other: these records may be given to any member again."""


Leading: TypeAlias = Callable[[TopicPartition], BrokerId | None]
"""Who is known to lead a partition."""


class HeldRecords:
    """See the module. `leads` tells who leads a partition now, `send` takes parcels on."""

    def __init__(self, leads: Leading, send: Callable[[Parcel], None]) -> None:
        self._leads = leads
        self._send = send
        self._holdings: dict[TopicPartition, list[Holding]] = {}
        self._renewing = 0
        """Parcels under way that renew locks."""
        self._renewed: list[Holding] = []
        self._outcomes: list[Acknowledged] = []

    # -- What the program has ----------------------------------------------------------------

    def give(self, holding: Holding) -> None:
        """The program gets these."""
        self._holdings.setdefault(holding.at, []).append(holding)

    @property
    def is_renewing(self) -> bool:
        """Whether locks are being renewed, or their records are to be given again."""
        return self._renewing > 0 or bool(self._renewed)

    @property
    def has_renewed(self) -> bool:
        """Whether the program is to get records again whose locks were renewed."""
        return bool(self._renewed)

    def take_renewed(self) -> list[ShareRecord]:
        """Give those."""
        renewed, self._renewed = self._renewed, []
        for each in renewed:
            self.give(each)
        return [record for each in renewed for record in each.records.values()]

    def say(self, at: TopicPartition, offset: int, kind: AckType) -> None:
        """The program says what became of a record. Raises `ProtocolError` if it has it not."""
        for holding in self._holdings.get(at, ()):
            if offset in holding.records:
                holding.said[offset] = kind
                return
        raise ProtocolError(
            ErrorCode.INVALID_RECORD_STATE,
            f"The record at offset {offset} of partition {at} cannot be acknowledged: the last "
            "poll did not return it, or what became of it was said and sent before.",
        )

    def forget(self, at: TopicPartition, offset: int) -> None:
        """The program has it no longer, and says nothing of it."""
        for holding in self._holdings.get(at, ()):
            holding.records.pop(offset, None)

    def say_of_all(self, kind: AckType) -> None:
        """The same of every record of which the program has said nothing."""
        for holdings in self._holdings.values():
            for holding in holdings:
                for offset in holding.records:
                    holding.said.setdefault(offset, kind)

    @property
    def unsaid(self) -> int:
        """Of how many records the program has not said what became of them."""
        return sum(
            len(holding.records) - len(holding.said)
            for holdings in self._holdings.values()
            for holding in holdings
        )

    # -- What is sent ------------------------------------------------------------------------

    def hand_over(
        self, until_ms: int, then: Callable[[Parcel, ErrorCode], None] | None = None
    ) -> list[Parcel]:
        """Send what was said on its way; `then` is told what came of each parcel, perhaps at once.
        What is acknowledged to a broker that does not lead any more fails: it released that."""
        parcels: list[Parcel] = []
        for at, holdings in list(self._holdings.items()):
            parcels.extend(self._parcel(each, until_ms, then) for each in holdings if each.said)
            left = [each for each in holdings if each.records]
            if left:
                self._holdings[at] = left
            else:
                del self._holdings[at]
        for parcel in parcels:
            code = self._lost(parcel)
            if code is None:
                self._send(parcel)
            else:
                parcel.then(parcel, code)
        return parcels

    def _parcel(
        self,
        holding: Holding,
        until_ms: int,
        then: Callable[[Parcel, ErrorCode], None] | None,
    ) -> Parcel:
        said, holding.said = holding.said, {}
        taken = {offset: holding.records.pop(offset) for offset in said}
        renewed = {at: taken[at] for at, kind in said.items() if kind is AckType.RENEW}
        self._renewing += bool(renewed)

        def told(parcel: Parcel, code: ErrorCode) -> None:
            self._told(parcel, code)
            if then is not None:
                then(parcel, code)

        return Parcel(holding.at, holding.place, holding.session, said, until_ms, told, renewed)

    def _lost(self, parcel: Parcel) -> ErrorCode | None:
        session: SessionEnd = parcel.session
        if session.ended is not None:
            return session.ended
        leader = self._leads(parcel.at)
        if leader is not None and leader != session.broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def _told(self, parcel: Parcel, code: ErrorCode) -> None:
        offsets = tuple(sorted(parcel.types))
        self._outcomes.append(Acknowledged(parcel.at, offsets, code))
        if parcel.renewed:
            self._renewing -= 1
            if code is ErrorCode.NONE:
                self._renewed.append(
                    Holding(parcel.at, parcel.place, parcel.session, parcel.renewed)
                )

    def take_outcomes(self) -> list[Acknowledged]:
        """What came of acknowledgements since this was asked last."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes


class Commit:
    """A number of parcels whose outcomes are waited for."""

    def __init__(self) -> None:
        self.outcomes: dict[TopicPartition, ErrorCode] = {}
        """By partition, the first error of it."""
        self._open: set[Parcel] = set()
        self._early: set[Parcel] = set()

    def told(self, parcel: Parcel, code: ErrorCode) -> None:
        """What came of one of them."""
        self._early.add(parcel)
        self._open.discard(parcel)
        if not self.outcomes.get(parcel.at):
            self.outcomes[parcel.at] = code

    def wait_for(self, parcels: Iterable[Parcel]) -> None:
        """These are the parcels."""
        self._open = set(parcels) - self._early

    @property
    def is_done(self) -> bool:
        """Whether all have their outcomes."""
        return not self._open

    def give_up(self) -> None:
        """What has no outcome by now has timed out."""
        for each in self._open:
            if not self.outcomes.get(each.at):
                self.outcomes[each.at] = ErrorCode.REQUEST_TIMED_OUT
        self._open = set()


def batches_of(types: Mapping[int, AckType]) -> list[tuple[int, int, AckType]]:
    """First offset, last offset and type of each run of offsets with one type."""
    found: list[tuple[int, int, AckType]] = []
    for offset in sorted(types):
        kind = types[offset]
        if found and found[-1][1] == offset - 1 and found[-1][2] is kind:
            found[-1] = (found[-1][0], offset, kind)
        else:
            found.append((offset, offset, kind))
    return found
