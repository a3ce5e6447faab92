"""Whether a master on other machines gives a session anything that works.

Theory: a driver that a master has accepted looks as if all were well, and its first job then waits
for executors for ever, which Spark tells in its log only. So they are waited for here, once, for as
long as there is patience; and what is waited for is said. Where Spark starts executors as jobs need
them (`spark.dynamicAllocation.enabled`), there are none before the first job, and none are asked
for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

from strandline.lakehouse.session_master import NoSpark

TELL_AFTER_S: Final = 12.0
"""From the start of the session on, Java's included."""
LEAST_S: Final = 3.0
"""Executors of a master that has room come within a few seconds of the driver."""
_PAUSE_S: Final = 0.1
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"


def wait_for_executors(
    context: SparkContext,
    tell: Callable[[str], None],
    *,
    began_s: float,
    patience_s: float,
) -> None:
    """Until a session has an executor. Raises `NoSpark` after `patience_s`.

    `tell` gets one sentence if there is none `TELL_AFTER_S` after `began_s`, nor within `LEAST_S`.
    """
    if context.getConf().get(_DYNAMIC, "false") == "true":
        return
    master = str(context.master)
    now_s = time.monotonic()
    until_s, tell_at_s = now_s + patience_s, max(began_s + TELL_AFTER_S, now_s + LEAST_S)
    was_reported = False
    while not _executors(context):
        now_s = time.monotonic()
        if now_s >= tell_at_s and not was_reported:
            was_reported = True
            tell(
                f"The Spark master {master} gives no executor yet; waiting for one, "
                f"{patience_s:g} s in all. {_remedy(master)}"
            )
        if now_s >= until_s:
            raise NoSpark(
                f"The Spark master {master} gave no executor within {patience_s:g} s. "
                f"{_remedy(master)}"
            )
        time.sleep(_PAUSE_S)


def _remedy(master: str) -> str:
    return (
        "Its workers are slow to start one, or none has the cores and the memory that an executor "
        "is to have (spark.executor.memory). Then start one (spark-class "
        f"org.apache.spark.deploy.worker.Worker {master}), or run Spark on this machine with "
        "--master 'local[*,4]'."
    )


def _executors(context: SparkContext) -> int:
    """How many there are, besides the driver. Raises `NoSpark` when Spark has ended."""
    try:
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    except (Py4JError, ConnectionError) as error:
        raise NoSpark(f"Spark ended while it waited for {context.master}.") from error
