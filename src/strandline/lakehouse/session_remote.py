"""Sessions of Spark Connect: Spark runs in a server, and this process has no JVM.

What works there is what Spark plans and carries out by itself: the formats of this package, and
all work on tables that is in tasks and is committed by this process. A function that Spark calls
for a batch of a stream would be called in a process of the server's, away from the run that knows
the table: runs plan their batches themselves there (`pipeline.rounds`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from strandline.lakehouse.session_master import REMOTE, NoSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_TASKS: Final = 8
_PORT: Final = 15002
"""Of Connect servers that do not say another."""
_CONNECT_S: Final = 5.0
_PATIENCE: Final[Mapping[str, Any]] = {"max_retries": 6, "max_backoff": 2_000}
"""With a server that does not answer: seconds, where Spark's client would try for ten minutes."""


def is_remote(master: str) -> bool:
    """Whether a master is a server of Spark Connect."""
    return master.startswith(REMOTE)


def open_remote(url: str, conf: Mapping[str, str]) -> SparkSession:
    """A session of the server at `url` (sc://HOST:PORT). Raises `NoSpark`."""
    try:
        import pyspark.sql.connect.session  # noqa: F401 -- the builder imports it without such a word
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except ImportError as missing:
        raise NoSpark(
            "Spark Connect needs packages that are not installed: pip install "
            f"'strandline[connect]'. ({missing.name or missing})"
        ) from missing
    _check_listens(url)
    # It has PySpark's functions make columns of this kind, in the whole process.
    builder = SparkSession.builder.remote(url)
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
        made.client.set_retry_policies([DefaultPolicy(**_PATIENCE)])
        made.version  # noqa: B018 -- it is the first that is asked of the server
    except Exception as error:
        raise NoSpark(
            f"The Connect server {url} does not give a session: {_short(error)}"
        ) from error
    return made


class RemoteSession:
    """A session of a server, and another one when it has ended. A context manager.

    As `session_lasting.LastingSession`, without a JVM in this process.
    """

    def __init__(self, make: Callable[[], SparkSession], url: str) -> None:
        self._make = make
        self._url = url
        self.spark = make()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.spark.stop()

    def maybe_renew(self, *, is_stuck: bool = False) -> bool:
        """Make a new session if the server does not know the present one, or it `is_stuck`.

        Raises as `make` does, and `NoSpark` if the server does not answer.
        """
        _check_listens(self._url)
        if not is_stuck and _answers(self.spark):
            return False
        self.spark.stop()
        self.spark = self._make()
        return True


def _answers(spark: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    try:
        spark.range(1).count()
    except PySparkException:
        return False
    return True


def _check_listens(url: str) -> None:
    """Raises `NoSpark` within seconds, where Spark's client would try for minutes."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORT
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S):
            return
    except (OSError, ValueError) as error:
        raise NoSpark(f"Nothing answers at the Connect server {url}: {error}.") from error


def has_context(spark: SparkSession) -> bool:
    """Whether this process is the session's driver; else it is a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """How many tasks there should be at least; a Connect server does not tell its cores."""
    return spark.sparkContext.defaultParallelism if has_context(spark) else _DEFAULT_TASKS


def _short(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
