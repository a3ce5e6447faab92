"""Parts of a work on files, for a process in which Spark may not run yet.

Theory: most works are small, and done before Spark would have started. Only one that is large
starts a session, as the user's options say, which then serves the works that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from strandline.errors import StrandlineError
from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.spark_options import STARTS_QUICKLY, SparkOptions, open_session
from strandline.lakehouse.tables.parts import Done, Part, here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORTH_A_SESSION_BYTES: Final = 256 << 20
_SMALL_BYTES: Final = 32 << 20


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
    if size >= _SMALL_BYTES:
        raise TooMuchHere(f"{size:,} bytes are to be read: that is for Spark's tasks.")
    return here(work, parts, size=size, undo=undo)


class CommandCarrier:
    """A carrier, and a context manager that stops the session that it started.

    Raises `NoJava` and `NoSpark`, and PipelineFailed when tasks fail.
    """

    def __init__(self, name: str, options: SparkOptions, tell: Callable[[str], None]) -> None:
        """`name` is the session's; `tell` gets a sentence when executors take their time."""
        self._name = name
        self._options = options
        self._tell = tell
        self._session: SparkSession | None = None
        self._is_own = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None and self._is_own:
            self._session.stop()

    def __call__(
        self,
        work: Callable[[Part], Done],
        parts: Sequence[Part],
        *,
        size: int,
        undo: Callable[[Done], object],
    ) -> list[Done]:
        """As `Carrier`."""
        if size < WORTH_A_SESSION_BYTES:
            return here(work, parts, size=size, undo=undo)
        # Spark takes a second to import, which little work does not need.
        from strandline.lakehouse.pipeline.parts_in_spark import carrier_of
        from strandline.lakehouse.spark_errors import OF_SPARK, cause_of

        try:
            carry = carrier_of(self._spark())
            return carry(work, parts, size=size, undo=undo)
        except OF_SPARK as error:
            raise PipelineFailed(f"A task of Spark's failed: {cause_of(error)}") from error

    def _spark(self) -> SparkSession:
        if self._session is None:
            from strandline.lakehouse.session_lasting import has_session

            self._is_own = not has_session()
            self._session = open_session(
                self._name, self._options, java_options=STARTS_QUICKLY, tell=self._tell
            )
        return self._session
