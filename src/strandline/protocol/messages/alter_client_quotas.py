"""AlterClientQuotas: set and remove limits of users and client ids (KIP-546)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    boolean,
    float64,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class EntityData:
    """A part of an entity; null is the default."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


@structure
class OpData:
    """A limit to set, or to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@structure
class EntryData:
    """One entity, and what becomes of its limits."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message("0-1", flexible="1+")
class AlterClientQuotasRequest:
    """The changes."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@structure
class EntryResult:
    """What became of one entity."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    entity: list[EntityData] = array(EntityData)


@message("0-1", flexible="1+")
class AlterClientQuotasResponse:
    """What became of each."""

    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)
