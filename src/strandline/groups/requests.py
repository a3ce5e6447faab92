"""What may be asked about membership, and the answers: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Requests say what the wire requests say, without their versions' accidents; the node maps one to the
other. `token` names the request: hashable, unique among unanswered requests, and returned untouched
with the one answer. `version` is the API version, where the rules themselves depend on it. Each
request knows how its own refusal looks (`refused`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from strandline.errors import ErrorCode

Token = Hashable

NO_MEMBER_ID = ""
"""The member id of someone who has not been given one yet."""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class JoinProtocol:
    """One assignment protocol that a member supports, with the member's subscription for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the group's leader gets to see it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """`protocol_name` None is null on the wire from version 7 on, and empty before."""

    error: ErrorCode = ErrorCode.NONE
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    member_id: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup: become, or stay, a member of the group's next generation."""

    token: Token
    version: int
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    reason: str | None = None

    @property
    def requires_known_member_id(self) -> bool:
        """KIP-394: a dynamic member first fetches an id, so that a lost reply leaves no ghost."""
        return self.version >= 4

    @property
    def may_skip_assignment(self) -> bool:
        """KIP-814: a returning static leader is told that it leads and need not assign."""
        return self.version >= 9

    @property
    def effective_rebalance_timeout_ms(self) -> int:
        """Version 0 has no rebalance timeout; the session timeout stands in."""
        return self.session_timeout_ms if self.version == 0 else self.rebalance_timeout_ms

    def refused(self, error: ErrorCode) -> JoinResponse:
        """The answer that carries `error`."""
        outsider = error is ErrorCode.GROUP_MAX_SIZE_REACHED
        return JoinResponse(error, member_id=NO_MEMBER_ID if outsider else self.member_id)


@dataclass(frozen=True, slots=True)
class SyncResponse:
    """The assignment of one member."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """SyncGroup: fetch this generation's assignment; the leader brings everyone's.

    From version 5 on, both protocol fields must be there; the node refuses a request without
    (INCONSISTENT_GROUP_PROTOCOL), as that is a matter of the version.
    """

    token: Token
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """(member id, assignment) pairs; empty unless the leader asks."""

    def refused(self, error: ErrorCode) -> SyncResponse:
        """The answer that carries `error`."""
        return SyncResponse(error)


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """Heartbeat: this member is alive."""

    token: Token
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None

    def refused(self, error: ErrorCode) -> HeartbeatResponse:
        """The answer that carries `error`; while the group is loading, any heartbeat is fine."""
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()
        return HeartbeatResponse(error)


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """Who leaves: by member id, or, for an administrator, by instance id alone (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """What became of one `LeavingMember`."""

    member_id: str
    group_instance_id: str | None = None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LeaveResponse:
    """Versions below 3 carry one member, whose error belongs at the top then (the node's work)."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[MemberLeft, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """LeaveGroup: these members go at once, without waiting for their sessions to end."""

    token: Token
    group_id: str
    members: tuple[LeavingMember, ...]

    def refused(self, error: ErrorCode) -> LeaveResponse:
        """The answer that carries `error`; an unknown group is every member's own error."""
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveResponse(error)
        return LeaveResponse(
            members=tuple(
                MemberLeft(leaving.member_id, leaving.group_instance_id, error)
                for leaving in self.members
            )
        )
