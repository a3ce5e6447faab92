"""DescribeClientQuotas and AlterClientQuotas (KIP-546); any broker answers both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

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
_TYPES: Final = (USER, CLIENT_ID, "ip")
_EXACT, _DEFAULT, _ANY = 0, 1, 2


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

        def done(results: tuple[Refusal | None, ...], at: Instant) -> None:
            del at
            reply(asked.outcomes(results))

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            reply(asked.failed(error))

        decide = partial(
            alter_quotas, changes=asked.wishes, validate_only=request.body.validate_only
        )
        self._controller.carry_out(decide, done=done, failed=failed, now=now)


def _change(entry: altering.EntryData) -> QuotaChange:
    limits = [(op.key, None if op.remove else op.value) for op in entry.ops]
    return QuotaChange(_entity(entry.entity), limits)


def _entity(parts: list[altering.EntityData]) -> Entity:
    found: dict[str, str] = {}
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID) or part.entity_type in found:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"Quotas of {part.entity_type!r} are not served by this version, only those of "
                "user and of client-id, each once.",
            )
        if part.entity_name == "":
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"The name of a {part.entity_type} is empty."
            )
        found[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    return Entity(found.get(USER), found.get(CLIENT_ID))


def _parts(entity: Entity) -> dict[str, str]:
    named = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {kind: name for kind, name in named.items() if name is not None}


def _check_components(components: list[describing.ComponentData]) -> None:
    kinds = [each.entity_type for each in components]
    for each in components:
        if each.entity_type not in _TYPES:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Custom entity type '{each.entity_type}' not supported",
            )
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"Unexpected match type {each.match_type}"
            )
    if len(kinds) != len(set(kinds)):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate filter component entity type")


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
