"""ApiVersions: which APIs and versions this node serves (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from strandline.errors import ErrorCode
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
TRANSACTION_VERSION: Final = "transaction.version"
"""The feature by which producers know that each transaction has an epoch of its own (KIP-890)."""
VERSION_2: Final = 2
# KIP-511: letters, digits, dots and dashes, beginning and ending with a letter or digit.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers ApiVersions, versions 0 to 4, and, with version 0, those that are not known."""

    def __init__(self, served: Iterable[ApiKey]) -> None:
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
        # Old clients take a feature that begins at 0 for a malformed answer (KAFKA-17011).
        lowest = 0 if request.version >= _LEVEL_0_SINCE else 1
        request.reply(
            ApiVersionsResponse(
                api_keys=self._versions,
                supported_features=[
                    SupportedFeatureKey(
                        name=TRANSACTION_VERSION, min_version=lowest, max_version=VERSION_2
                    )
                ],
                finalized_features_epoch=0,
                finalized_features=[
                    FinalizedFeatureKey(
                        name=TRANSACTION_VERSION,
                        max_version_level=VERSION_2,
                        min_version_level=VERSION_2,
                    )
                ],
            )
        )

    def handle_unknown_version(self, request: Request[None]) -> None:
        """Tell a client from the future, in version 0, which versions it may ask in."""
        request.version = 0
        request.reply(
            ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[self._own])
        )
