"""Permissions of delegation tokens: who may make one for another, and see those of others.

Clients whose requests about tokens are not taken at all get that answer first, from the handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.node.authentication.delegation_tokens import may_ask_for_tokens
from strandline.node.authorization.authority import Access
from strandline.node.authorization.rule import Need, Rule
from strandline.node.handlers.delegation_tokens import not_created, owner_of
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from strandline.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from strandline.types import Principal

_DENIED: Final = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def _create(access: Access, request: Request[CreateDelegationTokenRequest]) -> bool:
    owner = owner_of(request)
    if (
        not may_ask_for_tokens(request.connection)
        or owner == request.principal
        or access.may(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
    ):
        return True
    request.reply(not_created(request, _DENIED))
    return False


def _describe(access: Access, request: Request[DescribeDelegationTokenRequest]) -> bool:
    def may(operation: Operation, kind: ResourceType, name: str) -> bool:
        return access.may(operation, kind, name, is_noted=False)

    def is_seen(token: DescribedDelegationToken) -> bool:
        owner = Principal(token.principal_type, token.principal_name)
        renewers = [Principal(each.principal_type, each.principal_name) for each in token.renewers]
        return (
            request.principal in (owner, *renewers)
            or may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or may(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(owner))
        )

    def amend(response: DescribeDelegationTokenResponse) -> None:
        response.tokens = [each for each in response.tokens if is_seen(each)]

    request.amend = amend
    return True


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: Rule(
        _create,
        (
            Need(
                Operation.CREATE_TOKENS,
                ResourceType.USER,
                _DENIED,
                "of the owner, if that is another principal: `User:name`",
            ),
        ),
    ),
    # The handler asks whether the client owns the token, or is one of its renewers.
    ApiKey.RENEW_DELEGATION_TOKEN: Rule(None),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Rule(None),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Rule(
        _describe,
        (
            Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, None, "of a token's id"),
            Need(
                Operation.DESCRIBE_TOKENS,
                ResourceType.USER,
                None,
                "of its owner; either is enough, and owners and renewers need neither",
            ),
        ),
    ),
}
