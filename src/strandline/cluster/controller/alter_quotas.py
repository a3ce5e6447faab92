"""Quotas of users, client ids and addresses: what is stored, and changes of it.

They lie with whatever else is set for the user or the client id, as in Kafka; any broker writes
them, under the version that it saw. What is refused, and in which words, is Kafka's
(`ClientQuotaControlManager`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isfinite
from typing import Final

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.controller.topic_writes import config_write
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, Delete, Operation, SetData
from strandline.cluster.znodes import ConfigNode, ConfigResource, ResourceKind
from strandline.errors import ErrorCode, ProtocolError
from strandline.quotas.entities import OF_ADDRESSES, OF_CLIENTS, Allowed, Entity

log = logging.getLogger(__name__)

KNOWN: Final = OF_CLIENTS.keys() | OF_ADDRESSES.keys()
_EPSILON: Final = 1e-6


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
    wanted: dict[ConfigResource, Mapping[str, str]] = {}
    seen: set[Entity] = set()
    for change in changes:
        try:
            if change.entity in seen:
                raise _invalid("The request names this entity more than once.")
            seen.add(change.entity)
            resource = _resource(change.entity)
            settings = dict(image.overrides(resource))
            for name, value in change.limits:
                if value is None:
                    if name in KNOWN:
                        settings.pop(name, None)
                else:
                    settings[name] = _checked(name, value, change.entity.allowed)
        except ProtocolError as error:
            results.append(Refusal.of(error))
            continue
        if settings != image.overrides(resource):
            wanted[resource] = settings
        results.append(None)
    return Decision(tuple(results), () if validate_only else tuple(_writes(image, wanted)))


def _writes(
    image: ClusterImage, wanted: Mapping[ConfigResource, Mapping[str, str]]
) -> Iterator[Operation]:
    """What makes these the settings; a user's own come with those of its client ids."""
    users: dict[str, dict[ConfigResource, Mapping[str, str]]] = {}
    for resource, settings in wanted.items():
        if resource.kind is ResourceKind.USER_CLIENT:
            users.setdefault(resource.user_and_client[0], {})[resource] = settings
        elif resource.kind is not ResourceKind.USER:
            yield from config_write(image, resource, settings)
    for resource, settings in wanted.items():
        if resource.kind is ResourceKind.USER and resource.name not in users:
            yield from config_write(image, resource, settings)
    below = _clients_by_user(image) if users else {}
    for user, clients in users.items():
        yield from _user_writes(image, user, clients, below.get(user, set()), wanted)


def _clients_by_user(image: ClusterImage) -> dict[str, set[ConfigResource]]:
    """Client ids of users that have settings, by user."""
    below: dict[str, set[ConfigResource]] = {}
    for resource in image.configs:
        if resource.kind is ResourceKind.USER_CLIENT:
            user, client_id = resource.user_and_client
            if client_id is not None:
                below.setdefault(user, set()).add(resource)
    return below


def _user_writes(
    image: ClusterImage,
    user: str,
    clients: Mapping[ConfigResource, Mapping[str, str]],
    below: Set[ConfigResource],
    wanted: Mapping[ConfigResource, Mapping[str, str]],
) -> Iterator[Operation]:
    """Settings of client ids need the nodes above them, which go when nothing is below."""
    above, folder = ConfigResource(ResourceKind.USER, user), ConfigResource.of_user(user, None)
    overrides = wanted.get(above, image.overrides(above))
    stored = image.configs.get(above)
    left = below - {resource for resource, settings in clients.items() if not settings}
    left |= {resource for resource, settings in clients.items() if settings}
    stays = bool(left or overrides)
    if stored is None and stays:
        yield Create(above.path, ConfigNode(overrides).encode())
    elif stored is not None and stays and overrides != stored.value.overrides:
        node = ConfigNode(overrides, stored.value.extra)
        yield SetData(above.path, node.encode(), stored.version)
    if left and folder not in image.configs:
        yield Create(folder.path)
    for resource, settings in clients.items():
        yield from config_write(image, resource, settings)
    if not left and folder in image.configs:
        yield Delete(folder.path)
    if stored is not None and not stays:
        yield Delete(above.path, stored.version)


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
                limits[name] = _finite(text)
            except ValueError:
                log.warning("The quota %s of %s is no number: %r", name, entity, text)
        if limits:
            yield entity, limits


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def entity_of(resource: ConfigResource) -> Entity | None:
    """Whose quotas a resource has; None: it has none."""
    if resource.kind is ResourceKind.USER:
        return Entity(resource.name, None)
    if resource.kind is ResourceKind.CLIENT:
        return Entity(None, resource.name)
    if resource.kind is ResourceKind.IP:
        return Entity(None, None, resource.name)
    if resource.kind is ResourceKind.USER_CLIENT:
        user, client_id = resource.user_and_client
        return None if client_id is None else Entity(user, client_id)
    return None


def _resource(entity: Entity) -> ConfigResource:
    user, client_id, ip = entity
    if ip is not None:
        if user is not None or client_id is not None:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be combined with User or "
                "ClientId"
            )
        return ConfigResource(ResourceKind.IP, ip)
    if user is not None and client_id is not None:
        return ConfigResource.of_user(user, client_id)
    if user is not None:
        return ConfigResource(ResourceKind.USER, user)
    if client_id is not None:
        return ConfigResource(ResourceKind.CLIENT, client_id)
    raise _invalid("Invalid empty client quota entity")


def _checked(name: str, value: float, allowed: Allowed) -> str:
    """The text of a limit that may be."""
    if name not in allowed:
        raise _invalid(f"Invalid configuration key {name}")
    if not isfinite(value):
        raise _invalid(f"Quota {name} must be a number")
    if value <= 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    whole = allowed[name]
    if whole is None:
        return repr(value)
    kind, largest = whole
    if value > largest:
        raise _invalid(f"Proposed value for {name} is too large for {_article(kind)} {kind}.")
    # As in Kafka a value may be off by as little as arithmetic makes it. It must not become 0.
    if abs(value - round(value)) > _EPSILON or not round(value):
        raise _invalid(f"{name} cannot be a fractional value.")
    return str(round(value))


def _article(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"


def _invalid(sentence: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, sentence)
