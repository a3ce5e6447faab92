"""Where a table may lie, and how that is said to Spark.

Theory: a table's location means the same directory to the driver and to every task, wherever they
were started. So it is absolute from the moment of its definition, and what is handed to Spark
carries the scheme `file:`, since a path without one belongs to whatever file system Spark takes
for the default. Anything but a directory that a path can name is refused. This file imports
nothing, so that the command line can ask it before anything else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from strandline.errors import InvalidSetting

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_THIS_MACHINE: Final = ("", "localhost")


def local_directory(text: str, *, setting: str = "location") -> str:
    """The absolute path that a path or a `file:` URI means, relative paths from here.

    Raises InvalidSetting, naming `setting`, for the URIs of anything else, such as object stores.
    """
    scheme = _SCHEME.match(text)
    if scheme is None:
        return os.path.join(os.getcwd(), text) if text else text
    if scheme[1].lower() == "file":
        parts = urlsplit(text)
        if parts.netloc in _THIS_MACHINE and parts.path:
            return unquote(parts.path)
    raise InvalidSetting(
        setting,
        f"{setting} cannot be {text!r}: tables are kept in a directory of this machine, or of a "
        "file system that is mounted on it; object stores and other file systems are not served.",
    )


def spark_path(path: Path) -> str:
    """An absolute path for Spark, which takes what follows the scheme as it is, unescaped."""
    return f"file://{path}"
