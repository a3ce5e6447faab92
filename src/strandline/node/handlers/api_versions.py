"""ApiVersions: which APIs, versions and features this node serves (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from strandline.cluster.features import SUPPORTED, levels
from strandline.errors import ErrorCode
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from strandline.types import Instant

_SOFTWARE_SINCE: Final = 3
_LEVEL_0_SINCE: Final = 4
# KIP-511: letters, digits, dots and dashes, beginning and ending with a letter or digit.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers ApiVersions, versions 0 to 4, and, with version 0, those that are not known."""

    def __init__(self, served: Iterable[ApiKey], metadata: Metadata) -> None:
        self._metadata = metadata
        self._versions = [
            ApiVersion(
                api_key=key,
                min_version=KNOWN[key].advertised_versions.lowest,
                max_version=KNOWN[key].advertised_versions.highest,
            )
            for key in sorted({*served, ApiKey.API_VERSIONS})
        ]
        self._own = next(v for v in self._versions if v.api_key == ApiKey.API_VERSIONS)

    def handle(self, request: Request[ApiVersionsRequest], now: Instant) -> None:
        """List everything that is served."""
        del now
        body = request.body
        if request.version >= _SOFTWARE_SINCE and not (
            _SOFTWARE.fullmatch(body.client_software_name)
            and _SOFTWARE.fullmatch(body.client_software_version)
        ):
            request.reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        image = self._metadata.image
        request.reply(
            ApiVersionsResponse(
                api_keys=self._versions,
                supported_features=_supported(request.version),
                # Clients believe the answer with the largest one, whichever broker gave it.
                finalized_features_epoch=image.zxid,
                finalized_features=[
                    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                    for name, level in levels(image).items()
                ],
            )
        )

    def handle_unknown_version(self, request: Request[None]) -> None:
        """Tell a client from the future, in version 0, which versions it may ask in."""
        request.version = 0
        request.reply(
            ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[self._own])
        )


def _supported(version: int) -> list[SupportedFeatureKey]:
    # Old clients take a feature that begins at 0 for a malformed answer (KAFKA-17011).
    lowest = 0 if version >= _LEVEL_0_SINCE else 1
    return [
        SupportedFeatureKey(
            name=name,
            min_version=max(lowest, supported.min_version),
            max_version=supported.max_version,
        )
        for name, supported in SUPPORTED.items()
    ]
