"""The decision to delete topics, named or given by id (KIP-516).

A topic goes at once and whole: its nodes are deleted in one multi, and brokers that hold its logs
learn it from the change. A broker that was away finds logs of an unknown topic when it comes back.
Only a topic of more partitions than fit into one multi is marked, and the reconciliation removes it
step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.cluster.controller.decision import (
    Decision,
    Permit,
    Refusal,
    always,
    duplicates,
    fenced_from_deletions,
)
from strandline.cluster.controller.state_writes import BYTES_PER_MULTI
from strandline.cluster.controller.topic_writes import (
    REMOVALS_PER_MULTI,
    REMOVED,
    deletion_request,
    topic_removal,
)
from strandline.cluster.image import ClusterImage, TopicImage
from strandline.cluster.store import Operation
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import NO_TOPIC_ID, TopicId

_NODES_PER_PARTITION: Final = 2
_PATH_BYTES: Final = 50
"""Of each deletion of a node, beside the topic's name."""


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic by name or by id, never both."""

    name: str | None = None
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """What became of one reference. A refused one shows only what the request said."""

    name: str | None
    topic_id: TopicId
    refusal: Refusal | None = None


def delete_topics(
    image: ClusterImage,
    references: Sequence[TopicReference],
    *,
    is_enabled: bool = True,
    permit: Permit = always,
) -> Decision[TopicDeleted]:
    """Results by first mention. `permit` is asked about topics that could be deleted. Raises
    TOPIC_DELETION_DISABLED for the whole request.

    Refusals: INVALID_REQUEST (duplicates, neither or both of name and id),
    UNKNOWN_TOPIC_OR_PARTITION (name), UNKNOWN_TOPIC_ID (id).
    """
    if not is_enabled:
        raise ProtocolError(
            ErrorCode.TOPIC_DELETION_DISABLED, "The setting delete.topic.enable is false."
        )
    repeated = duplicates(references)
    found = {ref: _find(image, ref) for ref in references if ref not in repeated}
    same = duplicates(topic.name for topic in found.values() if topic is not None)
    results: dict[TopicReference, TopicDeleted] = {}
    operations: list[Operation] = []
    removed = False
    for reference in references:
        if reference in results:
            continue
        topic = found.get(reference)
        refusal = _refusal(
            reference,
            topic,
            is_repeated=reference in repeated,
            is_named_twice=topic is not None and topic.name in same,
        )
        if topic is not None and refusal is None:
            try:
                permit(topic.name, len(topic.partitions))
            except ProtocolError as error:
                refusal = Refusal.of(error)
        if topic is not None and refusal is None:
            if len(topic.partitions) <= REMOVALS_PER_MULTI:
                operations += topic_removal(image, topic)
                removed = True
            else:
                operations += deletion_request(image, topic)
            results[reference] = TopicDeleted(topic.name, topic.topic_id)
        else:
            results[reference] = TopicDeleted(reference.name, reference.topic_id, refusal)
    if removed:
        operations.append(REMOVED)
    return Decision(tuple(results.values()), fenced_from_deletions(image, operations))


def removal_bytes(topic: TopicImage) -> int:
    """About how many bytes the multi has that removes the topic, or marks it."""
    count = len(topic.partitions)
    if count > REMOVALS_PER_MULTI:
        return 0
    of_partition = _NODES_PER_PARTITION * (len(topic.name) + _PATH_BYTES)
    return count * max(of_partition, BYTES_PER_MULTI // REMOVALS_PER_MULTI)


def _find(image: ClusterImage, reference: TopicReference) -> TopicImage | None:
    if reference.name is not None:
        return None if reference.topic_id != NO_TOPIC_ID else image.topics.get(reference.name)
    return image.topic_by_id(reference.topic_id)


def _refusal(
    reference: TopicReference, topic: TopicImage | None, *, is_repeated: bool, is_named_twice: bool
) -> Refusal | None:
    has_id = reference.topic_id != NO_TOPIC_ID
    if reference.name is None and not has_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "Neither a topic name nor a topic id is given.")
    if reference.name is not None and has_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "A topic name and a topic id are both given.")
    if is_repeated:
        return Refusal(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
    if topic is None and has_id:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id.")
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic of this name.")
    if is_named_twice:
        return Refusal(ErrorCode.INVALID_REQUEST, "The request names this topic by name and by id.")
    return None
