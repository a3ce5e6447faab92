"""Programs that consume, transform and produce: each record is copied once, whatever happens.

`client copier k1 id=k1 from=t from-partition=0 topic=u partition=0 version=2 dies=5 sleeps=5`

A copier asks how far it was (KIP-447: it waits for its predecessor's transaction), reads committed
records from there, and writes their copies and how far it was now in one transaction. It dies and
sleeps as `transactional` does. A copy's value names its source: `k1-17=p1-3`.

That every record up to the stored offset has one copy, and no other has any (I-36), is judged when
all is over (`not_copied_once`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple

from strandline.client.channel import RequestFailed
from strandline.client.fetching import (
    FetchFrom,
    FetchSettings,
    Isolation,
    answers_by_partition,
    fetch_request,
    records_of,
)
from strandline.errors import CorruptRecords, ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.records.record import Record
from strandline.sim.clients.batches import WALL_MS, RecordedBatch, value_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.transaction_run import TransactionRun
from strandline.sim.clients.transactional import Transactional
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import Event, Partition, Polled, Sent, Value
from strandline.sim.plan import ClientSpec
from strandline.types import NO_OFFSET, Offset, TopicPartition

_SETTINGS: Final = FetchSettings(isolation=Isolation.READ_COMMITTED)
_MAX_WAIT_MS: Final = 100
_AGAIN_US: Final = 50_000
_RECORDS_MAX: Final = 8
_OF: Final = b"="


class Copied(NamedTuple):
    """The progress that a copier reports: everything below `stored` is copied."""

    name: str
    source: TopicPartition
    target: TopicPartition
    stored: int


class Copier(Transactional):
    """See the module."""

    kind: ClassVar[str] = "copier"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.source = TopicPartition(options.text("from"), options.number("from-partition", 0))
        self.target = options.partitions()[0]
        self.stores = True
        self.is_void = False
        """Whether records of the source were deleted before they were read."""
        self._read: dict[TransactionRun, list[Record]] = {}
        self._made = 0

    @property
    def copied(self) -> Copied | None:
        """Its report at the end; None if its progress is unknown."""
        if self.stored is None or self.is_void:
            return None
        return Copied(self.name, self.source, self.target, self.stored)

    def prepare(self, run: TransactionRun) -> None:
        """See `Transactional`."""
        self.ask_offset(run, partial(self._fetch, run))

    def batches_of(self, run: TransactionRun) -> int:
        """See `Transactional`: all that was read is one batch."""
        del run
        return 1

    def next_batch(self, run: TransactionRun) -> RecordedBatch:
        """See `Transactional`."""
        batch = RecordedBatch(self.target, self.now_ms)
        values = []
        for record in self._read[run]:
            self._made += 1
            source = value_of(record.value) or b""
            values.append(b"%s-%d%s%s" % (self.name.encode(), self._made, _OF, source))
        batch.values = tuple(values)
        batch.records.extend(Record(NO_OFFSET, WALL_MS, None, value) for value in values)
        return batch

    def store_offset(self, run: TransactionRun) -> None:
        """See `Transactional`."""
        run.send_offset(self._read[run][-1].offset + 1, rises=False)

    # -- Reading -----------------------------------------------------------------------------

    def _fetch(self, run: TransactionRun, offset: int) -> None:
        """Read from there on until there is something to copy."""
        cluster = run.cluster
        if self.is_finishing:
            self.begin(run)
            return
        view, leader = cluster.view(self.source.topic), cluster.leader(self.source)
        connection = None if leader is None else cluster.connection(leader.broker_id, "source")
        if view is None or leader is None or connection is None:
            cluster.keep_fresh()
            self._fetch_later(run, offset)
            return
        wanted = FetchFrom(self.source, view.topic_id, Offset(max(0, offset)), leader.epoch)
        request = fetch_request([wanted], _SETTINGS, _MAX_WAIT_MS)
        then = run.happened(partial(self._fetched, run, connection, wanted))
        cluster.ask(connection, ApiKey.FETCH, request, then)

    def _fetch_later(self, run: TransactionRun, offset: int) -> None:
        self.after(_AGAIN_US, run.happened(partial(self._fetch, run, offset)))

    def _fetched(
        self, run: TransactionRun, connection: Connection, wanted: FetchFrom, outcome: Outcome
    ) -> None:
        offset = wanted.offset
        if isinstance(outcome, RequestFailed) or outcome.error_code != ErrorCode.NONE:
            run.cluster.stale()
            self._fetch_later(run, offset)
            return
        names = {wanted.topic_id: self.source.topic}
        for _, _, data in answers_by_partition(outcome, names):
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.is_void |= data.log_start_offset > offset
                offset = Offset(max(offset, data.log_start_offset))
            elif data.error_code != ErrorCode.NONE:
                run.cluster.stale()
            else:
                try:
                    fetched = records_of(wanted, data, _SETTINGS)
                except CorruptRecords as error:
                    self.sent_corrupt(connection, str(error), self.source)
                    continue
                found = [each for each in fetched.records if each.value is not None]
                if found:
                    self._read[run] = found[: self.random.randint(1, _RECORDS_MAX)]
                    self.begin(run)
                    return
                offset = fetched.next_offset
        self._fetch_later(run, offset)


def not_copied_once(
    copied: Copied,
    events: Sequence[Event],
    last_readers: Iterable[str],
    may_be_gone: Callable[[Value, Partition], bool],
) -> Iterator[str]:
    """The faults in the copies, by what the readers at the end have read."""
    stored = copied.stored
    source, target = _prefix(copied.source), _prefix(copied.target)
    places = {str(each.partition): None for each in events if isinstance(each, Sent | Polled)}
    ours = [each for each in places if each.startswith((source, target))]
    is_whole = len(ours) <= len({source, target}) and not any(
        may_be_gone(b"", each) for each in ours
    )
    if not is_whole:
        return
    readers = set(last_readers)
    copies: Counter[bytes] = Counter()
    due: list[bytes] = []
    for event in events:
        if not isinstance(event, Polled) or event.consumer not in readers:
            continue
        is_source = str(event.partition).startswith(source)
        for offset, value in event.records:
            if not isinstance(value, bytes):
                continue
            name, is_copy, of = value.partition(_OF)
            if is_copy and name.startswith(copied.name.encode() + b"-"):
                copies[of] += 1
            if is_source and offset < stored:
                due.append(value)
    for value in due:
        if copies[value] != 1:
            yield f"{copied.name} has copied {value!r} {copies[value]} times"
    for value in sorted(copies.keys() - set(due)):
        yield f"{copied.name} has copied {value!r}, but had not come so far ({stored})"


def _prefix(at: TopicPartition) -> str:
    """How the places of a partition begin in the history, whichever topic of its name it is of."""
    return f"{at.topic}-{at.partition}:"
