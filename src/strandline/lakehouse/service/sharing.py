"""One Spark session for the runs of many tables, which share its processors fairly.

Each table has a session of Spark's of its own within one application: a view called `batch` is one
table's. Its jobs are in a scheduling pool with the table's name, and pools take turns. When the
JVM is lost, the first run that notices makes a new one, and the others take it. A run whose Spark
failed again and again gets a new JVM only if no other table committed lately: else it is not
Spark that is in no good state, and the others would lose what they are writing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from strandline.lakehouse.session_lasting import LastingSession, is_lost

SETTINGS: Final[Mapping[str, str]] = {"spark.scheduler.mode": "FAIR"}
"""What a session needs so that pools take turns."""
_POOL: Final = "spark.scheduler.pool"
WORKS_S: Final = 60.0
"""A session in which any table committed within so many seconds is not stuck."""


class SharedSession:
    """See the module; made when the first run needs it, ended by `close`."""

    def __init__(
        self, make: Callable[[], SparkSession], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._lasting: LastingSession | None = None
        self._commit_s: float | None = None

    def of(self, table: str) -> TableSession:
        """What the run of a table is given."""
        return TableSession(self, table)

    def noted_commit(self) -> None:
        """A table was brought further: the session works."""
        self._commit_s = self._clock()

    def session(self, pool: str) -> SparkSession:
        """A table's session; to be asked for in the thread that will use it."""
        with self._lock:
            if self._lasting is None:
                self._lasting = LastingSession(self._make)
                _prepare(self._lasting.spark)
            elif self._lasting.maybe_renew():
                _prepare(self._lasting.spark)
            return _part(self._lasting.spark, pool)

    def renewed(self, held: SparkSession, pool: str, *, is_stuck: bool) -> SparkSession | None:
        """As `Sharing.renewed`."""
        with self._lock:
            lasting = self._lasting
            if lasting is None:
                return None
            if held.sparkContext is lasting.spark.sparkContext:
                if not (is_lost(held) or (is_stuck and not self._works())):
                    return None
                lasting.maybe_renew(is_stuck=is_stuck)
                _prepare(lasting.spark)
            return _part(lasting.spark, pool)

    def _works(self) -> bool:
        return self._commit_s is not None and self._clock() - self._commit_s < WORKS_S

    def close(self) -> None:
        """Stop the session, after the runs have ended."""
        with self._lock:
            lasting, self._lasting = self._lasting, None
            if lasting is not None:
                lasting.__exit__(None, None, None)


class TableSession:
    """The part of a shared session that is one table's (`Sharing`)."""

    def __init__(self, shared: SharedSession, table: str) -> None:
        self._shared = shared
        self._table = table

    def session(self) -> SparkSession:
        """As `Sharing.session`."""
        return self._shared.session(self._table)

    def renewed(self, held: SparkSession, *, is_stuck: bool) -> SparkSession | None:
        """As `Sharing.renewed`."""
        return self._shared.renewed(held, self._table, is_stuck=is_stuck)


def _prepare(spark: SparkSession) -> None:
    """Start what calls back from the JVM: two queries that start at once would both do it."""
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]


def _part(spark: SparkSession, pool: str) -> SparkSession:
    # Of this thread, and of the queries that it starts.
    spark.sparkContext.setLocalProperty(_POOL, pool)
    return spark.newSession()
