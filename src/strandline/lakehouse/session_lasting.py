"""A Spark session for commands that run for long: when its JVM has died, there is a new one.

    with LastingSession(lambda: session("flights")) as lasting:
        lasting.spark.read...
        lasting.maybe_renew()

PySpark keeps one JVM per process and never looks whether it still lives: a session of a dead JVM
stays the one that `getOrCreate` gives. So what PySpark remembers of it has to be taken back here,
before another can be made. This file must not know what sessions are used for.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, SQLContext

from strandline.lakehouse.scratch_directory import ScratchDirectory
from strandline.lakehouse.session_remote import check_listens

_scratch: list[ScratchDirectory] = []
"""That of the JVM that this process has started, if there is one."""


class LastingSession:
    """A context manager, which stops the session that there is at its end."""

    def __init__(self, make: Callable[[], SparkSession]) -> None:
        self._make = make
        self.spark = make()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def maybe_renew(self, *, is_stuck: bool = False) -> bool:
        """Make a new session if the present one is lost, or `is_stuck`; whether it was so.

        One that is stuck goes with its JVM, whatever its state is. Raises as `make` does.
        """
        if not is_stuck and not self._is_lost():
            return False
        self._end(is_stuck=is_stuck)
        with _same_interrupt_handler():
            self.spark = self._make()
        return True

    def _is_lost(self) -> bool:
        return is_lost(self.spark)

    def _end(self, *, is_stuck: bool = False) -> None:
        if is_stuck:
            end_jvm()
        _stop(self.spark)


class RemoteSession(LastingSession):
    """The same of a server of Spark Connect, without a JVM in this process."""

    def __init__(self, make: Callable[[], SparkSession], url: str) -> None:
        self._url = url
        super().__init__(make)

    def maybe_renew(self, *, is_stuck: bool = False) -> bool:
        """See there; lost is also one that the server does not know.

        Raises `NoSpark` as well if the server does not answer.
        """
        check_listens(self._url)
        return super().maybe_renew(is_stuck=is_stuck)

    def _is_lost(self) -> bool:
        try:
            self.spark.range(1).count()
        except PySparkException:
            return True
        return False

    def _end(self, *, is_stuck: bool = False) -> None:
        del is_stuck  # it has no JVM here to be ended with
        self.spark.stop()


def has_session() -> bool:
    """Whether Spark runs in this process, started by this package or by the program."""
    return SparkContext._active_spark_context is not None


def is_lost(spark: SparkSession) -> bool:
    """Whether nothing can be done with a session any more: its JVM ended, or Spark stopped it."""
    context = spark.sparkContext
    if _has_ended() or context._jsc is None:
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, ConnectionError):
        return True


def _has_ended() -> bool:
    """Whether the JVM that this process started has ended."""
    gateway = SparkContext._gateway
    process = None if gateway is None else gateway.proc
    return gateway is None or (process is not None and process.poll() is not None)


def _stop(spark: SparkSession) -> None:
    """Stop a session, or forget it if its JVM cannot be told any more."""
    try:
        if not _has_ended():
            spark.stop()
            return
    except (Py4JError, ConnectionError):
        pass  # it ended just now
    _forget(spark)


def end_jvm() -> None:
    """Kill the JVM that this process started, if there is one."""
    gateway = SparkContext._gateway
    process = None if gateway is None else gateway.proc
    if process is not None:
        process.kill()
        process.wait()


def _forget(spark: SparkSession) -> None:
    """Take back what PySpark remembers of a session and its JVM."""
    context = spark.sparkContext
    context._jsc = None
    context.stop()  # without a JVM: what serves it here
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    forget_jvm()


def keep_scratch(directory: ScratchDirectory) -> None:
    """Remove the JVM's temporary files with it, if it ends before this process."""
    _scratch.append(directory)


def forget_jvm() -> None:
    """Let PySpark start another JVM when a session is made."""
    while _scratch:
        _scratch.pop().close()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown_callback_server()


@contextmanager
def _same_interrupt_handler() -> Iterator[None]:
    """Spark puts a handler of its own in place of that for Ctrl-C, wherever that may be done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
