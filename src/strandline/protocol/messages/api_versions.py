"""ApiVersions: what a broker can speak; the first request of most connections.

The answer to a version that is not known is version 0 with UNSUPPORTED_VERSION, and the response
header is always version 0 (KIP-511).
"""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
)


@message("0-4", flexible="3+")
class ApiVersionsRequest:
    """Asks; from version 3 the client says what it is."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@structure
class ApiVersion:
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@structure
class SupportedFeatureKey:
    """Levels of a feature that the broker supports (KIP-584)."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@structure
class FinalizedFeatureKey:
    """Levels of a feature that the cluster has agreed on."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message("0-4", flexible="3+")
class ApiVersionsResponse:
    """The APIs and features of this broker."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
