"""Schemas in files: `7.avsc` has id 7, `orders-value.avsc` is that of the topic's plain values.

Files are read when they are asked for: one that is added or changed counts at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from strandline.schemas.errors import BadSchema

SCHEMA_BYTES_MAX: Final = 512 * 1024


class SchemaFolder:
    """The files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def text(self, name: str) -> str | None:
        """The schema in the file `name`, or None if there is none; raises `BadSchema`."""
        path = self._directory / name
        try:
            # Never a way out of the directory, and no pipe, which would keep its reader waiting.
            if path.name != name or not path.is_file():
                return None
            with path.open("rb") as file:
                data = file.read(SCHEMA_BYTES_MAX + 1)
            if len(data) > SCHEMA_BYTES_MAX:
                raise BadSchema(f"{name} is longer than {SCHEMA_BYTES_MAX} bytes.")
            return data.decode()
        except OSError as error:
            raise BadSchema(f"{name} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise BadSchema(f"{name} is not UTF-8.") from None
