"""The session of a program that `spark-submit` has started.

Theory: then Spark's Java process is there before Python is, in the deploy mode cluster on a machine
of the cluster's, and what was submitted says where it runs and with what. So nothing is chosen
here but what a table's rows depend on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""What `spark-submit` tells a Python program."""


def is_submitted() -> bool:
    """Whether this process is a program of `spark-submit`'s."""
    return _GATEWAY in os.environ


def submitted_session(settings: Mapping[str, str]) -> SparkSession:
    """The session, in the Java process that is there. What was submitted wins over `settings`."""
    SparkContext._ensure_initialized()  # only then are the settings known
    configured = SparkConf()
    for name, value in settings.items():
        configured.setIfMissing(name, value)
    return SparkSession.builder.config(conf=configured).getOrCreate()
