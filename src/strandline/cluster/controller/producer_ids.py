"""Giving out producer ids in blocks, so that each is used once in the life of the cluster.

A broker takes ids from a block of its own without asking any other; what it has not used when it
stops is lost. The blocks follow each other without gaps (KIP-730).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.cluster.controller.decision import Decision, fenced
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Create, Operation, SetData
from strandline.cluster.znodes import ProducerIdBlockNode
from strandline.cluster.znodes.singles import PRODUCER_ID_BLOCK_SIZE
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, ProducerId

_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`size` ids from `first` on that belong to one broker once the operation is done."""

    first: ProducerId
    size: int


def allocate_producer_ids(image: ClusterImage, broker_id: BrokerId) -> Decision[ProducerIdBlock]:
    """The block after the last one. A refused multi means that another broker got it."""
    stored = image.producer_id_block
    latest = stored.value if stored else None
    first = latest.last + 1 if latest else 0
    last = first + PRODUCER_ID_BLOCK_SIZE - 1
    if last > _LARGEST:
        raise ProtocolError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "The cluster has given out all producer ids."
        )
    data = ProducerIdBlockNode(broker_id, first, last).encode()
    write: Operation = (
        SetData(ProducerIdBlockNode.path, data, stored.version)
        if stored
        else Create(ProducerIdBlockNode.path, data)
    )
    block = ProducerIdBlock(ProducerId(first), PRODUCER_ID_BLOCK_SIZE)
    return Decision((block,), fenced(image, [write]))
