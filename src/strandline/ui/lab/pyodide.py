"""Pyodide, the Python that runs in browsers: one version, got by `npm` and kept in a cache.

It is 6 MB to fetch and is never part of this package. The archive is compared with the checksum
below before anything of it is used. This file knows npm and the archive, and no page.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from strandline.errors import StrandlineError
from strandline.tar_files import unpack_tar

VERSION: Final = "314.0.7"
"""Python 3.14 (the number before the dots)."""
_SHA512: Final = (
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
"""Of the archive, as npm's `integrity` has it."""

WASM: Final = "pyodide.asm.wasm"
NEEDED: Final = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    WASM,
    "python_stdlib.zip",
    "pyodide-lock.json",
)
"""What a page loads of it."""

_SECONDS_MAX: Final = 300


class CannotBuild(StrandlineError):
    """The page cannot be made here; the sentence says what is missing."""


def cache_directory() -> Path:
    """Where what was fetched and built is kept; `XDG_CACHE_HOME` moves it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "strandline"


def pyodide() -> Path:
    """The directory with its files; fetches it if it is not there yet. Raises `CannotBuild`."""
    target = cache_directory() / f"pyodide-{VERSION}"
    if all((target / name).is_file() for name in NEEDED):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        archive = _fetched(Path(place))
        _check(archive)
        with tarfile.open(archive) as packed:
            unpack_tar(packed, place)
        shutil.rmtree(target, ignore_errors=True)
        try:
            (Path(place) / "package").rename(target)
        except OSError:
            if not target.is_dir():  # else another process was first
                raise
    return target


def run(*words: str | Path, of: str) -> None:
    """Run a program of Node.js. Raises `CannotBuild` with its last line."""
    found = shutil.which(words[0])
    if found is None:
        raise CannotBuild(f"{of} needs '{words[0]}', which comes with Node.js. Install that first.")
    try:
        done = subprocess.run(  # noqa: S603 - words of this package, no shell
            [found, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"'{words[0]}' was not done after {_SECONDS_MAX} s.") from error
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        raise CannotBuild(f"'{words[0]}' failed: {said[-1][:300] if said else 'without a word'}")


def _fetched(place: Path) -> Path:
    run(
        *("npm", "pack", f"pyodide@{VERSION}", "--silent", "--pack-destination", place),
        of="The page in a browser",
    )
    return place / f"pyodide-{VERSION}.tgz"


def _check(archive: Path) -> None:
    try:
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    except OSError as error:
        raise CannotBuild(f"npm brought no {archive.name}: {error.strerror}.") from error
    if digest != _SHA512:
        raise CannotBuild(f"{archive.name} is not the one that this version was made with.")
