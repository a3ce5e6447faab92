"""What a producer's queues tell their driver of batches."""

from __future__ import annotations

from typing import Protocol, TypeVar

from strandline.client.delivery import Batch
from strandline.errors import ProtocolError
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.types import Offset, TopicId

B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)


class ProduceWatcher(Protocol[B_contra]):
    """Hears what happens to batches."""

    def answered(
        self,
        batch: B_contra,
        topic_id: TopicId,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """A broker spoke of a batch, whatever it said. What it means is heard next. The topic's id
        is that in the answer, if it has one."""

    def failed(self, batch: B_contra, error: ProtocolError) -> None:
        """An attempt failed, and the batch is tried again."""

    def number_refused(self, batch: B_contra, error: ProtocolError) -> None:
        """A broker refused the number of a batch before which there was nothing in doubt."""

    def finished(self, batch: B_contra, base_offset: Offset, error: ProtocolError | None) -> None:
        """The outcome, before the batch lets its contents go."""
