"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final, Protocol

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.controller.delegation_tokens import (
    Outcome,
    create_token,
    expire_token,
    renew_token,
)
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
from strandline.cluster.znodes import TokenNode
from strandline.config.topic import LONG_MAX
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.authentication.delegation_tokens import DelegationTokens, may_ask_for_tokens
from strandline.node.controller import Controller
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.settings import Settings
from strandline.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from strandline.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from strandline.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from strandline.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from strandline.types import USER, Instant, Principal

_NO_TIME: Final = -1
_REQUESTER_SINCE: Final = 3


class _Change(Protocol):
    """`renew_token` or `expire_token`."""

    def __call__(
        self, image: ClusterImage, token_id: str, asking: Principal, period_ms: int, now_ms: int
    ) -> Decision[Outcome]: ...


class DelegationTokensHandler:
    """Tokens of this broker's clients. Who may see and make those of others is asked before."""

    def __init__(
        self,
        tokens: DelegationTokens,
        metadata: Metadata,
        controller: Controller,
        settings: Settings,
        random: Random,
    ) -> None:
        self._tokens = tokens
        self._metadata = metadata
        self._controller = controller
        self._settings = settings
        self._random = random

    def create(self, request: Request[CreateDelegationTokenRequest], now: Instant) -> None:
        """Answers CreateDelegationToken, versions 1 to 3."""
        body = request.body
        if not may_ask_for_tokens(request.connection):
            request.reply(not_created(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
            return
        # Kafka looks at the types of renewers only. A client that shows the token is served as a
        # user of the owner's name, so an owner of another type would be that user.
        kinds = {owner_of(request).type, *(each.principal_type for each in body.renewers)}
        if kinds != {USER}:
            request.reply(not_created(request, ErrorCode.INVALID_PRINCIPAL_TYPE))
            return
        if not self._tokens.is_enabled:
            request.reply(not_created(request, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
            return
        broker = self._settings.broker
        life_ms = broker.delegation_token_max_lifetime_ms
        if body.max_lifetime_ms > 0:
            life_ms = min(life_ms, body.max_lifetime_ms)
        until_ms = min(LONG_MAX, now.wall_ms + life_ms)
        token = TokenNode(
            uuid_text(random_uuid(self._random)),
            owner_of(request),
            request.principal,
            tuple(Principal(each.principal_type, each.principal_name) for each in body.renewers),
            issued_ms=now.wall_ms,
            expires_ms=min(until_ms, now.wall_ms + broker.delegation_token_expiry_time_ms),
            lives_until_ms=until_ms,
        )

        def done(results: tuple[TokenNode, ...], at: Instant) -> None:
            del results, at
            request.reply(
                CreateDelegationTokenResponse(
                    **_owner(token.owner),
                    **_requester(token.requester, request),
                    issue_timestamp_ms=token.issued_ms,
                    expiry_timestamp_ms=token.expires_ms,
                    max_timestamp_ms=token.lives_until_ms,
                    token_id=token.token_id,
                    hmac=self._tokens.secret_of(token.token_id),
                )
            )

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            request.reply(not_created(request, error.code))

        self._controller.carry_out(
            partial(create_token, token=token), done=done, failed=failed, now=now
        )

    def renew(self, request: Request[RenewDelegationTokenRequest], now: Instant) -> None:
        """Answers RenewDelegationToken, versions 1 and 2."""
        wanted_ms = request.body.renew_period_ms
        period_ms = self._settings.broker.delegation_token_expiry_time_ms
        if wanted_ms > 0:
            period_ms = min(period_ms, wanted_ms)
        self._change(request, RenewDelegationTokenResponse, renew_token, period_ms, now)

    def expire(self, request: Request[ExpireDelegationTokenRequest], now: Instant) -> None:
        """Answers ExpireDelegationToken, versions 1 and 2."""
        period_ms = request.body.expiry_time_period_ms
        self._change(request, ExpireDelegationTokenResponse, expire_token, period_ms, now)

    def describe(self, request: Request[DescribeDelegationTokenRequest], now: Instant) -> None:
        """Answers DescribeDelegationToken, versions 1 to 3, with the secrets."""
        del now
        response = DescribeDelegationTokenResponse()
        if not may_ask_for_tokens(request.connection):
            response.error_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif not self._tokens.is_enabled:
            response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        else:
            asked = request.body.owners
            named = {Principal(each.principal_type, each.principal_name) for each in asked or ()}
            response.tokens = [
                self._described(each.value, request)
                for _, each in sorted(self._metadata.image.tokens.items())
                if asked is None or not named.isdisjoint((each.value.owner, *each.value.renewers))
            ]
        request.reply(response)

    def _change(
        self,
        request: Request[RenewDelegationTokenRequest] | Request[ExpireDelegationTokenRequest],
        response: type[RenewDelegationTokenResponse] | type[ExpireDelegationTokenResponse],
        change: _Change,
        period_ms: int,
        now: Instant,
    ) -> None:
        def refuse(code: ErrorCode, expires_ms: int = 0) -> None:
            request.reply(response(error_code=code, expiry_timestamp_ms=expires_ms))

        if not may_ask_for_tokens(request.connection):
            refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NO_TIME)
            return
        if not self._tokens.is_enabled:
            refuse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
            return
        token_id = self._tokens.meant_by(bytes(request.body.hmac))
        if token_id is None:
            refuse(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            return

        def done(results: tuple[Outcome, ...], at: Instant) -> None:
            del at
            (outcome,) = results
            if isinstance(outcome, Refusal):
                refuse(outcome.code)
            else:
                request.reply(response(expiry_timestamp_ms=min(LONG_MAX, outcome)))

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            refuse(error.code)

        decide = partial(
            change,
            token_id=token_id,
            asking=request.principal,
            period_ms=period_ms,
            now_ms=now.wall_ms,
        )
        self._controller.carry_out(decide, done=done, failed=failed, now=now)

    def _described(self, token: TokenNode, request: Request[Any]) -> DescribedDelegationToken:
        return DescribedDelegationToken(
            **_owner(token.owner),
            **_requester(token.requester, request),
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.lives_until_ms,
            token_id=token.token_id,
            hmac=self._tokens.secret_of(token.token_id),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
                for each in token.renewers
            ],
        )


def owner_of(request: Request[CreateDelegationTokenRequest]) -> Principal:
    """Whose token the request wants: that of a principal it names, or of the client itself."""
    body = request.body
    if not body.owner_principal_name:
        return request.principal
    return Principal(body.owner_principal_type or "", body.owner_principal_name)


def not_created(
    request: Request[CreateDelegationTokenRequest], code: ErrorCode
) -> CreateDelegationTokenResponse:
    """A refusal, in Kafka's form."""
    return CreateDelegationTokenResponse(
        error_code=code,
        **_owner(owner_of(request)),
        **_requester(request.principal, request),
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


def _owner(principal: Principal) -> dict[str, Any]:
    return {"principal_type": principal.type, "principal_name": principal.name}


def _requester(principal: Principal, request: Request[Any]) -> dict[str, Any]:
    """Where the version has a place for it."""
    if request.version < _REQUESTER_SINCE:
        return {}
    return {
        "token_requester_principal_type": principal.type,
        "token_requester_principal_name": principal.name,
    }
