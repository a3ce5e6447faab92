"""UpdateFeatures: the controller changes the levels of features."""

from __future__ import annotations

from functools import partial

from strandline.cluster.controller import FeatureUpdate, UpdateKind, update_features
from strandline.errors import ProtocolError
from strandline.node.controller_loop import ControllerLoop
from strandline.node.request import Request
from strandline.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from strandline.types import Instant

_KIND_SINCE = 1


class UpdateFeaturesHandler:
    """Answers UpdateFeatures, versions 0 to 2; NOT_CONTROLLER where there is no controller."""

    def __init__(self, controller: ControllerLoop) -> None:
        self._controller = controller

    def handle(self, request: Request[UpdateFeaturesRequest], now: Instant) -> None:
        """Change all features of the request, or none."""
        body, version = request.body, request.version

        def done(names: tuple[str, ...], at: Instant) -> None:
            del at
            results = [UpdatableFeatureResult(feature=name) for name in names]
            request.reply(UpdateFeaturesResponse(results=results))

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            request.reply(
                UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
            )

        updates = [_update_of(each, version) for each in body.feature_updates]
        decide = partial(update_features, updates=updates, is_dry_run=body.validate_only)
        self._controller.carry_out(decide, done=done, failed=failed, now=now)


def _update_of(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = asked.upgrade_type
    if version < _KIND_SINCE and asked.allow_downgrade:
        kind = UpdateKind.SAFE_DOWNGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, kind)
