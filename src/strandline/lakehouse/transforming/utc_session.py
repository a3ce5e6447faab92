"""The session of a transform, in which times are those of UTC.

Theory: which day a time is of, and which time a text without a zone is, Spark decides by the zone
of the session, which is that of the machine unless a program says another. The rows of a table must
not depend on that: the next run, or a rebuild, is perhaps elsewhere. A session that a program has
made stays as it is, since other queries of its use it meanwhile.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from strandline.lakehouse.session_remote import has_context

_ZONE: Final = "spark.sql.session.timeZone"


def in_utc(own: SparkSession) -> SparkSession:
    """A session that nothing else uses, as a stream has one, or a run with Spark Connect."""
    own.conf.set(_ZONE, "UTC")
    return own


def copy_in_utc(spark: SparkSession) -> SparkSession:
    """A copy of a session, with its settings, views and functions of now."""
    if not has_context(spark):
        return in_utc(spark)  # those of Spark Connect are made for one work each
    return in_utc(SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession()))
