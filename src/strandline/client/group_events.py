"""What a group member tells its driver, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from strandline.client.group_requests import Committed
from strandline.errors import ProtocolError
from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True)
class GenerationJoined:
    """The member has got its part of a generation; what is new of it will be `PartitionsAssigned`
    when its offsets are known."""

    generation: int
    member_id: str
    is_leader: bool
    assignor: str
    owned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """These are to be read from now on; with what is committed, None where nothing is."""

    committed: Mapping[TopicPartition, Committed | None]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """These must not be read any more. The driver commits and then calls `GroupMember.revoked`;
    the member waits for that before it goes on.

    `is_lost` says that others may own them already: what is committed now would be refused.
    """

    partitions: tuple[TopicPartition, ...]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class MemberFailed:
    """The member is of no use any more: no retry may help."""

    error: ProtocolError


GroupEvent: TypeAlias = GenerationJoined | PartitionsAssigned | PartitionsRevoked | MemberFailed
