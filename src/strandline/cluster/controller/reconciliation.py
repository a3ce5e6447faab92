"""Signatures first; the decision follows."""

from __future__ import annotations

from collections.abc import Collection

from strandline.cluster.controller.decision import Decision
from strandline.cluster.controller.events import Event
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.types import TopicPartition


def reconcile(
    image: ClusterImage,
    policy: ControllerPolicy,
    touched: Collection[TopicPartition] | None = None,
) -> Decision[Event]:
    """Everything that should be written given the image, bounded: call again until it is empty.

    `touched` limits the look at partitions to these; None looks at all.
    """
    raise NotImplementedError


def touched_by(delta: ImageDelta) -> Collection[TopicPartition] | None:
    """What `reconcile` must look at after this step of the image."""
    raise NotImplementedError
