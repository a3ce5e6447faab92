"""Whether a log may be used: it may have failed, or have been closed."""

from __future__ import annotations

from strandline.errors import StorageError
from strandline.storage.files import LostWrites, NoRoom
from strandline.types import TopicPartition


class LogHealth:
    """Why a log takes no more appends, if it does not.

    - `failure`: set once, when a write could not be taken back: what is on disk and what is in
      memory may differ (KAFKA-10778).
    - `may_reload`: it failed because an operation broke off for want of something: the files are as
      after a crash, and may be loaded again. Not if a sync failed: what is read may be what only
      the page cache has.
    - `is_refused`: it failed when it was loaded, because it has what is not read here. Nothing of
      it is used, and its files stay as they are.
    - `closed`: the handles were given up, or the partition was deleted; never again open.
    """

    __slots__ = ("closed", "failure", "is_refused", "may_reload", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.failure: str | None = None
        self.may_reload = False
        self.is_refused = False
        self.closed = False

    def fail(self, reason: str, cause: StorageError | None = None) -> None:
        """Take no more appends. The first reason stays."""
        if self.failure is None:
            self.failure = reason
            self.may_reload = isinstance(cause, NoRoom)
        elif isinstance(cause, LostWrites):
            self.may_reload = False

    def refuse(self, reason: str) -> None:
        """Leave the files as they are."""
        self.is_refused = True
        self.fail(reason)

    def close(self) -> None:
        """Take no more appends, without anything being wrong."""
        self.closed = True

    def check_usable(self) -> None:
        """Raise `StorageError` when the log failed or was closed."""
        if self.failure is not None:
            raise StorageError(f"The log of {self.topic_partition} failed: {self.failure}")
        if self.closed:
            raise StorageError(f"The log of {self.topic_partition} is closed.")
