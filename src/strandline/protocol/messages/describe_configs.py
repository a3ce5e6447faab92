"""DescribeConfigs: settings of topics and brokers, and where each value comes from."""

from __future__ import annotations

from strandline.protocol.declare import (
    STRING,
    array,
    boolean,
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
class DescribeConfigsResource:
    """A resource and the settings of interest; null for all."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_array(STRING)


@message("1-4", flexible="4+")
class DescribeConfigsRequest:
    """The resources to describe."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@structure
class DescribeConfigsSynonym:
    """Another setting that would give the value, in order of precedence."""

    name: str = string()
    value: str | None = nullable_string()
    source: int = int8()


@structure
class DescribeConfigsResourceResult:
    """One setting."""

    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = nullable_string("3+", ignorable=True)


@structure
class DescribeConfigsResult:
    """One resource."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message("1-4", flexible="4+")
class DescribeConfigsResponse:
    """The resources."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
