"""The form of every decision, and the check that fences a controller that was replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from strandline.cluster.image import ClusterImage, PartitionImage
from strandline.cluster.store import Check, Operation
from strandline.cluster.znodes import DELETIONS, ControllerEpochNode
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.types import TopicPartition

MAX_PARTITIONS_PER_REQUEST: Final = 10_000

Result = TypeVar("Result", covariant=True)
Item = TypeVar("Item", bound=Hashable)

Permit: TypeAlias = Callable[[str, int], None]
"""Gets a topic and how many of its partitions are to be made or removed. Raises `ProtocolError` if
the client may not now; a decision that is made again asks again."""


def always(topic: str, count: int) -> None:
    """The permit of clients without a quota."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one item of a request is not done: Kafka's code and a sentence for people."""

    code: ErrorCode
    message: str

    @classmethod
    def of(cls, error: ProtocolError) -> Refusal:
        return cls(error.code, error.message)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Result]):
    """Results in the order of the request, and one multi (empty: there is nothing to write)."""

    results: tuple[Result, ...]
    operations: tuple[Operation, ...] = ()


def fenced(image: ClusterImage, operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The operations behind a check that the controller of this image is still the controller."""
    if not operations:
        return ()
    epoch = _epoch(image)
    return (Check(ControllerEpochNode.path, epoch[1]), *operations)


def fenced_from_deletions(
    image: ClusterImage, operations: Sequence[Operation]
) -> tuple[Operation, ...]:
    """As `fenced`, for what is written to topics: also behind a check that none was removed since.

    A topic that was made anew has the paths of the former one of its name, and its nodes begin with
    the same versions. Versions alone would let a decision about the former topic pass.
    """
    if not operations or image.deletions_version is None:
        return fenced(image, operations)
    return fenced(image, (Check(DELETIONS, image.deletions_version), *operations))


def controller_epoch(image: ClusterImage) -> int:
    """The epoch that elections of this controller carry."""
    return _epoch(image)[0]


def duplicates(items: Iterable[Item]) -> set[Item]:
    """What occurs more than once."""
    return {item for item, count in Counter(items).items() if count > 1}


def refuse_duplicate(item: object, repeated: Container[object]) -> None:
    """Raise INVALID_REQUEST for what the request names more than once (Kafka does, for all)."""
    if item in repeated:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, "The request names this resource more than once."
        )


def existing_partition(image: ClusterImage, key: TopicPartition) -> PartitionImage:
    """The partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    partition = image.partition(key)
    if partition is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {key}.")
    return partition


def check_partitions_per_request(count: int) -> None:
    """Raise POLICY_VIOLATION, as Kafka does, for what would be too much to write at once."""
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions.",
        )


def _epoch(image: ClusterImage) -> tuple[int, int]:
    if image.controller_epoch is None:
        raise InvariantViolated("A controller decides although there never was an election.")
    return image.controller_epoch.value, image.controller_epoch.version
