"""Whether a change of a table was made, when the answer to it does not say.

Theory: a store may carry out a commit whose answer is lost on the way. The library then asks again,
and is told that the version is there already, which looks as if another writer had been faster; or
it gives up, and nothing is known. In both cases the table itself knows: each change carries a name
of its own in its metadata. Only a conflict that was looked into is one, and only then may the files
of the change be removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.tables.backend import Backend, Change, Conflict, OutcomeUnknown
from strandline.lakehouse.tables.history import CHANGE

_RECENT: Final = 20
"""So many commits back it is looked for; others make fewer between an attempt and the look."""


def land(backend: Backend, change: Change, attempt: Callable[[], int]) -> int:
    """Carry out `attempt`, which makes `change`; the table's version with it.

    Raises Conflict when the change is not in the table, and will not be; StoreTrouble when it may
    be, or may yet come.
    """
    try:
        return attempt()
    except Conflict:
        version = _version_with(backend, change)
        if version is None:
            raise
        return version
    except OutcomeUnknown as error:
        version = _version_with(backend, change)
        if version is None:
            raise StoreTrouble(
                f"{error} Whether the commit was made will be seen in the table."
            ) from error
        return version


def _version_with(backend: Backend, change: Change) -> int | None:
    name = change.metadata.get(CHANGE)
    for commit in backend.load().history(_RECENT):
        if name is not None and commit.metadata.get(CHANGE) == name:
            return commit.version
    return None
