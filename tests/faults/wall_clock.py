"""The wall clock of processes that a test starts, set forwards and back (`wall_clock.c`)."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("wall_clock.c")
_AHEAD: Final = struct.Struct("=q")


def missing() -> str | None:
    """Why there can be no such clock here."""
    return None if shutil.which("cc") else "there is no C compiler"


class WallClock:
    """Processes that were started with `environment` see the real time and what was added to it."""

    def __init__(self, home: Path) -> None:
        self._file = home / "wall-clock"
        self._file.write_bytes(_AHEAD.pack(0))
        self._library = home / "wall_clock.so"
        command: list[str | Path] = [
            "cc",
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
            self._library,
            SOURCE,
            "-ldl",
        ]
        subprocess.run(command, check=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process must be started with."""
        return {"LD_PRELOAD": str(self._library), "WALL_CLOCK_FILE": str(self._file)}

    def set_ahead(self, seconds: int) -> None:
        """From now on the wall clock is so many seconds ahead of the real one (or behind it)."""
        with self._file.open("r+b") as file:
            file.write(_AHEAD.pack(seconds * 1_000_000_000))
