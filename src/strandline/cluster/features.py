"""Features of the cluster: abilities that all brokers must have before any of them uses them.

A broker tells in its registration which levels it supports. The level in force is a function of the
image alone: what an administrator set (`/feature`), or else the newest level; and never more than
every member of the cluster supports. So brokers with equal images agree, a broker of an older
release holds its cluster back for as long as it is a member, and nothing has to be written when the
last one is replaced. In Kafka an administrator raises each level after an upgrade, and a broker
that does not support it cannot register.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.znodes import FeatureRange

TRANSACTION_VERSION: Final = "transaction.version"
"""1: states of transactions are written with tagged fields (KIP-890). 2: producers, too, know that
each transaction has an epoch of its own."""

GROUP_VERSION: Final = "group.version"
"""1: groups of the consumer protocol are coordinated, and stored (KIP-848)."""

SHARE_VERSION: Final = "share.version"
"""1: share groups are coordinated, and stored (KIP-932)."""

SUPPORTED: Final[Mapping[str, FeatureRange]] = {
    GROUP_VERSION: FeatureRange(0, 1),
    SHARE_VERSION: FeatureRange(0, 1),
    TRANSACTION_VERSION: FeatureRange(0, 2),
}
"""What this release supports, and writes into its registration."""

UNSUPPORTED: Final = FeatureRange(0, 0)


def level_of(image: ClusterImage, name: str) -> int:
    """The level of the feature that is in force; 0: the feature is not to be used."""
    newest = min((found.max_version for _, found in supported_by(image, name)), default=0)
    level = image.feature_levels.value.levels.get(name) if image.feature_levels else None
    return newest if level is None else min(level, newest)


def levels(image: ClusterImage) -> dict[str, int]:
    """The features of this release that are in force, with their levels."""
    found = {name: level_of(image, name) for name in SUPPORTED}
    return {name: level for name, level in found.items() if level}


def supported_by(image: ClusterImage, name: str) -> Iterator[tuple[int, FeatureRange]]:
    """What each member of the cluster supports. A broker that is down counts as it was last; one
    that never told while it was registered does not count."""
    for broker_id, broker in image.brokers.items():
        yield broker_id, broker.node.features.get(name, UNSUPPORTED)
    for broker_id, known in image.fenced.items():
        if known.features:
            yield broker_id, known.features.get(name, UNSUPPORTED)


def knows_transactions(image: ClusterImage) -> bool:
    """Whether every broker that runs can end transactions in the partitions that it leads."""
    return all(TRANSACTION_VERSION in broker.node.features for broker in image.brokers.values())
