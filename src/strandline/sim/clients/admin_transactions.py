"""An operator's end of a transaction that hangs, as `kafka-transactions --abort` gives it."""

from __future__ import annotations

from typing import Any

from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from strandline.sim.clients.admin import AdminOperation, Request, Script, partition_named, verdict


def first_marker(answer: Any) -> int:
    """The error of the only marker in its only partition."""
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


class AbortTransaction(AdminOperation):
    """`abort-transaction t-0 producer=7 epoch=1 coordinator=3`: the marker, at the leader."""

    def topics(self) -> list[str]:
        """See `AdminOperation`."""
        return [partition_named(self.action.word(0)).topic]

    def script(self) -> Script:
        """See `AdminOperation`."""
        at = partition_named(self.action.word(0))
        topic = WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])
        marker = WritableTxnMarker(
            producer_id=self.action.number("producer", 0),
            producer_epoch=self.action.number("epoch", 0),
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(0, self.action.number("coordinator", 0)),
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = yield Request(ApiKey.WRITE_TXN_MARKERS, request, first_marker, leader_of=at)
        return verdict(first_marker(answer))
