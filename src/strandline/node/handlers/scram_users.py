"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from strandline.cluster.controller import Refusal
from strandline.cluster.controller.alter_scram import (
    ScramAltered,
    ScramChange,
    ScramDeletion,
    ScramUpsertion,
    alter_scram,
    credentials_of,
    users_with_credentials,
)
from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode
from strandline.node.controller import Controller
from strandline.node.handlers.batching import InBatches
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from strandline.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from strandline.types import Instant


class ScramUsersHandler:
    """Who may log in with SCRAM."""

    def __init__(self, metadata: Metadata, controller: Controller) -> None:
        self._metadata = metadata
        self._controller = controller

    def describe(self, request: Request[DescribeUserScramCredentialsRequest], now: Instant) -> None:
        """Answers DescribeUserScramCredentials, version 0: mechanisms and iterations, no keys."""
        del now
        image = self._metadata.image
        asked = request.body.users
        # No list and an empty one mean all users.
        names = [each.name for each in asked] if asked else users_with_credentials(image)
        counts = Counter(names)
        request.reply(
            DescribeUserScramCredentialsResponse(
                error_message=None,
                results=[
                    _described(image, name, is_repeated=count > 1) for name, count in counts.items()
                ],
            )
        )

    def alter(self, request: Request[AlterUserScramCredentialsRequest], now: Instant) -> None:
        """Answers AlterUserScramCredentials, version 0."""
        body = request.body
        changes: list[ScramChange] = [
            ScramDeletion(each.name, each.mechanism) for each in body.deletions
        ]
        changes += (
            ScramUpsertion(
                each.name,
                each.mechanism,
                each.iterations,
                bytes(each.salt),
                bytes(each.salted_password),
            )
            for each in body.upsertions
        )

        def done(results: Sequence[ScramAltered], at: Instant) -> None:
            del at
            request.reply(
                AlterUserScramCredentialsResponse(results=[_altered(each) for each in results])
            )

        def refused(change: ScramChange, refusal: Refusal) -> ScramAltered:
            return ScramAltered(change.user, refusal)

        InBatches(self._controller, alter_scram, changes, key=_user_of, refused=refused).carry_out(
            done=done, now=now
        )


def _user_of(change: ScramChange) -> str:
    return change.user


def _described(
    image: ClusterImage, name: str, *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    found = credentials_of(image, name)
    if is_repeated:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif not found:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(found.items())
        ]
    return result


def _altered(result: ScramAltered) -> AlterUserScramCredentialsResult:
    refusal = result.refusal
    return AlterUserScramCredentialsResult(
        user=result.user,
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message if refusal else None,
    )
