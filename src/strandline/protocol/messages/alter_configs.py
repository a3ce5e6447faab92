"""AlterConfigs: replace all settings of a resource by those given."""

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
    """A setting; null resets it."""

    name: str = string()
    value: str | None = nullable_string()


@structure
class AlterConfigsResource:
    """A resource with all the settings that it is to have."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message("0-2", flexible="2+")
class AlterConfigsRequest:
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


@message("0-2", flexible="2+")
class AlterConfigsResponse:
    """Outcome per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
