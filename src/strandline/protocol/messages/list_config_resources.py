"""ListConfigResources: the resources that have settings (KIP-1142).

Version 0 lists only client metrics subscriptions (KIP-1000).
"""

from __future__ import annotations

from strandline.protocol.declare import (
    INT8,
    array,
    int8,
    int16,
    int32,
    message,
    string,
    structure,
)


@message("0-1", flexible="0+")
class ListConfigResourcesRequest:
    """The types of interest; none for all."""

    resource_types: list[int] = array(INT8, "1+")


@structure
class ConfigResource:
    """One resource; type 16 is a client metrics subscription."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@message("0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
