"""How old what a table keeps may get: rows, versions, files without a use; checked.

These are settings of the definition, so that each process that cares for the table does the same.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import InvalidSetting

HOUR_MS: Final = 3_600_000
_WHY: Final = {
    "vacuum_ms": ": the files of a batch, or of a replay in another process, belong to no table "
    "before its commit",
    "keep_history_ms": ": readers of a version would lose it under their hands",
    "expire_rows_ms": "",
}


def check_upkeep(
    expire_rows_ms: int | None, keep_history_ms: int | None, vacuum_ms: int | None
) -> None:
    """Raises InvalidSetting, naming the field, for a duration that is none or too short."""
    given = {
        "expire_rows_ms": expire_rows_ms,
        "keep_history_ms": keep_history_ms,
        "vacuum_ms": vacuum_ms,
    }
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < HOUR_MS:
            option = name.removesuffix("_ms").replace("_", "-")
            raise InvalidSetting(option, f"{option} cannot be less than 1 hour{_WHY[name]}.")
