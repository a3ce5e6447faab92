"""DescribeClientQuotas: limits of users and client ids (KIP-546)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
)


@structure
class ComponentData:
    """A part of an entity; match type 0: of this name, 1: the default, 2: any."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = nullable_string()


@message("0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """The entities of interest; `strict`: without other parts."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@structure
class EntityData:
    """A part of an entity; null is the default."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


@structure
class ValueData:
    """One limit."""

    key: str = string()
    value: float = float64()


@structure
class EntryData:
    """One entity with its limits."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message("0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The limits; null if they could not be told."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entries: list[EntryData] | None = nullable_array(EntryData)
