"""`verify_table`: all that a proof needs, put together. What is proven, and how, is in `job.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from strandline.client.security.config import UNSECURED, ClientConfig
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.spark_options import SparkOptions, one_session
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.report import Report

log = logging.getLogger(__name__)


def verify_table(
    spec: TableSpec,
    bootstrap: str,
    *,
    config: ClientConfig = UNSECURED,
    spark: SparkOptions | None = None,
    tell: Callable[[str], None] = log.warning,
    everything: bool = False,
) -> Report:
    """Prove that a table holds every record below its frontier exactly once.

    What the last proof has shown is not compared again, unless `everything` is to be.

    If Spark runs in this process already, its session is used and left as it is, and `spark` has no
    effect; `tell` gets a sentence when executors take their time. Raises `TableError`,
    `ProtocolError`, `NoJava` and `NoSpark`.
    """
    store = open_store(spec, create=True)
    store.state()  # a table that cannot be read is told before Spark starts, which takes seconds
    from strandline.lakehouse.verify.job import verify

    with one_session(f"table verify {spec.name}", spark or SparkOptions(), tell=tell) as session:
        options = RunOptions(bootstrap=bootstrap, config=config)
        return verify(session, store, options.read_settings(spec), everything=everything)
