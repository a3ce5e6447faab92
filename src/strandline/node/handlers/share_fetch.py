"""ShareFetch and ShareAcknowledge: members of share groups acquire records, and say what became of
them (KIP-932).

A request that acknowledges is answered when its acknowledgements are stored; only then are more
records read for it. What a member may not read it cannot acknowledge either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from strandline.authorization.acls import Operation
from strandline.cluster.features import SHARE_VERSION, level_of
from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.share.heartbeat_checks import check_member_id
from strandline.node.client_quotas import ClientQuotas
from strandline.node.leader_hints import LeaderHints
from strandline.node.metadata import Metadata
from strandline.node.purgatory import Purgatory
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.sharing.access import ShareAccess
from strandline.node.sharing.sessions import FINAL_EPOCH, OPENING_EPOCH, Place, ShareSession
from strandline.node.sharing.waiting import (
    PostponedRefusal,
    Surroundings,
    WaitingShareFetch,
    acknowledged_endpoints,
    acknowledged_leader,
    answer_fetch,
    find_led,
    refuse_fetch,
)
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from strandline.protocol.messages.share_fetch import ShareFetchRequest
from strandline.sharing.values import AckBatch
from strandline.types import Instant

if TYPE_CHECKING:
    from strandline.node.authorization.authority import Authority

NO_SHARE_GROUPS: Final = "Share groups are not served: the cluster's share.version is 0."

Permits = Callable[[str], bool]
Outcomes = dict[Place, ErrorCode]


class ShareFetchHandler:
    """Answers ShareFetch and ShareAcknowledge, versions 1 and 2."""

    def __init__(
        self,
        access: ShareAccess,
        replicas: Replicas,
        metadata: Metadata,
        purgatory: Purgatory,
        quotas: ClientQuotas,
        authority: Authority | None = None,
    ) -> None:
        self._access = access
        self._metadata = metadata
        self._purgatory = purgatory
        self._authority = authority
        self._around = Surroundings(replicas, access.leading, quotas)

    # -- ShareFetch --------------------------------------------------------------------------

    def fetch(self, request: Request[ShareFetchRequest], now: Instant) -> None:
        """Take acknowledgements over, then read what there is, or wait for it."""
        try:
            session = self._session_of_fetch(request)
        except ProtocolError as refusal:
            self._refuse(request, refusal, now)
            return
        body = request.body
        permits = self._permits(request, now)

        def acknowledged(outcomes: Outcomes, at: Instant) -> None:
            if body.share_session_epoch == FINAL_EPOCH:
                self._end(session, at)
            # While acknowledgements were stored the session may have ended.
            if not session.is_current or body.is_renew_ack:
                answer_fetch(request, {}, outcomes, self._around, at)
                return
            fetch = WaitingShareFetch(request, session, self._around, outcomes, permits)
            watched = fetch.watched(at)
            if body.max_wait_ms <= 0 or not watched:
                fetch.expire(at)
                return
            deadline_ms = now.monotonic_ms + body.max_wait_ms
            self._purgatory.complete_or_park(fetch, watched, deadline_ms=deadline_ms, now=at)

        self._acknowledge(session, body, acknowledged, permits, now)

    def _refuse(
        self, request: Request[ShareFetchRequest], refusal: ProtocolError, now: Instant
    ) -> None:
        max_wait_ms = request.body.max_wait_ms
        if refusal.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED or max_wait_ms <= 0:
            refuse_fetch(request, refusal)
            return
        deadline_ms = now.monotonic_ms + max_wait_ms
        postponed = PostponedRefusal(request, refusal)
        self._purgatory.complete_or_park(postponed, (), deadline_ms=deadline_ms, now=now)

    def _session_of_fetch(self, request: Request[ShareFetchRequest]) -> ShareSession:
        body = request.body
        group_id, member_id = self._check(body)
        wanted = [
            (topic.topic_id, each.partition_index)
            for topic in body.topics
            for each in topic.partitions
        ]
        has_acks = _has_acknowledgements(body.topics)
        sessions = self._access.sessions
        if body.share_session_epoch == OPENING_EPOCH:
            if has_acks:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    "A request that opens a share session cannot acknowledge records.",
                )
            session = sessions.open(group_id, member_id, request.connection)
            session.update(wanted, ())
            return session
        if body.is_renew_ack and (
            body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms
        ):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "A request that renews locks fetches nothing: MaxBytes, MinBytes, MaxRecords and "
                "MaxWaitMs must be 0.",
            )
        session = sessions.find(group_id, member_id, body.share_session_epoch)
        if body.share_session_epoch != FINAL_EPOCH:
            session.update(
                wanted,
                [
                    (topic.topic_id, number)
                    for topic in body.forgotten_topics_data
                    for number in topic.partitions
                ],
            )
        return session

    # -- ShareAcknowledge --------------------------------------------------------------------

    def acknowledge(self, request: Request[ShareAcknowledgeRequest], now: Instant) -> None:
        """Take acknowledgements over; answered when they are stored."""
        body = request.body
        try:
            group_id, member_id = self._check(body)
            session = self._access.sessions.find(group_id, member_id, body.share_session_epoch)
        except ProtocolError as refusal:
            request.reply(
                ShareAcknowledgeResponse(
                    error_code=refusal.code, error_message=refusal.message or None
                )
            )
            return

        def acknowledged(outcomes: Outcomes, at: Instant) -> None:
            if body.share_session_epoch == FINAL_EPOCH:
                self._end(session, at)
            self._reply(request, outcomes)

        self._acknowledge(session, body, acknowledged, self._permits(request, now), now)

    def _reply(self, request: Request[ShareAcknowledgeRequest], outcomes: Outcomes) -> None:
        image = self._metadata.image
        hints = LeaderHints(image, request.connection.listener)
        topics: dict[Any, ShareAcknowledgeTopicResponse] = {}
        for place, code in outcomes.items():
            answer = PartitionData(partition_index=place[1], error_code=code)
            leader = acknowledged_leader(hints, image.topic_names, place, code)
            if leader is not None:
                answer.current_leader = leader
            topic = topics.setdefault(place[0], ShareAcknowledgeTopicResponse(topic_id=place[0]))
            topic.partitions.append(answer)
        config = self._around.shares.config_of(request.body.group_id or "")
        request.reply(
            ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
                responses=list(topics.values()),
                node_endpoints=acknowledged_endpoints(hints),
            )
        )

    # -- Both --------------------------------------------------------------------------------

    def _check(self, body: Any) -> tuple[str, str]:
        """The group and the member. Raises `ProtocolError`."""
        if not level_of(self._metadata.image, SHARE_VERSION):
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS)
        if not body.group_id:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
        member_id = check_member_id(body.member_id)
        return body.group_id, member_id

    def _permits(self, request: Request[Any], now: Instant) -> Permits | None:
        if self._authority is None:
            return None
        return self._authority.access(request, now).topics(Operation.READ)

    def _acknowledge(
        self,
        session: ShareSession,
        body: Any,
        done: Callable[[Outcomes, Instant], None],
        permits: Permits | None,
        now: Instant,
    ) -> None:
        """Hand acknowledgements to the share partitions; `done` when all have their outcome."""
        wanted = {
            (topic.topic_id, each.partition_index): [
                AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in each.acknowledgement_batches
            ]
            for topic in body.topics
            for each in topic.partitions
            if each.acknowledgement_batches
        }
        outcomes: Outcomes = {}
        shares = self._around.shares

        def told(place: Place, code: ErrorCode, at: Instant) -> None:
            outcomes[place] = code
            if len(outcomes) == len(wanted):
                done(outcomes, at)

        if not wanted:
            done(outcomes, now)
        for place, batches in wanted.items():
            if not body.is_renew_ack and any(AckType.RENEW in each.types for each in batches):
                told(place, ErrorCode.INVALID_REQUEST, now)
                continue
            replica = find_led(self._around.replicas, place, permits)
            if isinstance(replica, ErrorCode):
                told(place, replica, now)
                continue
            led = shares.of(session.group_id, replica, now)

            def tell(code: ErrorCode, at: Instant, place: Place = place) -> None:
                told(place, code, at)

            shares.acknowledge(led, session.member_id, batches, tell, now)

    def _end(self, session: ShareSession, now: Instant) -> None:
        self._access.sessions.close(session)
        self._access.session_ended(session, now)


def _has_acknowledgements(topics: Iterable[Any]) -> bool:
    return any(each.acknowledgement_batches for topic in topics for each in topic.partitions)
