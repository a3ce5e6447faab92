"""What the commands that start Spark write of py4j's own log: nothing.

A program that uses `strandline.lakehouse` decides about its log itself; a command has a person at
its terminal, who reads one sentence for what went wrong.
"""

from __future__ import annotations

import logging


def silence_py4j() -> None:
    """py4j logs each call that fails, with its traceback; the caller gets the error as well.

    So does PySpark with each query that cannot be analysed.
    """
    for name in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    root = logging.getLogger()
    if _is_not_of_py4j not in root.filters:
        root.addFilter(_is_not_of_py4j)  # some records come without the name of their logger


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module not in ("java_gateway", "clientserver")
