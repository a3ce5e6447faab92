"""`run_table`: all that a run of a table needs, put together and given back at its end.

A run needs a store, a Spark session that is made anew when its JVM dies, and the runner. This file
knows in which order they come; what a run does is in `runner.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from strandline.errors import InvalidSetting
from strandline.lakehouse.pipeline.events import Event, Notice, Stopped
from strandline.lakehouse.pipeline.healing import Healer
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.parts_by_command import TooMuchHere, only_little
from strandline.lakehouse.pipeline.up_to_date import finish_if_up_to_date, look
from strandline.lakehouse.session_remote import is_remote
from strandline.lakehouse.spark_options import STARTS_QUICKLY, SparkOptions, open_session
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.definition_checks import check_of_topics
from strandline.lakehouse.tables.opening import check_commits
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.transforming.given import Transform, transform_of
from strandline.lakehouse.transforming.remembering import told_of_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lakehouse.pipeline.batches import RunContext
    from strandline.lakehouse.pipeline.runner import StopRequest

RENEWAL_S: Final = 15.0
"""How long a master may take to answer when a run needs a new session."""
KAFKA_JARS: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"


class NeverStopped:
    """The request to stop that does not come."""

    is_set: Final = False


def never_stopped() -> AbstractContextManager[StopRequest]:
    """For `run_table`: the run ends by itself, or with an exception."""
    return nullcontext(NeverStopped())


def run_table(
    spec: TableSpec,
    options: RunOptions,
    *,
    spark: SparkOptions | None = None,
    on_event: Callable[[Event], None],
    stop: Callable[[], AbstractContextManager[StopRequest]] = never_stopped,
    transform: Transform | None = None,
    shared: Sharing | None = None,
) -> Stopped:
    """Bring a table's topics into it, exactly once, from its frontier on; how the run ended.

    With `options.once` it ends when all is committed that was there at its start, and does not
    start Spark if that is nothing. Otherwise it ends after the batch in which `stop` was set;
    `stop` is entered while brokers are waited for at the start, and again when Spark runs, which
    puts a signal handler of its own in place. `on_event` gets every event, in the thread of the
    caller. If Spark runs in this process already, its session is used and left as it is, and
    `spark` has no effect; so it is with a `shared` one, which is made anew for all runs that share
    it. Rows go through `transform`, by default the one that the definition names.

    Raises `TableError` and `PipelineError` (what was committed stays), `NoJava`, `NoSpark`,
    `ProtocolError` for brokers that refuse the run at its start, and `InvalidSetting` for jars that
    are missing, or a store in which commits are not safe.
    """
    spark = spark or SparkOptions()
    check_of_topics(spec)
    check_jars(spec, options.engine, spark.jars)
    check_remote(spec.name, spec.writer, options.engine, spark.master)
    check_commits(spec)
    transform = transform or transform_of(spec)
    store = open_store(spec, create=True)
    if (told := told_of_change(store, transform)) is not None:
        on_event(Notice(told))
    is_healed = True
    if transform is None:
        # Also where nothing is new, and Spark is not started.
        is_healed = _heal(spec, on_event)
    with stop() as request:
        begin = look(store, options, on_event, request)
        if request.is_set:  # it is told once, and the run has a request of its own
            options = replace(options, once=True)
    if (
        options.once
        and is_healed
        and (stopped := finish_if_up_to_date(store, begin, options, on_event)) is not None
    ):
        return stopped

    # Only here: it takes a second, which wrong options and a table that is up to date do not need.
    from strandline.lakehouse.pipeline.batches import RunContext
    from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
    from strandline.lakehouse.pipeline.runner import Runner
    from strandline.lakehouse.session_lasting import LastingSession, RemoteSession, has_session

    def context_of(session: SparkSession) -> RunContext:
        live = open_store(spec, create=True, spark=session)
        live.carry_out_by(carrier_of(session))
        return RunContext(session, spec, live, options, transform)

    if shared is not None:
        return _run_in(shared, context_of, on_event, stop)
    needs = Needs.of(spec, options)
    make = SessionMaker(
        f"table run {spec.name}",
        needs,
        spark,
        options.patience_s,
        lambda sentence: on_event(Notice(sentence)),
    )
    is_connected = is_remote(spark.master)
    if has_session() and not is_connected:
        session = make()
        with stop() as request:
            return Runner(context_of(session), on_event).run(request)

    def renew(is_stuck: bool) -> RunContext | None:
        return context_of(lasting.spark) if lasting.maybe_renew(is_stuck=is_stuck) else None

    held = RemoteSession(make, spark.master) if is_connected else LastingSession(make)
    with held as lasting, stop() as request:
        return Runner(context_of(lasting.spark), on_event, renew).run(request)


def _heal(spec: TableSpec, on_event: Callable[[Event], None]) -> bool:
    """Replay letters whose schemas are known by now; False if that is too much without Spark."""
    store = open_store(spec)
    store.carry_out_by(only_little)
    try:
        Healer(store, on_event).maybe_heal()
    except TooMuchHere:
        return False
    return True


class Sharing(Protocol):
    """A session that is not this run's alone (`lakehouse.service.sharing`)."""

    def session(self) -> SparkSession:
        """The one that there is, made if there is none. Raises `NoJava` and `NoSpark`."""

    def renewed(self, held: SparkSession, *, is_stuck: bool) -> SparkSession | None:
        """Another one, if `held` is lost, or stuck by all signs; else None."""


