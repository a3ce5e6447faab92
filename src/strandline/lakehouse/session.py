"""A Spark session that needs nothing but Python packages, starts quickly and stays on this machine.

    from strandline.lakehouse.session import session

    with session("flights") as spark:
        spark.read.format("strandline").option("subscribe", "flights")...

This file knows Spark's settings. Which Java there is (`session_java`) and the small files that
start-up needs (`session_files`) are others' affair. Any other session can read and write topics as
well: the package registers the format `strandline` with Spark by itself.
"""

from __future__ import annotations

import locale
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from strandline.lakehouse.scratch_directory import OF_JVMS, ScratchDirectory, remove_leftovers
from strandline.lakehouse.session_executors import wait_for_executors
from strandline.lakehouse.session_files import SessionFiles, session_files
from strandline.lakehouse.session_java import find_java
from strandline.lakehouse.session_lasting import (
    end_jvm,
    forget_jvm,
    has_session,
    keep_scratch,
)
from strandline.lakehouse.session_master import (
    NoSpark,
    check_master,
    is_on_this_machine,
    wait_for_master,
)
from strandline.lakehouse.session_submitted import is_submitted, submitted_session
from strandline.lakehouse.spark_errors import OF_SPARK, cause_of

log = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(
    app_name: str = "strandline",
    *,
    master: str = "local[*]",
    memory: str = "2g",
    jars: Sequence[Path] = (),
    java_options: str = "",
    log_level: str = "ERROR",
    conf: Mapping[str, str] | None = None,
    patience_s: float = 60.0,
    executor_patience_s: float | None = None,
    tell: Callable[[str], None] = log.warning,
) -> SparkSession:
    """The session that runs in this process, or a new one. Leaving it as a context stops it.

    In a program that `spark-submit` has started it is one of Spark's process there; of what follows
    only `conf` counts.

    `memory` is the driver's (in local mode also the tasks'), in Spark's notation. `jars` are added
    to the class path of the driver and the executors. `log_level` is what Spark's JVM tells on
    stderr. `conf` are further settings of Spark and win over those made here. `patience_s` is how
    long a master that is not on this machine may take to answer, `executor_patience_s` (by default
    the same) how long to give a first executor; if that takes its time, `tell` gets a sentence.
    Raises `NoJava`, `NoSpark`, and `InvalidSetting` for a master that is none.
    """
    check_master(master)
    began_s = time.monotonic()
    wait_for_master(master, patience_s)
    if has_session():
        return SparkSession.builder.getOrCreate()
    if is_submitted():
        return submitted_session({**_OF_ROWS, **(conf or {})})
    files = session_files(find_java().executable, log_level=log_level)
    settings = {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if is_on_this_machine(master) else {}),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{files.logging} {java_options}".strip()
        ),
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
        **(conf or {}),
    }
    configured = SparkConf().setAppName(app_name).setMaster(master).setAll(list(settings.items()))
    with _environment({**spark_environment(master, files), **_surroundings(master)}):
        context = _started(configured, master, patience_s)
    if not is_on_this_machine(master):
        try:
            patience_s = patience_s if executor_patience_s is None else executor_patience_s
            wait_for_executors(context, tell, began_s=began_s, patience_s=patience_s)
        except BaseException:
            context.stop()
            raise
    # The code that needs a JVM reports that it was killed; here it would come with a trace.
    context._accumulatorServer.handle_error = _log_end  # type: ignore[method-assign]
    return SparkSession.builder.getOrCreate()


def spark_environment(master: str, files: SessionFiles) -> dict[str, str]:
    """What Spark takes from the environment, besides what its user has put there."""
    environment = {"JAVA_HOME": str(files.java_home)}
    if "PYSPARK_PYTHON" not in os.environ and is_on_this_machine(master):
        # Other machines have no such file: there it is their `python3`, or what the user names.
        environment["PYSPARK_PYTHON"] = str(files.python)
    elif "PYSPARK_DRIVER_PYTHON" not in os.environ and _is_other_python():
        # What Spark plans is planned on this machine, by the Python that has this package.
        environment["PYSPARK_DRIVER_PYTHON"] = str(files.python)
    return environment


def _is_other_python() -> bool:
    """Whether the executors' Python is not here, or another one than that of this process.

    It may be in an archive that is unpacked there (`./env/bin/python`).
    """
    given = os.environ.get("PYSPARK_PYTHON")
    if given:
        return shutil.which(given) is None
    found = shutil.which("python3")
    return found is None or Path(found).parent != Path(sys.executable).parent


def _started(configured: SparkConf, master: str, patience_s: float) -> SparkContext:
    """Spark in a JVM of its own, which ends if its master takes too long. Raises `NoSpark`."""
    too_late = threading.Event()

    def give_up() -> None:
        too_late.set()
        end_jvm()

    watch = threading.Timer(patience_s, give_up)
    try:
        # A process group of its own: Ctrl-C at a terminal is for this process, which ends the
        # queries in order, not for the workers below Spark's JVM. That ends with its stdin.
        started = {"start_new_session": True}
        gateway = SparkContext._gateway or _launched(configured, started)
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        if not is_on_this_machine(master):
            watch.start()
        try:
            return SparkContext(conf=configured, gateway=gateway)
        finally:
            watch.cancel()
    except OF_SPARK as error:
        log.debug("Spark did not start", exc_info=error)
        end_jvm()
        forget_jvm()
        why = f"it did not answer within {patience_s:g} s" if too_late.is_set() else cause_of(error)
        raise NoSpark(
            f"Spark could not be started with --master {master}: {why.rstrip('.')}. Correct "
            "--master or what it needs, or run Spark on this machine with --master 'local[*,4]'."
        ) from error


def _launched(configured: SparkConf, started: dict[str, bool]) -> JavaGateway:
    """A JVM whose temporary files go with it, or with the next one if it is killed."""
    remove_leftovers(OF_JVMS)
    scratch = ScratchDirectory(OF_JVMS)
    keep_scratch(scratch)
    with _environment({"TMPDIR": str(scratch.path)}):
        gateway = launch_gateway(configured, started)  # type: ignore[no-untyped-call]
    # Java removes such files in reverse order: those that it and Spark make come first.
    gateway.jvm.java.io.File(str(scratch.path)).deleteOnExit()
    return gateway


_OF_ROWS: Final = {
    # Times in topics are UTC; what a table holds must not depend on where the machine stands.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # As Spark has it, and the lines in which clients of Kafka are given passwords and keys.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|ssl[.]key",
}
_SETTINGS: Final = {
    **_OF_ROWS,
    "spark.ui.enabled": "false",
    # State that is larger than memory, and the only store for transformWithState.
    "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
    "spark.ui.showConsoleProgress": "false",
}
_ON_THIS_MACHINE: Final = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    # One for each core, as Spark's own 200 are for a cluster: each has a state store of its own.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


def _surroundings(master: str) -> dict[str, str]:
    """Environment variables that Java needs on machines that are not set up as it expects."""
    needed = {}
    if master.startswith("local") and "SPARK_LOCAL_IP" not in os.environ:
        # Else Spark looks up the name of the machine, which many a laptop's or container's
        # resolver does not know, before it reads any setting.
        needed["SPARK_LOCAL_IP"] = _LOOPBACK
    if locale.getencoding().upper() != "UTF-8":
        # Java takes the encoding of file names from the locale; Python has another rule (PEP 540).
        needed["LC_ALL"] = "C.UTF-8"
    return needed


def _log_end(request: object, client_address: object) -> None:
    del request
    log.debug("The JVM at %s went away", client_address, exc_info=True)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Changed environment variables for what is started meanwhile."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
