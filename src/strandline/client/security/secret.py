"""A password, key or token: printed nowhere, and read where it is used.

What a user gives may be the secret itself, or say where it is:

    env:NAME     the environment variable NAME of the process that connects
    file:PATH    the file's text, without white space at its end

A reference is resolved for each connection, in the process that makes it: a Spark task reads it on
its own machine, and a rotated password is used by the next connection.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from strandline.errors import InvalidSetting

_ENVIRONMENT: Final = "env:"
_FILE: Final = "file:"
_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """See the module. `name` is the setting that errors name."""

    name: str
    _given: str = field(repr=False)

    def reveal(self) -> str:
        """The secret itself. Raises `InvalidSetting` if the place that is named has none."""
        if self._given.startswith(_ENVIRONMENT):
            variable = self._given.removeprefix(_ENVIRONMENT)
            value = os.environ.get(variable)
            if value is None:
                raise InvalidSetting(
                    self.name, f"{self.name}: there is no environment variable {variable}."
                )
            return value
        if self._given.startswith(_FILE):
            return read_text(self.name, self._given.removeprefix(_FILE)).rstrip()
        return self._given

    def __str__(self) -> str:
        """The reference; a secret that was given itself is never shown."""
        is_reference = self._given.startswith((_ENVIRONMENT, _FILE))
        return self._given if is_reference else "[hidden]"


def read_text(name: str, path: str) -> str:
    """A small text file that a setting names. Raises `InvalidSetting`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSetting(
            name, f"{name}: the file {path} cannot be read: {error.strerror or error}."
        ) from error
    if len(content) > _BYTES_MAX:
        raise InvalidSetting(name, f"{name}: the file {path} has more than {_BYTES_MAX} bytes.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(name, f"{name}: the file {path} is no text in UTF-8.") from error
