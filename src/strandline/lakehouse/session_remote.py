"""Sessions of Spark Connect: Spark runs in a server, and this process has no JVM.

What works there is what Spark plans and carries out by itself: the formats of this package, and
all work on tables that is in tasks and is committed by this process. A function that Spark calls
for a batch of a stream would be called in a process of the server's, away from the run that knows
the table: runs plan their batches themselves there (`pipeline.rounds`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from strandline.lakehouse.session_master import REMOTE, NoSpark, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_TASKS: Final = 8
_MANY: Final = 100_000
_PORT: Final = 15002
"""Of Connect servers that do not say another."""
_CONNECT_S: Final = 5.0
_PATIENCE: Final[Mapping[str, Any]] = {"max_retries": 6, "max_backoff": 2_000}
"""With a server that does not answer: seconds, where Spark's client would try for ten minutes."""


def is_remote(master: str) -> bool:
    """Whether a master is a server of Spark Connect."""
    return master.startswith(REMOTE)


def open_remote(url: str, conf: Mapping[str, str]) -> SparkSession:
    """A session of its own of the server at `url` (sc://HOST:PORT). Raises `NoSpark`."""
    try:
        import pyspark.sql.connect.session  # noqa: F401 -- the builder imports it without such a word
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except ImportError as missing:
        raise NoSpark(
            "Spark Connect needs packages that are not installed: pip install "
            f"'strandline[connect]'. ({missing.name or missing})"
        ) from missing
    check_listens(url)
    # It has PySpark's functions make columns of this kind, in the whole process.
    builder = SparkSession.builder.remote(url)
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        # Not one that this process has already: runs of several tables each end their own.
        made = builder.create()
        made.client.set_retry_policies([DefaultPolicy(**_PATIENCE)])
        made.version  # noqa: B018 -- it is the first that is asked of the server
    except Exception as error:
        raise NoSpark(
            f"The Connect server {shown(url)} does not give a session: {_short(error, url)}"
        ) from error
    return made


def check_listens(url: str) -> None:
    """Raises `NoSpark` within seconds, where Spark's client would try for minutes."""
    parts = urlsplit(shown(url))
    try:
        port = parts.port or _PORT
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S):
            return
    except (OSError, ValueError) as error:
        raise NoSpark(f"Nothing answers at the Connect server {shown(url)}: {error}.") from error


def has_context(spark: SparkSession) -> bool:
    """Whether this process is the session's driver; else it is a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def default_tasks(spark: SparkSession) -> int:
    """How many tasks the session's processors carry out at the same time, as Spark says it.

    A Connect server is asked: it divides numbers into as many parts if it is not told otherwise.
    """
    if has_context(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions

    parts = spark.range(_MANY).select(functions.spark_partition_id().alias("part"))
    return int(parts.distinct().count())


def parallelism(spark: SparkSession) -> int:
    """How many tasks there should be at least; a Connect server would need a job to tell it."""
    return spark.sparkContext.defaultParallelism if has_context(spark) else _DEFAULT_TASKS


def _short(error: Exception, url: str) -> str:
    """Its first line, without what follows `;` in the URL, which Spark quotes if it is wrong."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    short = text.splitlines()[0]
    for each in re.split("[;?#]", url.partition(";")[2]):
        short = short.replace(each, "...") if each else short
    return short
