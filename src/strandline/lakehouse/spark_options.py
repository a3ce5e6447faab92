"""Where and how Spark runs for one piece of work on a table, and the session for it.

This file knows what a user may choose (`SparkOptions`) and how quiet a session is that a program
starts for itself. What makes a session start quickly is in `session.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.lakehouse.session_remote import is_remote, open_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MASTER: Final = "local[*,4]"
"""All processors of this machine; a task may fail three times, as when its process is killed."""
STARTS_QUICKLY: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that only plans: compiling its code well costs more than it brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """What a user may say of Spark.

    `master` and `memory` (of the driver, in local mode also of the tasks) are in Spark's notation;
    runs, rebuilds, proofs and doctors take a server of Spark Connect (sc://HOST:PORT) in place of
    a master;
    `jars` are added to the class path of the driver and the executors. `conf` are settings of
    Spark's, which win over all others; `archives` are unpacked in each executor's work directory
    (`env.tar.gz#env`), and `py_files` put on its Python's path.
    """

    master: str = MASTER
    memory: str = "2g"
    jars: tuple[Path, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    archives: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()

    def settings(self) -> dict[str, str]:
        """What of it Spark takes as settings."""
        archives = {"spark.archives": ",".join(self.archives)} if self.archives else {}
        return {**archives, **self.conf}


@contextmanager
def one_session(
    name: str,
    options: SparkOptions,
    *,
    java_options: str = "",
    tell: Callable[[str], None] = log.warning,
) -> Iterator[SparkSession]:
    """As `open_session`, and stopped at the end, unless it ran in this process before."""
    from strandline.lakehouse.session_lasting import has_session

    is_given = not is_remote(options.master) and has_session()
    opened = open_session(name, options, java_options=java_options, tell=tell)
    try:
        yield opened
    finally:
        if not is_given:
            opened.stop()


def open_session(
    name: str,
    options: SparkOptions,
    *,
    java_options: str = "",
    conf: Mapping[str, str] | None = None,
    patience_s: float = 60.0,
    executor_patience_s: float | None = None,
    tell: Callable[[str], None] = log.warning,
) -> SparkSession:
    """A session for one piece of work, called `name`, with further settings `conf`.

    The session that runs in this process is given if there is one. `tell` gets a sentence when
    executors take their time. Raises `NoJava` and `NoSpark`.
    """
    if is_remote(options.master):
        remote = open_remote(options.master, options.conf)
        for file in options.py_files:
            remote.addArtifacts(file, pyfile=True)
        return remote
    from strandline.lakehouse.session import session

    # Spark's default of 200 is for clusters: here each of them is a task that does next to nothing.
    tasks = 4 * (os.cpu_count() or 1)
    settings = {
        "spark.sql.shuffle.partitions": str(tasks),
        **(conf or {}),
        **options.settings(),
    }
    opened = session(
        f"strandline {name}",
        master=options.master,
        memory=options.memory,
        jars=options.jars,
        java_options=java_options,
        # What Spark logs as an error is a page of traces; the caller is told what happened.
        log_level="FATAL",
        conf=settings,
        patience_s=patience_s,
        executor_patience_s=executor_patience_s,
        tell=tell,
    )
    for file in options.py_files:
        opened.sparkContext.addPyFile(file)
    return opened
