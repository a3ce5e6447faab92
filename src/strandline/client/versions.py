"""Which version of each API a broker and this client have in common (KIP-35, KIP-511).

This file knows ranges of versions and how a broker is asked for its own. It must not know
connections: a driver sends the requests of a `VersionHandshake` and brings the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.client.refusal import check
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import PRIVATE, ApiKey, api_of
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.versions import VersionRange
from strandline.version import VERSION

_NONE: Final = VersionRange(0, -1)


class ServedVersions:
    """The versions that one broker serves, by API. `broker` is what sentences call it.

    `features` are the levels that the cluster has agreed on when it was asked, as of
    `features_epoch` (KIP-584); none from brokers that know none.
    """

    def __init__(
        self,
        broker: str,
        served: Mapping[int, VersionRange],
        features: Mapping[str, int] | None = None,
        features_epoch: int = -1,
    ) -> None:
        self.features = dict(features or {})
        self.features_epoch = features_epoch
        self._broker = broker
        self._served = served

    def serves(self, key: ApiKey) -> bool:
        """Whether there is a version of the API that both sides know."""
        return not self._common(key, None).empty

    def newest(self, key: ApiKey, highest: int | None = None) -> int:
        """The newest version that both sides know, up to `highest`.

        Raises `ProtocolError` (UNSUPPORTED_VERSION) if there is none.
        """
        common = self._common(key, highest)
        if common.empty:
            served = self._served.get(key)
            theirs = "not at all" if served is None else f"in versions {served}"
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The {self._broker} serves {api_of(key).name} {theirs}; this client "
                f"speaks {api_of(key).versions}.",
            )
        return common.highest

    def _common(self, key: ApiKey, highest: int | None) -> VersionRange:
        served = self._served.get(key)
        if served is None and key in PRIVATE:
            served = api_of(key).versions
        if served is None:
            return _NONE
        common = served.overlap(api_of(key).versions)
        return common if highest is None else common.overlap(VersionRange(0, highest))


class VersionHandshake:
    """The first exchange of a connection: `version` is that of the request to send next."""

    request: Final = ApiVersionsRequest(
        client_software_name="strandline", client_software_version=VERSION
    )

    def __init__(self, broker: str) -> None:
        self.version = api_of(ApiKey.API_VERSIONS).versions.highest
        self._broker = broker
        self._is_repeated = False

    def answered(self, response: ApiVersionsResponse) -> ServedVersions | None:
        """What the broker serves, or None if it is to be asked again, in another `version`.

        Raises the `ProtocolError` that the broker answered with.
        """
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not self._is_repeated:
            # The broker is older: its answer names the versions that it has, or is too old for it.
            named = {each.api_key: each.max_version for each in response.api_keys}
            self.version = min(named.get(ApiKey.API_VERSIONS, 0), self.version)
            self._is_repeated = True
            return None
        check(response.error_code, None, f"the {self._broker}")
        return ServedVersions(
            self._broker,
            {
                each.api_key: VersionRange(each.min_version, each.max_version)
                for each in response.api_keys
            },
            {each.name: each.max_version_level for each in response.finalized_features},
            response.finalized_features_epoch,
        )
