"""The bytes of one partition's range, fetch after fetch, whatever happens to its leaders.

This file knows fetch answers and what each of their errors means for an exact range. It must not
know records: it looks at batch headers alone, to learn from where to go on.

Theory: the next fetch is on its way while the caller works on the answer before it. What may mend
itself (no leader, a lost connection, metadata behind) is tried again until nothing has come for the
reader's patience; what cannot is a `ReadError`, at once if the log says so, and after a moment if
it is only metadata that says so, because a broker that has just started may know old ones.
"""

from __future__ import annotations

from typing import Final

from strandline.client.aborted import AbortedFilter
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.fetching import (
    FetchFrom,
    FetchSettings,
    Isolation,
    answers_by_partition,
    fetch_request,
    highest_version,
)
from strandline.client.offsets import EARLIEST, LATEST, list_offsets
from strandline.client.pending import Pending
from strandline.client.refusal import check
from strandline.client.retry import is_worth_waiting_for
from strandline.errors import CorruptRecords, ErrorCode, MalformedFrame, ProtocolError
from strandline.lakehouse.reading.errors import RangeGone, RangeNotReached, TopicReplaced
from strandline.lakehouse.reading.settings import OffsetRange, ReadSettings
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse, PartitionData
from strandline.records.columns import whole_batches
from strandline.types import NO_TOPIC_ID, Offset, ProducerId

