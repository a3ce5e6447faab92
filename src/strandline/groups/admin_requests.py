"""What an administrator may ask about groups: ListGroups, DescribeGroups, DeleteGroups.

See `requests` for what a token and a version are.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import ErrorCode
from strandline.groups.requests import Token


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of a listing."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    """The groups of all partitions that this broker coordinates."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """ListGroups: empty filters let everything through; case does not matter (KIP-518, KIP-848)."""

    token: Token
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member; its subscription (`metadata`) is there only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group, or why it cannot be described."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsResponse:
    """One entry for each group of the request, in its order."""

    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroupsRequest:
    """DescribeGroups: before version 6 an unknown group is no error, but a dead group."""

    token: Token
    version: int
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    """(group, error) for each different group of the request, in its order."""

    results: tuple[tuple[str, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    """DeleteGroups: only groups without members can go; their offsets go with them."""

    token: Token
    group_ids: tuple[str, ...]
