"""Running a table: from its frontier on, through trouble, until it is told to stop.

A run is one query after another. What ends a query is either a verdict (the table is another's, the
log lost records, the topic is gone), and then the run ends with it; or trouble (a worker died, a
broker did not answer), and then the next query begins at the table's frontier. Which of the two it
was is found out by asking the cluster again, as at every start, and not from the text of an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.errors import ProtocolError, StrandlineError
from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.pipeline import log_facts
from strandline.lakehouse.pipeline.batches import RunContext, committed_event
from strandline.lakehouse.pipeline.errors import PipelineError, PipelineFailed
from strandline.lakehouse.pipeline.events import Committed, Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.healing import Healer
from strandline.lakehouse.pipeline.keeping import Keeper
from strandline.lakehouse.pipeline.lag import Lag, lag_of
from strandline.lakehouse.pipeline.options import isolation_of
from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
from strandline.lakehouse.pipeline.patience import Patience
from strandline.lakehouse.pipeline.publishing import Publisher
from strandline.lakehouse.pipeline.query import Attempt
from strandline.lakehouse.pipeline.rounds import Rounds, RoundsQuery
from strandline.lakehouse.pipeline.start_offsets import StartOffsets, start_offsets
from strandline.lakehouse.pipeline.target import Write
from strandline.lakehouse.reading.errors import ReadError
from strandline.lakehouse.scratch_directory import OF_QUERIES, remove_leftovers
from strandline.lakehouse.session_lasting import is_lost
from strandline.lakehouse.session_master import NoSpark
from strandline.lakehouse.session_remote import has_context
from strandline.lakehouse.spark_errors import OF_SPARK, cause_of
from strandline.lakehouse.tables.identity import OffsetRange, TableState
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.written import TaskWrite
from strandline.lakehouse.transforming.given import Transform
from strandline.lakehouse.transforming.utc_session import copy_in_utc
from strandline.lakehouse.transforming.writing import Passage
from strandline.lakehouse.values.registered import client_of
from strandline.schemas.errors import RegistryDown
from strandline.types import Offset, TopicPartition

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.2
_PAUSE_S: Final = 1.0
"""Between a query that failed and the next one."""
_TROUBLE: Final = (
    *OF_SPARK,
    NoSpark,
    ProtocolError,
    ReadError,
    StoreTrouble,
    PipelineFailed,
    RegistryDown,
)
_LASTS_S: Final = 10.0
"""A query that was followed for so long did not fail at its start."""
_STUCK: Final = 3
"""So many attempts in a row that Spark failed: it may be Spark itself that is in no good state. It
remembers for good, for instance, that it could not look up formats when a worker was killed."""
_LAG_PATIENCE_MS: Final = 5_000


class StopRequest(Protocol):
    """Says whether the run is to end."""

    @property
    def is_set(self) -> bool:
        """Once true, it stays so."""


class Runner:
    """See the module. `tell` gets every event, in the thread that calls `run`.

    With `renew` a run survives the end of its JVM: it gives a context with a new session, or None
    if the present one lives; and a new one in any case if it is told that Spark is stuck.
    """

    def __init__(
        self,
        context: RunContext,
        tell: Callable[[Event], None],
        renew: Callable[[bool], RunContext | None] | None = None,
    ) -> None:
        self._context = context
        self._tell = tell
        self._renew = renew
        self._frontier: dict[TopicPartition, Offset] = {}
        self._commits = 0
        self._rows = 0
        self._dead = 0
        self._dead_share = 0.0
        self._failures = 0
        """Of Spark, in a row."""
        self._patience = Patience(context.options.patience_s, tell)
        self._healer = self._made_healer()
        self._keeper = Keeper(self._store_beside(), context.options, tell)
        bootstrap = context.options.bootstrap
        name = context.spec.name
        security = context.options.config.security
        self._publisher = Publisher(
            bootstrap, name, lambda sentence: tell(Notice(sentence)), security=security
        )
        self._cluster = ClusterClient(
            bootstrap,
            ClientSettings(
                client_id=f"strandline-table-{name}",
                operation_timeout_ms=_LAG_PATIENCE_MS,
                security=security,
            ),
        )

    def run(self, stop: StopRequest) -> Stopped:
        """Until everything there is committed (`once`), or `stop` is set and a last batch is.

        Raises `PipelineError` and `TableError`: what was committed stays, and the next run goes on
        from there.
        """
        remove_leftovers(OF_QUERIES)
        try:
            self._run(stop)
            stopped = Stopped(
                self._commits,
                self._rows,
                self._lag(),
                self._dead,
                self._dead_share,
                self._dead_share > self._context.options.dead_share,
            )
            self._tell(stopped)
            return stopped
        finally:
            self._publisher.close()
            self._cluster.close()

    def _run(self, stop: StopRequest) -> None:
        once = self._context.options.once
        while True:
            was_set = stop.is_set
            try:
                self._ensure_spark()
                self._one_query(stop, available_now=once or was_set, is_last=was_set)
            except _TROUBLE as error:
                sentence = _sentence(error)
                if (
                    self._patience.is_over()
                    or was_set
                    or (self._renew is None and is_lost(self._context.spark))
                ):
                    if isinstance(error, PipelineError):
                        raise
                    raise self._patience.given_up(sentence) from error
                self._failures += isinstance(error, OF_SPARK)
                self._patience.tell(sentence)
                log.debug("The query ended", exc_info=error)
                _pause(stop)
                continue
            if once or was_set or (stop.is_set and self._has_everything()):
                self._keeper.maybe_compact()
                if once:
                    self._keeper.maybe_keep()  # when it has all that it is to have
                return

    def _ensure_spark(self) -> None:
        """A new session, if the JVM of the present one is gone, or it fails again and again.

        Its context has a store of its own, too: a commit that was under way when the JVM died goes
        on in its thread, and ends as one of another process would.
        """
        is_stuck = self._failures >= _STUCK
        context = None if self._renew is None else self._renew(is_stuck)
        if context is not None:
            self._context = context
            self._healer = self._made_healer()
            self._keeper.store = self._store_beside()
            self._failures = 0
            ended = "Spark's Java process" if has_context(context.spark) else "Its session"
            why = f"Spark failed {_STUCK} times" if is_stuck else f"{ended} had ended"
            self._tell(Notice(f"{why}; there is a new one."))

    def _one_query(self, stop: StopRequest, *, available_now: bool, is_last: bool) -> None:
        begin = self._begin()
        self._tell(Started(len(begin.starts), sum(self._frontier.values()), self._lag()))
        is_driver = has_context(self._context.spark)
        attempt = (Attempt if is_driver else Rounds)(self._context, begin)
        try:
            query = attempt.start(available_now=available_now)
            try:
                self._follow(query, attempt, stop, is_last=is_last)
            finally:
                _end(query)
                self._take(attempt)
        finally:
            attempt.close()

    def _made_healer(self) -> Healer:
        transform = self._context.transform
        through = None if transform is None else partial(self._write_through, transform)
        return Healer(self._store_beside(), self._tell, through)

    def _write_through(
        self, transform: Transform, stage: Write, state: TableState
    ) -> list[TaskWrite]:
        """In a session for this one replay: the one before may have ended with its JVM."""
        session = copy_in_utc(self._context.spark)
        return Passage(session, self._context.spec, transform).write(stage, state)

    def _store_beside(self) -> TableStore:
        """For what is done beside the batches, which are committed in another thread."""
        store = open_store(self._context.spec)
        store.carry_out_by(carrier_of(self._context.spark))
        return store

    def _begin(self) -> StartOffsets:
        """Where to begin; the frontier is known and published afterwards."""
        context = self._context
        if context.spec.registry is not None:
            client_of(context.spec.registry).check()
        self._healer.maybe_heal()
        context.store.settle()
        state = context.store.state()
        facts = log_facts.ask(context.reading, context.spec.topics, state.frontiers)
        begin = start_offsets(state.frontiers, facts, accepts_loss=context.options.accepts_loss)
        if begin.lost:
            self._declare(begin.lost)
        self._frontier = begin.reached(context.store.state().frontiers)
        self._publisher.publish(self._frontier)
        return begin

    def _declare(self, lost: tuple[OffsetRange, ...]) -> None:
        """Note in the table what the log no longer has; the frontier moves behind it."""
        began = time.monotonic()
        result = self._context.store.declare_lost(lost)
        self._tell(committed_event(result, lost, time.monotonic() - began))

    def _follow(
        self,
        query: StreamingQuery | RoundsQuery,
        attempt: Attempt | Rounds,
        stop: StopRequest,
        *,
        is_last: bool,
    ) -> None:
        """Wait for the end of a query, or for the moment to end it between two batches."""
        look_s = time.monotonic() + _LASTS_S
        try:
            # It raises what ended the query. Fractions of a second are taken, if not announced.
            while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                self._take(attempt)
                self._healer.maybe_heal()
                self._keeper.maybe_compact()
                if not self._context.options.once:
                    self._keeper.maybe_keep()
                if self._patience.is_tried and time.monotonic() >= look_s:
                    look_s = time.monotonic() + _LASTS_S
                    if self._has_everything():  # no commit will come to say that it is over
                        self._all_is_well()
                is_enough = attempt.batches.commits > 0 if is_last else stop.is_set
                if is_enough and not attempt.is_busy:
                    return
        except PySparkException:
            if attempt.failure is not None:
                raise attempt.failure from None
            raise

    def _take(self, attempt: Attempt | Rounds) -> None:
        """Show and publish what was committed."""
        while not attempt.batches.events.empty():
            event = attempt.batches.events.get()
            if isinstance(event, Committed):
                event = self._counted(event)
            self._tell(event)

    def _counted(self, event: Committed) -> Committed:
        self._commits += 1
        self._keeper.committed(event.sequence)
        self._all_is_well()
        self._rows += event.rows
        self._dead += event.dead_letters
        records = event.rows + event.late_rows + event.dropped + event.dead_letters
        self._dead_share = max(self._dead_share, event.dead_letters / max(1, records))
        for each in event.ranges:
            self._frontier[each.topic_partition] = Offset(each.end)
        self._publisher.publish(self._frontier)
        return replace(event, lag=self._lag())

    def _all_is_well(self) -> None:
        self._patience.renew()
        self._failures = 0

    def _has_everything(self) -> bool:
        """Whether a last batch would be empty."""
        lag = self._lag()
        return lag is not None and lag.records == 0

    def _lag(self) -> Lag | None:
        try:
            return lag_of(self._cluster, self._frontier, isolation_of(self._context.spec))
        except ProtocolError as error:
            log.debug("The lag is not known: %s", error)
            return None


def _end(query: StreamingQuery | RoundsQuery) -> None:
    """Stop it, if there is still a JVM that it could run in."""
    try:
        query.stop()
    except (Py4JError, ConnectionError) as error:
        log.debug("The query ended with its JVM: %s", error)


def _pause(stop: StopRequest) -> None:
    until = time.monotonic() + _PAUSE_S
    while not stop.is_set and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _sentence(error: Exception) -> str:
    """What to say of trouble."""
    if isinstance(error, ProtocolError):
        return error.sentence
    if isinstance(error, StrandlineError):
        return str(error)
    return cause_of(error)
