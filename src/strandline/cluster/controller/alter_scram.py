"""The decision to change SCRAM credentials of users (KIP-554), in Kafka's words and codes.

Users of one request stand and fall on their own; one that is named twice falls. Their other
settings (quotas) in the same node stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from strandline.cluster.controller.decision import Decision, Refusal, duplicates
from strandline.cluster.controller.topic_writes import config_write
from strandline.cluster.image import ClusterImage
from strandline.cluster.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from strandline.cluster.store import Operation
from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.errors import ErrorCode, ProtocolError


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user shall have no credential of a mechanism, whose number is as received."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user shall have this credential of a mechanism."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


ScramChange: TypeAlias = ScramDeletion | ScramUpsertion


@dataclass(frozen=True, slots=True)
class ScramAltered:
    """What became of one user."""

    user: str
    refusal: Refusal | None = None


def alter_scram(image: ClusterImage, changes: Sequence[ScramChange]) -> Decision[ScramAltered]:
    """Results by first mention of each user.

    Refusals: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE,
    RESOURCE_NOT_FOUND.
    """
    by_user: dict[str, list[ScramChange]] = {}
    for change in changes:
        by_user.setdefault(change.user, []).append(change)
    results: list[ScramAltered] = []
    operations: list[Operation] = []
    for user, own in by_user.items():
        try:
            _refuse_repeated(own)
            settings = dict(image.overrides(_resource(user)))
            for change in own:
                _apply(settings, change)
        except ProtocolError as error:
            results.append(ScramAltered(user, Refusal.of(error)))
            continue
        operations += config_write(image, _resource(user), settings)
        results.append(ScramAltered(user))
    return Decision(tuple(results), tuple(operations))


def credentials_of(image: ClusterImage, user: str) -> dict[ScramMechanism, ScramCredential]:
    """The credentials that a user has; those that cannot be read are left out."""
    found = {}
    for name, text in image.overrides(_resource(user)).items():
        if name in MECHANISMS:
            try:
                found[MECHANISMS[name]] = ScramCredential.parse(text)
            except ValueError:
                continue
    return found


def users_with_credentials(image: ClusterImage) -> list[str]:
    """All users that have one, by name."""
    return sorted(
        resource.name
        for resource, stored in image.configs.items()
        if resource.kind is ResourceKind.USER
        and not MECHANISMS.keys().isdisjoint(stored.value.overrides)
    )


def _refuse_repeated(changes: Sequence[ScramChange]) -> None:
    if duplicates(each.mechanism for each in changes):
        raise ProtocolError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _apply(settings: dict[str, str], change: ScramChange) -> None:
    if not change.user:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in list(ScramMechanism):
        raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = ScramMechanism(change.mechanism)
    if isinstance(change, ScramDeletion):
        if settings.pop(mechanism.sasl_name, None) is None:
            raise ProtocolError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        few = change.iterations < ITERATIONS_MIN
        raise ProtocolError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {'few' if few else 'many'} iterations"
        )
    if not change.salt or not change.salted_password:
        raise ProtocolError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty"
        )
    credential = ScramCredential.of_salted(
        mechanism, change.salted_password, change.salt, change.iterations
    )
    settings[mechanism.sasl_name] = credential.text()


def _resource(user: str) -> ConfigResource:
    return ConfigResource(ResourceKind.USER, user)
