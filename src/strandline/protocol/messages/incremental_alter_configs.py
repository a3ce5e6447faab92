"""IncrementalAlterConfigs: change single settings of a resource (KIP-339)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class AlterableConfig:
    """A change; operation 0 sets, 1 resets, 2 appends to a list, 3 takes from it."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = nullable_string()


@structure
class AlterConfigsResource:
    """A resource and its changes."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message("0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """The resources to change."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@structure
class AlterConfigsResourceResponse:
    """Outcome for one resource."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


@message("0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """Outcome per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
