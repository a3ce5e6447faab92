"""AlterPartition: the controller answers the leaders (KIP-497)."""

from __future__ import annotations

from functools import partial

from strandline.cluster.controller import PartitionAltered, alter_partitions
from strandline.errors import ProtocolError
from strandline.node.in_sync_wire import proposals_of, response_of
from strandline.node.office import Office
from strandline.node.request import Request
from strandline.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from strandline.types import BrokerId, Instant


class AlterPartitionHandler:
    """Answers AlterPartition, versions 2 and 3; NOT_CONTROLLER where there is no controller."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def handle(self, request: Request[AlterPartitionRequest], now: Instant) -> None:
        """Change in-sync sets as their leaders propose, where that is safe."""
        body = request.body

        def done(results: tuple[PartitionAltered, ...], at: Instant) -> None:
            del at
            request.reply(response_of(results))

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            request.reply(AlterPartitionResponse(error_code=error.code))

        decide = partial(
            alter_partitions,
            broker_id=BrokerId(body.broker_id),
            broker_epoch=body.broker_epoch,
            items=proposals_of(body, request.version),
            policy=self._office.policy,
        )
        self._office.carry_out(decide, done=done, failed=failed, now=now)
