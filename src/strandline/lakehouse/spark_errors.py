"""What Spark raises, and what of it is for people.

Its texts are pages of traces from two languages, of which one line names the cause.
"""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

OF_SPARK: Final = (PySparkException, Py4JError, ConnectionError)
"""The last when its JVM is gone."""


def cause_of(error: Exception) -> str:
    """The cause as a sentence: the last line that names an error."""
    said = str(error).partition(_OF_QUERY)[0]
    lines = [line.strip().removeprefix(": ") for line in said.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "... "))]
    named = [line for line in lines if "Error" in line or "Exception" in line or ": " in line]
    text = (named or lines or [type(error).__name__])[-1]
    text = text.rpartition(_FROM_STORE)[2]
    text = text if text.endswith(".") else f"{text}."
    return f"{text} {_NO_PACKAGE}" if "No module named 'strandline" in text else text


_FROM_STORE: Final = "locations.errors.StoreTrouble: "
"""What stands before a sentence that a task has said already."""


def first_of(error: Exception) -> str:
    """What Spark's own analysis says: its first line, without the trace and the plan below it."""
    return f"{str(error).strip().splitlines()[0].strip().rstrip('.')}."


_OF_QUERY: Final = "=== Streaming Query ==="
"""What follows is where the query was, and no cause."""
_NO_PACKAGE: Final = (
    "The Python that the executors start lacks this package: install it on their machines, and let "
    "PYSPARK_PYTHON name that Python when the command is started."
)