def _run_in(
    shared: Sharing,
    context_of: Callable[[SparkSession], RunContext],
    on_event: Callable[[Event], None],
    stop: Callable[[], AbstractContextManager[StopRequest]],
) -> Stopped:
    from strandline.lakehouse.pipeline.runner import Runner

    held = shared.session()

    def renew(is_stuck: bool) -> RunContext | None:
        nonlocal held
        newer = shared.renewed(held, is_stuck=is_stuck)
        if newer is None:
            return None
        held = newer
        return context_of(held)

    with stop() as request:
        return Runner(context_of(held), on_event, renew).run(request)


class Needs(NamedTuple):
    """What a session must be able to do for runs of tables."""

    through_java: bool
    """Rows pass through the JVM: they do not where our own reader serves them, and our own writer
    takes them."""
    delta_writer: bool

    @classmethod
    def of(cls, spec: TableSpec, options: RunOptions) -> Needs:
        """For one table."""
        return cls.of_words(spec.writer, options.engine)

    @classmethod
    def of_words(cls, writer: str, engine: str) -> Needs:
        """For a table with this writer, read by this engine."""
        by_spark = writer == "spark"
        return cls(by_spark or engine == "kafka", by_spark)

    def __or__(self, other: tuple[object, ...]) -> Needs:
        """For these and those tables."""
        return Needs(*(bool(a or b) for a, b in zip(self, other, strict=True)))


class SessionMaker:
    """Makes the first session of a run, and the later ones."""

    def __init__(
        self,
        name: str,
        needs: Needs,
        spark: SparkOptions,
        patience_s: float,
        tell: Callable[[str], None],
    ) -> None:
        self._name = name
        self._needs = needs
        self._spark = spark
        self._patience_s = patience_s
        self._tell = tell
        self._made = 0

    def __call__(self) -> SparkSession:
        """A session. Raises `NoJava` and `NoSpark`."""
        from strandline.lakehouse.tables.delta_spark import SESSION_SETTINGS

        self._made += 1
        return open_session(
            self._name,
            self._spark,
            java_options="" if self._needs.through_java else STARTS_QUICKLY,
            conf=SESSION_SETTINGS if self._needs.delta_writer else {},
            # Later ones are made in the course of a run, which tries again as long as it may.
            patience_s=self._patience_s if self._made == 1 else min(self._patience_s, RENEWAL_S),
            executor_patience_s=self._patience_s,
            tell=self._tell,
        )


def check_remote(name: str, writer: str, engine: str, master: str) -> None:
    """Raise `InvalidSetting` for what a server of Spark Connect cannot do."""
    if not is_remote(master):
        return
    if engine != "strandline":
        raise InvalidSetting(
            "engine",
            f"The engine '{engine}' reads in a stream of Spark's, whose batches a server of Spark "
            "Connect hands to a process of its own: take the engine 'strandline' with --remote.",
        )
    if writer != "strandline":
        raise InvalidSetting(
            "remote",
            f"Table '{name}' is written by Spark's writer for Delta through the session's own "
            "JVM, which a client of Spark Connect has not: name a master.",
        )


def check_jars(spec: TableSpec, engine: str, jars: Sequence[Path]) -> None:
    """Raise `InvalidSetting` if a run needs jars that are not among these."""
    if engine == "kafka" and not any(each.name.startswith("spark-sql-kafka-0-10") for each in jars):
        raise InvalidSetting(
            "jars",
            f"The engine 'kafka' needs the jars of {KAFKA_JARS}: name their directory with --jars.",
        )
    if spec.writer == "spark" and not any(each.name.startswith("delta-spark_") for each in jars):
        from strandline.lakehouse.tables.delta_spark import COORDINATES

        raise InvalidSetting(
            "jars",
            f"Table '{spec.name}' is written by Spark's writer for Delta, which needs the jars of "
            f"{COORDINATES} and of what it depends on: name their directory with --delta-jars.",
        )
