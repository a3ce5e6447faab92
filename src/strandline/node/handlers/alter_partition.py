"""AlterPartition: the controller answers the leaders (KIP-497)."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.cluster.controller import (
    Decision,
    InSyncProposal,
    PartitionAltered,
    Refusal,
    alter_partitions,
)
from strandline.cluster.image import ClusterImage
from strandline.errors import ProtocolError
from strandline.node.controller_loop import ControllerLoop
from strandline.node.handlers.batching import InBatches
from strandline.node.in_sync_wire import proposals_of, response_of
from strandline.node.request import Request
from strandline.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from strandline.types import BrokerId, Instant, TopicId


class AlterPartitionHandler:
    """Answers AlterPartition, versions 2 and 3; NOT_CONTROLLER where there is no controller."""

    def __init__(self, controller: ControllerLoop) -> None:
        self._controller_loop = controller

    def handle(self, request: Request[AlterPartitionRequest], now: Instant) -> None:
        """Change in-sync sets as their leaders propose, where that is safe."""
        body = request.body

        def decide(
            image: ClusterImage, some: Sequence[InSyncProposal]
        ) -> Decision[PartitionAltered]:
            return alter_partitions(
                image,
                broker_id=BrokerId(body.broker_id),
                broker_epoch=body.broker_epoch,
                items=some,
                policy=self._controller_loop.policy,
            )

        def done(results: Sequence[PartitionAltered], at: Instant) -> None:
            del at
            request.reply(response_of(results))

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            request.reply(AlterPartitionResponse(error_code=error.code))

        def refused(item: InSyncProposal, refusal: Refusal) -> PartitionAltered:
            return PartitionAltered(item.topic_id, item.partition, refusal)

        proposals = proposals_of(body, request.version)
        InBatches(
            self._controller_loop, decide, proposals, key=_partition_of, refused=refused
        ).carry_out(done=done, failed=failed, now=now)


def _partition_of(item: InSyncProposal) -> tuple[TopicId, int]:
    return item.topic_id, item.partition
