"""Features of the cluster and their levels (KIP-584): what the brokers have agreed to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.refusal import check
from strandline.client.versions import VersionHandshake
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsResponse
from strandline.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UP: Final = 1
_DOWN: Final = 2
_KIND_SINCE: Final = 1


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: the level in force (0: not used) and those that the asked broker supports."""

    name: str
    level: int
    lowest: int
    highest: int


class FeatureAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def describe(self) -> list[Feature]:
        """The features that a broker knows, by name."""
        return self._cluster.retry(lambda: _ask(self._cluster.any_connection()))

    def set_levels(self, levels: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Change levels, all of them or none; those that fall lose nothing.

        Raises ProtocolError (INVALID_UPDATE_VERSION) if a feature or a broker does not allow it.
        """

        def attempt(connection: Connection) -> None:
            current = {each.name: each.level for each in _ask(connection)}

            def request(version: int) -> UpdateFeaturesRequest:
                updates = [
                    _update(name, level, current.get(name, 0), version)
                    for name, level in levels.items()
                ]
                return UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)

            response = connection.call(ApiKey.UPDATE_FEATURES, UpdateFeaturesResponse, request)
            check(response.error_code, response.error_message, "the features")
            for each in response.results:
                check(each.error_code, each.error_message, f"feature {each.feature}")

        self._cluster.retry_on_controller(attempt)


def _update(name: str, level: int, current: int, version: int) -> FeatureUpdateKey:
    falls = level < current
    update = FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=falls)
    if version >= _KIND_SINCE:
        update.upgrade_type = _DOWN if falls else _UP
    return update


def _ask(connection: Connection) -> list[Feature]:
    response = connection.call(ApiKey.API_VERSIONS, ApiVersionsResponse, VersionHandshake.request)
    check(response.error_code, None, "the features")
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return [
        Feature(each.name, levels.get(each.name, 0), each.min_version, each.max_version)
        for each in sorted(response.supported_features, key=lambda each: each.name)
    ]
