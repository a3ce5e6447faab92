"""Parts of a work on files, for a process in which Spark may not run yet.

Theory: most works are small, and done before Spark would have started. Only one that is large
starts a session, as the user's options say, which then serves the works that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from strandline.errors import StrandlineError
from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.spark_options import STARTS_QUICKLY, SparkOptions, one_session
from strandline.lakehouse.tables.parts import SMALL_BYTES, Carrier, Done, Part, here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_A_SESSION_BYTES: Final = 256 << 20


class TooMuchHere(StrandlineError):
    """A work is not for this process, which has no Spark."""


def only_little(
    work: Callable[[Part], Done],
    parts: Sequence[Part],
    *,
    size: int,
    undo: Callable[[Done], object],
) -> list[Done]:
    """A carrier for small works. Raises TooMuchHere for others, before anything is done."""
    if size >= SMALL_BYTES:
        raise TooMuchHere(f"{size:,} bytes are to be read: that is for Spark's tasks.")
    return here(work, parts, size=size, undo=undo)


@contextmanager
def carrying_by_command(
    name: str, options: SparkOptions, tell: Callable[[str], None]
) -> Iterator[Carrier]:
    """A carrier, whose session ends with this block if it has started one.

    `name` is the session's; `tell` gets a sentence when executors take their time. The carrier
    raises `NoJava` and `NoSpark`, and PipelineFailed when tasks fail.
    """
    with ExitStack() as at_end:

        @cache
        def session() -> SparkSession:
            opening = one_session(name, options, java_options=STARTS_QUICKLY, tell=tell)
            return at_end.enter_context(opening)

        def carry(
            work: Callable[[Part], Done],
            parts: Sequence[Part],
            *,
            size: int,
            undo: Callable[[Done], object],
        ) -> list[Done]:
            if size < WORTH_A_SESSION_BYTES:
                return here(work, parts, size=size, undo=undo)
            # Spark takes a second to import, which little work does not need.
            from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
            from strandline.lakehouse.spark_errors import OF_SPARK, cause_of

            try:
                return carrier_of(session())(work, parts, size=size, undo=undo)
            except OF_SPARK as error:
                raise PipelineFailed(f"A task of Spark's failed: {cause_of(error)}") from error

        yield carry
