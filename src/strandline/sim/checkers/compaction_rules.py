"""The records that compaction may remove from a log, and must keep: I-36 and I-44.

A reader of a compacted log from its start must come to the same newest value of every key as one
that read everything that was ever written. So a log is compared, when a cleaned segment has taken
its place, with what it was just before (I-44); and in the end with all that was committed (I-36).
A tombstone may go when its horizon is over: a key without a value is as good as no key. A replica
that comes back after that never hears of it from its leader and keeps the older value, as in Kafka:
`delete.retention.ms` is how long a reader, followers included, may stay away.

That survivors stand where they stood, in the same batch of the same epoch, is for `batches` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from strandline.records.control import ControlType
from strandline.sim.checkers.batches import Batch, Records, Remains
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings
from strandline.types import TopicId

_ABORT: Final = int(ControlType.ABORT).to_bytes(2, "big")
"""Behind two bytes of version in the key of a control record."""


class Newest(NamedTuple):
    """The last that a log says of one key."""

    offset: int
    value: bytes | None
    horizon_ms: int | None
    """From when on a tombstone may go; None while no cleaner has come by."""


class Content(NamedTuple):
    """The contents of a log at some moment."""

    batches: tuple[Batch, ...]
    remains: Mapping[int, Remains]


def content_of(model: LogModel) -> Content:
    """The present contents of the log, by its model."""
    return Content(tuple(model.batches), dict(model.remains))


class CompactionRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._gone: set[tuple[TopicId, int, int]] = set()
        """Tombstones that rightly went from some log: topic, partition and offset."""

    def check_swap(
        self,
        model: LogModel,
        before: Content,
        latest_ms: int,
        was_committed: Callable[[Batch], bool],
    ) -> None:
        """I-44: the model has read a log anew in which cleaned segments took their places.

        `latest_ms` is the latest wall time of the broker: the cleaner had none that is later.
        `was_committed` says of a batch whether a leader has called it that.
        """
        after = content_of(model)
        if after == before:
            return
        self._findings.counters["swaps"] += 1
        active = model.log.active.base_offset
        there = {id(batch) for batch in after.batches}
        for batch in before.batches:
            is_gone = id(batch) not in there
            was = _records(batch, before.remains)
            if not is_gone and _records(batch, after.remains) == was:
                continue
            # A follower's high watermark may fall between the plan and the swap, at an election.
            is_kept = batch.next_offset > model.log.high_watermark and not was_committed(batch)
            if is_kept or batch.next_offset > active:
                self._add(model, f"has lost records of {batch}, which was not to be compacted yet")
                return
            if is_gone:
                _note_gone(batch, before)
            self._findings.counters["batches compacted"] += 1
        start = model.log.log_start_offset
        self._compare(model, before, after, latest_ms, start)

    def check_recovered(
        self, model: LogModel, former: LogModel, latest_ms: int, former_start: int, *, is_same: bool
    ) -> None:
        """A start may have finished a swap that the process before had begun.

        `former_start` is where the log started for that process: the start that was written down
        may be lower. `is_same`: nothing else may have happened to the log meanwhile, but that it
        has what the process wrote in the event in which it died.
        """
        self.note_gone(model, content_of(former), former.high_watermark)
        if is_same:
            before, after = content_of(former), content_of(model)
            known = tuple(batch for batch in after.batches if batch.base_offset < former.end)
            after = Content(known, after.remains)
            start = max(former_start, model.log.log_start_offset)
            self._compare(model, before, after, latest_ms, start)

    def note_gone(self, model: LogModel, before: Content, high_watermark: int) -> None:
        """What the log had before and has no more may be missing elsewhere, too, as far as it was
        compaction that took it."""
        there = set(map(id, model.batches))
        first = model.log.segments.first.base_offset
        limit = min(high_watermark, model.log.active.base_offset)
        for batch in before.batches:
            if id(batch) not in there and first <= batch.base_offset and batch.next_offset <= limit:
                _note_gone(batch, before)
        after = _newest(content_of(model))
        for key, was in _newest(before).items():
            if was.value is None and key not in after:
                self._note_tombstone(model, was.offset)

    def check_history(self, partition: PartitionModel, model: LogModel) -> None:
        """I-36: the log says of every key what all that was committed says."""
        written = Content(tuple(partition.committed), {})
        if any(batch.records is None for batch in written.batches):
            return  # The topic has not always been a compacted one.
        self._findings.counters["compacted logs compared"] += 1
        said, says = _newest(written), _newest(content_of(model))
        for key, newest in said.items():
            if newest.offset < model.log.log_start_offset:
                continue
            found = says.get(key)
            if newest.value is None and (
                found is None
                or (found.offset < newest.offset and self._is_gone(partition, newest.offset))
            ):
                continue
            if found is None or (found.offset, found.value) != (newest.offset, newest.value):
                self._findings.add(
                    "I-36",
                    f"{model} has {_words(found)} for {key!r}, but {_words(newest)} was committed",
                    model.at,
                )
                return

    def _is_gone(self, partition: PartitionModel, offset: int) -> bool:
        return (partition.topic_id, partition.at.partition, offset) in self._gone

    def _compare(
        self,
        model: LogModel,
        before: Content,
        after: Content,
        latest_ms: int,
        log_start: int,
    ) -> None:
        newest_before, newest_after = _newest(before), _newest(after)
        for key, was in newest_before.items():
            found = newest_after.get(key)
            if was.offset < log_start:
                continue
            if found is None and was.value is None:
                self._findings.counters["tombstones compacted"] += 1
                if was.horizon_ms is None or was.horizon_ms > latest_ms:
                    self._add(
                        model,
                        f"has dropped the tombstone of {key!r} at {was.offset}, which was to stay "
                        f"until {was.horizon_ms} (it is {latest_ms})",
                    )
                    return
                self._note_tombstone(model, was.offset)
            elif found is None or (found.offset, found.value) != (was.offset, was.value):
                if _may_be_followed(was, found, before):
                    continue
                self._add(model, f"has {_words(found)} for {key!r}, and had {_words(was)}")
                return
        for key, found in newest_after.items():
            if key not in newest_before and not _is_unread(found, before):
                self._add(model, f"has {_words(found)} for {key!r}, which was gone")
                return

    def _note_tombstone(self, model: LogModel, offset: int) -> None:
        self._gone.add((model.log.topic_id, model.at.partition, offset))

    def _add(self, model: LogModel, what: str) -> None:
        self._findings.add("I-44", f"{model} was compacted and {what}", model.at)


def _note_gone(batch: Batch, before: Content) -> None:
    batch.compacted_away = True
    last = next((each for each in reversed(before.batches) if _is_by(each, batch)), batch)
    batch.was_followed |= last is not batch


def _is_unread(found: Newest, content: Content) -> bool:
    """Whether nothing is known of the batch that has it: the topic was not a compacted one then."""
    return any(
        batch.base_offset <= found.offset < batch.next_offset
        and _records(batch, content.remains) is None
        for batch in content.batches
    )


def _may_be_followed(was: Newest, found: Newest | None, content: Content) -> bool:
    """Whether a later record of the key may be in a batch of which nothing is known. Batches at the
    start of a log are read when they are compacted, those behind them perhaps never."""
    if found is not None:
        return found.offset > was.offset and _is_unread(found, content)
    return any(
        batch.base_offset > was.offset and _records(batch, content.remains) is None
        for batch in content.batches
    )


def _is_by(one: Batch, other: Batch) -> bool:
    return one.writer.producer_id == other.writer.producer_id


def _records(batch: Batch, remains: Mapping[int, Remains]) -> Records | None:
    found = remains.get(batch.base_offset)
    return batch.records if found is None else found.records


def _newest(content: Content) -> dict[bytes, Newest]:
    """Of every key the record with the highest offset, but for those of transactions that were
    aborted. Records without a key say nothing. What is still open counts: it must stay."""
    found: dict[bytes, Newest] = {}
    pending: dict[int, dict[bytes, Newest]] = {}
    for batch in content.batches:
        remains = content.remains.get(batch.base_offset)
        horizon_ms = None if remains is None else remains.horizon_ms
        records = _records(batch, content.remains) or {}
        producer_id = batch.writer.producer_id
        if batch.is_control:
            ended = pending.pop(producer_id, {})
            if not any(_aborts(record.key) for record in records.values()):
                _take_over(found, ended)
            continue
        said = pending.setdefault(producer_id, {}) if batch.is_transactional else found
        for offset in sorted(records):
            record = records[offset]
            if record.key is not None:
                said[record.key] = Newest(offset, record.value, horizon_ms)
    for undecided in pending.values():
        _take_over(found, undecided)
    return found


def _take_over(found: dict[bytes, Newest], said: Mapping[bytes, Newest]) -> None:
    for key, newest in said.items():
        known = found.get(key)
        if known is None or known.offset < newest.offset:
            found[key] = newest


def _aborts(key: bytes | None) -> bool:
    """Whether a control record says that its transaction was aborted."""
    return key is not None and key[2:4] == _ABORT


def _words(newest: Newest | None) -> str:
    if newest is None:
        return "nothing"
    value = "a tombstone" if newest.value is None else repr(newest.value[:20])
    return f"{value} at {newest.offset}"
