"""Whether a store keeps two writers apart who make the same file: commits of Delta hang on it.

Theory: a commit is a file that is made only if there is none. Some stores do not know the condition
and make the file all the same. Others look whether there is one and then write it, in two steps:
one writer after another is refused there, and two at the same time are not. So the store is asked
twice: one writer after another, and then several at once, some times over. The second question
takes as many requests as a small batch does, and its answer belongs to the service and not to the
bucket: a process asks it once.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import public_settings
from strandline.lakehouse.locations.location import Location

_WRITERS: Final = 4
_ROUNDS: Final = 20
"""A store that took two steps let one of four writers win alone in 3 of 10 rounds."""
_ADVICE: Final = (
    "two writers could overwrite each other's commits. Keep Iceberg tables there, whose catalog "
    "decides (--format iceberg --catalog ...)"
)
_known_good: set[tuple[str, Sequence[tuple[str, str]]]] = set()


def conditional_put_fault(directory: Location) -> str | None:
    """Why commits of a Delta table are not safe below a directory; None if they are.

    It is found out by asking. Raises StoreTrouble.
    """
    if directory.is_local:
        return None
    if directory.scheme not in stores.BY_CONDITION:
        return (
            f"{directory.scheme} has no call that makes a file only if there is none, as this "
            f"package can make it: {_ADVICE}."
        )
    said = f"the store at {directory.scheme}://{directory.authority}"
    if not _second_is_refused(directory):
        return (
            f"{said} makes a file although there is one, against the condition of the request "
            f"(If-None-Match: *): {_ADVICE}, or use a store that has conditional writes."
        )
    service = (directory.scheme, tuple(public_settings().items()))
    if service in _known_good:
        return None
    if (made := most_winners(directory)) > 1:
        return (
            f"{said} refuses the second of two writers, but not of two at the same time: {made} of "
            f"{_WRITERS} made the same file, each on the condition that there was none "
            f"(If-None-Match: *): {_ADVICE}, or use a store whose conditional writes are one step."
        )
    _known_good.add(service)
    return None


def most_winners(directory: Location, rounds: int = _ROUNDS) -> int:
    """How many of several writers at once made the same file, in the first round with two if there
    is one. None may: the answer to the one that did was lost then. Raises StoreTrouble."""
    most = 0
    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in range(rounds):
            file = _new_file(directory)
            together = threading.Barrier(_WRITERS)

            def made(
                number: int, file: Location = file, together: threading.Barrier = together
            ) -> bool:
                together.wait()
                return _made(file, str(number))

            try:
                most = max(most, sum(writers.map(made, range(_WRITERS))))
            finally:
                stores.remove(file)
            if most > 1:
                break
    return most


def _second_is_refused(directory: Location) -> bool:
    file = _new_file(directory)
    try:
        _made(file, "first")
        return not _made(file, "second")
    finally:
        stores.remove(file)


def _made(file: Location, text: str) -> bool:
    try:
        stores.create_text(file, text)
    except FileExistsError:
        return False
    return True


def _new_file(directory: Location) -> Location:
    return directory / f".strandline-probe-{uuid.uuid4().hex}"
