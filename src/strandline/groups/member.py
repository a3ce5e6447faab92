"""One member of a classic group: who it is, what it supports, and which answers it waits for.

Knows nothing of the group's state. A member waits for at most one join and one sync; the request
that waits is kept here by its token.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from strandline.errors import InvariantViolated
from strandline.groups.requests import Call, Token
from strandline.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)
from strandline.protocol.messages.offsets_topic import MemberMetadata


@dataclass(frozen=True, slots=True)
class ParkedRequest:
    """A request that is answered later. (A token alone could be None.)"""

    token: Token


@dataclass(slots=True)
class Member:
    """A member, as the group's current generation knows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[JoinGroupRequestProtocol]
    """What the member can do, its favourite first."""
    assignment: bytes = b""
    awaiting_join: ParkedRequest | None = None
    awaiting_sync: ParkedRequest | None = None
    is_new: bool = False
    """Has not been through a completed join: its client does not know its id, so no heartbeats
    can come and waiting does not keep it alive for ever."""

    @classmethod
    def from_call(cls, call: Call[JoinGroupRequest], member_id: str) -> Member:
        """A member that joins for the first time."""
        request = call.body
        return cls(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms(call),
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def from_value(cls, value: MemberMetadata, protocol: str) -> Member:
        """A member of a stored generation; of its protocols only the chosen one was stored."""
        rebalance_timeout_ms = value.rebalance_timeout
        return cls(
            member_id=value.member_id,
            group_instance_id=value.group_instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            session_timeout_ms=value.session_timeout,
            rebalance_timeout_ms=(
                value.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms
            ),
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=value.subscription)],
            assignment=value.assignment,
        )

    def to_value(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """This member as part of a generation to store."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @property
    def is_static(self) -> bool:
        """KIP-345: known by an instance id that outlives its process."""
        return self.group_instance_id is not None

    @property
    def satisfies_heartbeat(self) -> bool:
        """Waiting for the coordinator counts as being alive, except for new members."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def metadata(self, protocol: str) -> bytes:
        """The subscription for a protocol that the member supports."""
        for candidate in self.protocols:
            if candidate.name == protocol:
                return candidate.metadata
        raise InvariantViolated(f"Member {self.member_id} does not support {protocol}.")

    def favourite_metadata(self, protocol: str | None) -> bytes:
        """The subscription for a protocol, or for the favourite one if that is not supported."""
        supported = {candidate.name: candidate.metadata for candidate in reversed(self.protocols)}
        return supported.get(protocol or "", self.protocols[0].metadata)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that the member likes best."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise InvariantViolated(f"Member {self.member_id} supports no protocol of the group.")

    def as_joined(self, protocol: str) -> JoinGroupResponseMember:
        """This member as the leader gets to see it."""
        return JoinGroupResponseMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            metadata=self.metadata(protocol),
        )


def rebalance_timeout_ms(call: Call[JoinGroupRequest]) -> int:
    """Version 0 has no rebalance timeout; the session timeout stands in."""
    request = call.body
    return request.session_timeout_ms if call.version == 0 else request.rebalance_timeout_ms
