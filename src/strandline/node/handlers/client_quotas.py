"""DescribeClientQuotas and AlterClientQuotas (KIP-546); any broker answers both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from strandline.addresses import as_connected
from strandline.cluster.controller import QuotaChange, Refusal, alter_quotas, stored_quotas
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.controller import Controller
from strandline.node.handlers.item_by_item import ItemByItem
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.protocol.messages import alter_client_quotas as altering
from strandline.protocol.messages import describe_client_quotas as describing
from strandline.quotas.entities import DEFAULT, Entity
from strandline.types import Instant

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MATCHES: Final = ("MATCH_TYPE_EXACT", "MATCH_TYPE_DEFAULT", "MATCH_TYPE_SPECIFIED")


class ClientQuotasHandler:
    """Answers both APIs, versions 0 and 1."""

    def __init__(self, metadata: Metadata, controller: Controller) -> None:
        self._metadata = metadata
        self._controller = controller

    def describe(
        self, request: Request[describing.DescribeClientQuotasRequest], now: Instant
    ) -> None:
        """Tell the limits of the entities that are meant."""
        del now
        body = request.body
        try:
            _check_components(body.components)
        except ProtocolError as error:
            request.reply(
                describing.DescribeClientQuotasResponse(
                    error_code=error.code, error_message=error.message, entries=None
                )
            )
            return
        entries = [
            describing.EntryData(
                entity=[
                    describing.EntityData(entity_type=kind, entity_name=name or None)
                    for kind, name in _parts(entity).items()
                ],
                values=[
                    describing.ValueData(key=name, value=value)
                    for name, value in sorted(limits.items())
                ],
            )
            for entity, limits in stored_quotas(self._metadata.image)
            if _is_meant(entity, body.components, is_strict=body.strict)
        ]
        request.reply(describing.DescribeClientQuotasResponse(error_message=None, entries=entries))

    def alter(self, request: Request[altering.AlterClientQuotasRequest], now: Instant) -> None:
        """Set and remove limits; each entity by itself."""
        entries = request.body.entries
        asked = ItemByItem(entries, _change)

        def reply(outcomes: Sequence[Refusal | None]) -> None:
            request.reply(
                altering.AlterClientQuotasResponse(
                    entries=[
                        altering.EntryResult(
                            error_code=refusal.code if refusal else ErrorCode.NONE,
                            error_message=refusal.message if refusal else None,
                            entity=entry.entity,
                        )
                        for entry, refusal in zip(entries, outcomes, strict=True)
                    ]
                )
            )

        decide = partial(alter_quotas, validate_only=request.body.validate_only)
        asked.carry_out(self._controller, decide, reply, key=_entity_of, now=now)


def _entity_of(change: QuotaChange) -> Entity:
    return change.entity


def _change(entry: altering.EntryData) -> QuotaChange:
    limits = [(op.key, None if op.remove else op.value) for op in entry.ops]
    return QuotaChange(_entity(entry.entity), limits)


def _entity(parts: list[altering.EntityData]) -> Entity:
    found: dict[str, str] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kind in found:
            raise _invalid(f"Entity type {kind} cannot appear more than once in an entity.")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if kind == IP and name is not None:
            name = _address(name)
        found[kind] = DEFAULT if name is None else name
    return Entity(found.get(USER), found.get(CLIENT_ID), found.get(IP))


def _address(text: str) -> str:
    """An address as connections have it. A host's name would have to be looked up."""
    try:
        return as_connected(text)
    except ValueError:
        raise _invalid(f"{text} is not an IP address; names of hosts are not looked up.") from None


def _parts(entity: Entity) -> dict[str, str]:
    named = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    return {kind: name for kind, name in named.items() if name is not None}


def _check_components(components: list[describing.ComponentData]) -> None:
    """Refuse what Kafka refuses, in its words (`ClientQuotasImage`)."""
    kinds: set[str] = set()
    for each in components:
        kind = each.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in kinds:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise _invalid(f"Unknown match type {each.match_type}")
        name = _MATCHES[each.match_type]
        if each.match_type == _EXACT and each.match is None:
            raise _invalid(f"Request specified {name}, but set match string to null.")
        if each.match_type != _EXACT and each.match is not None:
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        kinds.add(kind)
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )


def _invalid(sentence: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, sentence)


def _is_meant(
    entity: Entity, components: list[describing.ComponentData], *, is_strict: bool
) -> bool:
    parts = _parts(entity)
    if is_strict and len(parts) != len(components):
        return False
    for each in components:
        name = parts.get(each.entity_type)
        if name is None:
            return False
        if each.match_type == _EXACT and (name != each.match or name == DEFAULT):
            return False
        if each.match_type == _DEFAULT and name != DEFAULT:
            return False
    return True
