"""Quotas of users and of client ids: what is stored, and changes of it.

They lie with whatever else is set for the user or the client id, as in Kafka; any broker writes
them, under the version that it saw.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.controller.topic_writes import config_write
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Operation
from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.errors import ErrorCode, ProtocolError
from strandline.quotas.entities import ENFORCED, KNOWN, Entity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Limits of one entity to set, and others to remove (None)."""

    entity: Entity
    limits: Sequence[tuple[str, float | None]]


def alter_quotas(
    image: ClusterImage, changes: Sequence[QuotaChange], *, validate_only: bool = False
) -> Decision[Refusal | None]:
    """A result is None, or INVALID_REQUEST with why an entity stays as it was."""
    results: list[Refusal | None] = []
    operations: list[Operation] = []
    seen: set[Entity] = set()
    for change in changes:
        try:
            if change.entity in seen:
                raise _invalid("The request names this entity more than once.")
            seen.add(change.entity)
            resource = _resource(change.entity)
            settings = dict(image.overrides(resource))
            for name, value in change.limits:
                _check(name, value)
                if value is None:
                    settings.pop(name, None)
                else:
                    settings[name] = _text(value)
        except ProtocolError as error:
            results.append(Refusal.of(error))
            continue
        if settings != image.overrides(resource):
            operations += config_write(image, resource, settings)
        results.append(None)
    return Decision(tuple(results), () if validate_only else tuple(operations))


def stored_quotas(image: ClusterImage) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """All limits that are stored, by entity; those that are no numbers are left out."""
    for resource, stored in sorted(image.configs.items()):
        entity = entity_of(resource)
        if entity is None:
            continue
        limits = {}
        for name, text in stored.value.overrides.items():
            if name not in KNOWN:
                continue
            try:
                limits[name] = float(text)
            except ValueError:
                log.warning("The quota %s of %s is no number: %r", name, entity, text)
        if limits:
            yield entity, limits


def entity_of(resource: ConfigResource) -> Entity | None:
    """Whose quotas a resource has; None: it has none."""
    if resource.kind is ResourceKind.USER:
        return Entity(resource.name, None)
    if resource.kind is ResourceKind.CLIENT:
        return Entity(None, resource.name)
    return None


def _resource(entity: Entity) -> ConfigResource:
    user, client_id = entity
    if user is not None and client_id is not None:
        raise _invalid("Quotas of a user and a client id together are not served by this version.")
    if user is not None:
        return ConfigResource(ResourceKind.USER, user)
    if client_id is not None:
        return ConfigResource(ResourceKind.CLIENT, client_id)
    raise _invalid("An entity has a user or a client-id.")


def _check(name: str, value: float | None) -> None:
    if name not in KNOWN:
        raise _invalid(f"Invalid configuration key {name}")
    if value is None:
        return
    if name not in ENFORCED:
        raise _invalid(f"{name} is not enforced by this version of Strandline.")
    if not isfinite(value) or value <= 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    if value != int(value) or value >= 2**63:
        raise _invalid(f"Configuration {name} must be a Long value")


def _text(value: float) -> str:
    return str(int(value))


def _invalid(sentence: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, sentence)
