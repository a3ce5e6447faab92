"""What a log directory needs of a log: where it lies in the tables, and how it is closed."""

from __future__ import annotations

from typing import Protocol

from strandline.storage.closing_logs import Closable
from strandline.types import Offset, TopicId, TopicPartition


class PartitionLog(Closable, Protocol):
    """What a log directory needs of a log."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def is_refused(self) -> bool:
        """Nothing of it is used, and its files stay as they are: there is nothing to close."""

    @property
    def recovery_point(self) -> Offset:
        """Everything below is synced."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...
