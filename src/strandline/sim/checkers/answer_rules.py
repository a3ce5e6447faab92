"""Rules for the answers of brokers to clients: I-26, I-47, I-56.

An answer to a fetch names ranges of log files. At the moment at which it is sent each of them must
consist of whole batches that match their checksums and lie below what the replica calls committed.
A follower's high watermark may have fallen since the answer was made; what is committed has not.

An answer to a look-up by time names the first record that is at least as new as some time, or the
newest one. While the question was on its way the log may have grown, and its front may have been
deleted. So the answer is compared with what was there all that time: the records from the present
log start up to the high watermark of when the question was asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from crc32c import crc32c

from strandline.node.effects import Chunk
from strandline.records.batch import ATTRIBUTES_AT, LOG_OVERHEAD
from strandline.sim.checkers.batches import header_fields, peek, records_in
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel, PartitionModels
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.storage_rules import position_in
from strandline.sim.checkers.violations import Findings
from strandline.sim.history.lookups import NEWEST, TimeAnswer
from strandline.storage.log_reader import LogSlice
from strandline.types import Offset


class TimeRules:
    """See the module."""

    def __init__(self, findings: Findings, partitions: PartitionModels) -> None:
        self._findings = findings
        self._partitions = partitions

    def check(self, answer: TimeAnswer) -> None:
        """A client has got this answer just now."""
        partition = self._partitions.of(answer.at, answer.led.topic_id)
        model = partition.models.get(answer.led.broker_id)
        if (
            model is None
            or not (model.is_live and model.is_current and model.is_followed)
            or 0 <= answer.offset < model.log_start
        ):
            return
        self._findings.counters["look-ups by time"] += 1
        problem = _what_is_there(model, answer)
        if problem is None and answer.asked != NEWEST:
            problem = _what_was_passed_over(model, answer)
        elif problem is None:
            problem = _what_is_newer(model, answer)
        if problem is not None:
            what = "the newest record" if answer.asked == NEWEST else f"time {answer.asked}"
            self._findings.add(
                "I-56",
                f"{model}: who asked for {what} was told offset {answer.offset} (time "
                f"{answer.timestamp}), but {problem}",
                model.at,
            )


def _what_is_there(model: LogModel, answer: TimeAnswer) -> str | None:
    """The mistake in an answer that named this record; None without one."""
    if answer.offset < 0:
        return None
    if answer.timestamp < answer.asked:
        return "that is older"
    found = dict(_times(model, answer.offset, answer.offset + 1, -1))
    if model.is_compacted and answer.offset not in found:
        return None  # taken away since
    timestamp = found.get(answer.offset)
    return None if timestamp == answer.timestamp else f"its time there is {timestamp}"


def _what_was_passed_over(model: LogModel, answer: TimeAnswer) -> str | None:
    """Whether a record before the one that was named is new enough."""
    stop = answer.high_watermark if answer.offset < 0 else answer.offset
    for offset, timestamp in _times(model, model.log_start, stop, answer.asked):
        if timestamp >= answer.asked:
            return f"offset {offset} has the time {timestamp}"
    return None


def _what_is_newer(model: LogModel, answer: TimeAnswer) -> str | None:
    """Whether a newer record was there all the time. If the newest of all is not committed yet, no
    record is named, as in Kafka."""
    if answer.offset < 0:
        return None
    newer = answer.timestamp + 1
    for offset, timestamp in _times(model, model.log_start, answer.high_watermark, newer):
        if timestamp >= newer:
            return f"offset {offset} has the time {timestamp}"
    return None


def _times(model: LogModel, start: int, stop: int, least: int) -> Iterator[tuple[int, int]]:
    """Offset and time of the records in [start, stop), of batches that have one as new as that."""
    for segment in model.log.segments.since(Offset(max(0, start))):
        if segment.base_offset >= stop:
            return
        first = max(0, model.index_at(max(start, segment.base_offset) + 1) - 1)
        above = model.log.segments.above(segment.base_offset)
        last = model.index_at(min(stop, above[0].base_offset) if above else stop)
        for index in range(first, last):
            batch = model.batches[index]
            if batch.base_offset < segment.base_offset or model.newest_in(batch) < least:
                continue
            position = position_in(model, segment, index)
            records = records_in(peek(segment.log, position, model.size_of(index)), 0)
            for offset, record in (records or {}).items():
                if start <= offset < stop:
                    yield offset, record.timestamp


class ServingRules:
    """See the module."""

    def __init__(self, findings: Findings, scope: Scope) -> None:
        self._findings = findings
        self._scope = scope

    def check_sent(
        self,
        chunks: Sequence[Chunk],
        models: Mapping[str, tuple[LogModel, PartitionModel]],
    ) -> None:
        """A client is sent these; `models` are the sender's logs by their directories."""
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                found = models.get(chunk.file.path.rpartition("/")[0])
                if found is not None:
                    self._check_slice(chunk, *found)

    def _check_slice(self, chunk: LogSlice, model: LogModel, partition: PartitionModel) -> None:
        log = model.log
        limit: int = log.high_watermark
        if model.replica is None or not model.replica.is_leading:
            if self._scope.may_lose:
                return
            limit = max(limit, partition.committed_end)
        data, position = peek(chunk.file, chunk.position, chunk.length), 0
        while position < len(data):
            fields = header_fields(data, position)
            if fields is None:
                break  # cut since, or the answer ends inside a batch as it may
            size = fields[1] + LOG_OVERHEAD
            if fields[0] + fields[6] >= limit:
                self._findings.add(
                    "I-26",
                    f"{model} sends a client the batch {fields[0]}-{fields[0] + fields[6]}, but "
                    f"its high watermark is {log.high_watermark}",
                    model.at,
                )
                return
            crc = crc32c(memoryview(data)[position + ATTRIBUTES_AT : position + size])
            if crc != fields[4]:
                self._findings.add(
                    "I-47",
                    f"{model} sends a client the batch at {fields[0]}, which does not match its "
                    f"checksum",
                    model.at,
                )
                return
            position += size
        self._findings.counters["answers with records"] += 1
