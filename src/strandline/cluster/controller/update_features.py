"""Changing the levels of features on request (KIP-584, KIP-778), all of them or none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from strandline.cluster.controller.decision import Decision, fenced
from strandline.cluster.features import SUPPORTED, UNSUPPORTED, level_of, supported_by
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, Operation, SetData
from strandline.cluster.znodes import FeatureNode, FeatureRange
from strandline.errors import ErrorCode, ProtocolError


class UpdateKind(IntEnum):
    """Which way a level may go. No feature loses anything when its level falls: a change is never
    unsafe."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """One feature's new level; `kind` is the number in the request."""

    feature: str
    level: int
    kind: int = UpdateKind.UPGRADE


_KINDS: Final[Collection[int]] = frozenset(UpdateKind)


def update_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], *, is_dry_run: bool = False
) -> Decision[str]:
    """Set the levels; the results are the names. Of a feature that is named twice the last counts.

    Raises ProtocolError (INVALID_UPDATE_VERSION) with the first feature that cannot be changed so.
    """
    wanted = {each.feature: each for each in updates}
    for _, update in sorted(wanted.items()):
        if (reason := _refusal(image, update)) is not None:
            raise ProtocolError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.feature}. {reason}",
            )
    if is_dry_run or not wanted:
        return Decision(tuple(wanted))
    stored = image.feature_levels
    former = stored.value if stored else FeatureNode()
    changed = {name: each.level for name, each in wanted.items()}
    data = replace(former, levels={**former.levels, **changed}).encode()
    write: Operation = (
        SetData(FeatureNode.path, data, stored.version)
        if stored
        else Create(FeatureNode.path, data)
    )
    return Decision(tuple(wanted), fenced(image, [write]))


def _refusal(image: ClusterImage, update: FeatureUpdate) -> str | None:
    """Why not; the sentences are Kafka's, which people look for."""
    if update.kind not in _KINDS:
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.feature not in SUPPORTED:
        return f"Broker {image.controller} does not support this feature."
    for broker_id, supported in sorted(supported_by(image, update.feature)):
        if not supported.min_version <= update.level <= supported.max_version:
            return f"Broker {broker_id} {_only(supported)}"
    current = level_of(image, update.feature)
    if update.level < current and update.kind == UpdateKind.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if update.level > current and update.kind != UpdateKind.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _only(supported: FeatureRange) -> str:
    if supported == UNSUPPORTED:
        return "does not support this feature."
    return f"only supports versions {supported.min_version}-{supported.max_version}"