_FIRST_FETCH_BYTES: Final = 1024 * 1024
"""A range may be a few records of a large partition: fetches grow as it turns out to be more."""
_MAX_WAIT_MS: Final = 500
_TOPIC_GONE_AFTER_MS: Final = 5000
_METADATA_MAY_BE_BEHIND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class RangeFetches:
    """See the module. `next_offset` is behind everything that came."""

    def __init__(
        self, cluster: ClusterClient, settings: ReadSettings, planned: OffsetRange
    ) -> None:
        self.next_offset = planned.start
        self._cluster = cluster
        self._settings = settings
        self._planned = planned
        self._partition = planned.topic_partition
        self._fetch_bytes = min(_FIRST_FETCH_BYTES, settings.fetch_bytes)
        self._pending: tuple[Connection, Pending, FetchFrom] | None = None
        self._since_ms = 0
        self._backoff = cluster.backoff(settings.patience_ms)

    def next_answer(self) -> tuple[memoryview, AbortedFilter | None]:
        """The next bytes, and what a committed reader must skip of them. Waits.

        Raises `ReadError`, `CorruptRecords`, or the `ProtocolError` that no patience can mend.
        """
        self._start_waiting()  # the caller may have worked on the last answer for long
        while True:
            try:
                data = self._take_answer()
            except ProtocolError as error:
                self._pending = None
                self._wait_out(error)
                continue
            buffer = data.records if isinstance(data.records, memoryview) else memoryview(b"")
            _, next_offset = whole_batches(buffer)
            if next_offset <= self.next_offset:
                self._nothing_new(buffer, data)
                continue
            self.next_offset = next_offset
            self._fetch_bytes = min(2 * self._fetch_bytes, self._settings.fetch_bytes)
            self._send_ahead()
            return buffer, self._aborted(data)

    # -- Asking ------------------------------------------------------------------------------

    def _send_ahead(self) -> None:
        if self.next_offset >= self._planned.end:
            return
        try:
            self._send()
        except ProtocolError:
            self._pending = None  # met again, and dealt with, when the answer is wanted

    def _send(self) -> None:
        topic = self._cluster.topic(self._partition.topic)
        expected = self._planned.topic_id
        if expected is not None and topic.topic_id not in (expected, NO_TOPIC_ID):
            raise ProtocolError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"Topic '{topic.name}' has another id now."
            )
        info = self._cluster.partition(self._partition)
        asked = FetchFrom(
            self._partition, topic.topic_id, Offset(self.next_offset), info.leader_epoch
        )
        settings = FetchSettings(
            isolation=self._settings.isolation,
            max_bytes=self._fetch_bytes,
            partition_max_bytes=self._fetch_bytes,
        )
        connection = self._cluster.connection_to(info.leader)
        pending = connection.send(
            ApiKey.FETCH,
            fetch_request([asked], settings, _MAX_WAIT_MS),
            highest=highest_version([asked]),
        )
        self._pending = (connection, pending, asked)

    def _take_answer(self) -> PartitionData:
        if self._pending is None:
            self._send()
        if self._pending is None:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "No fetch is on its way.")
        connection, pending, asked = self._pending
        self._pending = None
        try:
            response = connection.result(pending, FetchResponse)
        except MalformedFrame as error:
            raise ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        check(response.error_code, None, "the fetch")
        for partition, _, data in answers_by_partition(
            response, {asked.topic_id: self._planned.topic}
        ):
            if partition == self._partition:
                check(data.error_code, None, f"partition {partition}")
                return data
        raise ProtocolError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "A broker's answer lacks the partition that was asked."
        )

    def _aborted(self, data: PartitionData) -> AbortedFilter | None:
        """What to skip; None where nothing was aborted, which is nearly always."""
        if self._settings.isolation is not Isolation.READ_COMMITTED:
            return None
        if not data.aborted_transactions:
            return None
        return AbortedFilter(
            (ProducerId(each.producer_id), Offset(each.first_offset))
            for each in data.aborted_transactions
        )

    # -- What goes wrong ---------------------------------------------------------------------

    def _start_waiting(self) -> None:
        self._since_ms = self._cluster.clock.monotonic_ms()
        self._backoff = self._cluster.backoff(self._settings.patience_ms)

    def _wait_out(self, error: ProtocolError) -> None:
        """Wait before another try; raises what no other try can mend."""
        is_behind = error.code in _METADATA_MAY_BE_BEHIND
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_there()
        elif not is_behind and not is_worth_waiting_for(error):
            raise error
        self._cluster.forget([self._partition.topic])
        waited = self._backoff.maybe_wait()
        still_ms = self._cluster.clock.monotonic_ms() - self._since_ms
        if is_behind and (not waited or still_ms >= _TOPIC_GONE_AFTER_MS):
            self._raise_topic_gone(error)
        if not waited:
            raise self._not_reached(str(error)) from error

    def _check_there(self) -> None:
        """Raise `RangeGone` if the log does not have the next offset."""
        partition = self._partition
        start = list_offsets(self._cluster, {partition: EARLIEST})[partition].offset
        end = list_offsets(self._cluster, {partition: LATEST})[partition].offset
        if not start <= self.next_offset <= end:
            raise RangeGone(partition, self.next_offset, start, end)

    def _raise_topic_gone(self, error: ProtocolError) -> None:
        expected = self._planned.topic_id
        known = self._cluster.view.topics.get(self._planned.topic)
        found = None if known is None else known.topic_id
        if expected is None or found == expected:
            raise error
        raise TopicReplaced(self._planned.topic, expected, found) from error

    def _nothing_new(self, buffer: memoryview, data: PartitionData) -> None:
        """An answer without a whole batch behind the offset: the log does not get there yet."""
        if buffer and whole_batches(buffer)[0] == 0:
            raise CorruptRecords(
                f"Partition {self._partition} cannot be read beyond offset {self.next_offset}: a "
                f"fetch returned {len(buffer)} bytes that begin with no whole record batch."
            )
        if not self._backoff.maybe_wait():
            raise self._not_reached(
                f"It has the high watermark {data.high_watermark} and the last stable offset "
                f"{data.last_stable_offset}."
            )

    def _not_reached(self, last: str) -> RangeNotReached:
        return RangeNotReached(
            self._partition,
            self.next_offset,
            self._planned.end,
            self._settings.patience_ms,
            last,
        )
