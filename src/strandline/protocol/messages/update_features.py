"""UpdateFeatures: change the levels of features that the cluster has agreed on (KIP-584)."""

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
class FeatureUpdateKey:
    """A feature and its new level. `upgrade_type`: 1 up, 2 down if that is safe, 3 down anyway."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0", ignorable=True)
    upgrade_type: int = int8("1+", default=1)


@message("0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Features to change, all of them or none."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@structure
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message("0-2", flexible="0+")
class UpdateFeaturesResponse:
    """What became of the request; version 2 has no results of single features."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
