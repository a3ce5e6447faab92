"""A `java` with which short runs of Spark take less than half of the processor's time.

    python -m tests.quick_java DIRECTORY    makes it below there, unless it is there, and prints
                                            what JAVA_HOME may be; nothing without a Java

Most of what a short run of Spark costs is that thousands of classes are read and verified anew, and
that code is compiled which then runs for a second. So this `java`, which hands all else on to the
one on PATH, has the quick compiler only; and for Spark's jars it has an archive of classes that
were read before (https://openjdk.org/jeps/350), which a first run leaves behind at its end.

An archive is for class paths that begin with what it was made of: so Spark's jars come before all
else on them. Java sees by itself whether an archive fits, and does without if it does not.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyspark
from pyspark.core.context import SparkContext

from strandline.lakehouse.session import session

_JARS: Final = Path(pyspark.__file__).parent / "jars"
_EXECUTABLE: Final = 0o755
_DIGEST_CHARS: Final = 16
_PATIENCE_S: Final = 300.0

_JAVA: Final = """#!/bin/sh
archive=
for each; do
  shift
  case $each in
    *{jars}*)
      before=${{each%%{jars}*}} after=${{each#*{jars}}}
      before=${{before%:}} after=${{after#:}}
      each={jars}"${{before:+:$before}}${{after:+:$after}}"
      archive={archive} ;;
    org.apache.spark.launcher.Main) archive= ;;
  esac
  set -- "$@" "$each"
done
exec {java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \\
  "-Xlog:cds*=off" ${{archive:+"{option}=$archive"}} "$@"
"""


def quick_java(cache: Path, java: Path) -> Path:
    """The home of a `java` that starts this one, and an archive of Spark's classes beside it."""
    home = cache / f"java-{_digest(java)}"
    archive = home / "spark.jsa"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=cache) as place:
            unfinished = Path(place)
            made = unfinished / "spark.jsa"
            _write_java(unfinished, java, "-XX:ArchiveClassesAtExit", made)
            _run_spark(unfinished)
            _write_java(home, java, "-XX:SharedArchiveFile", archive)
            made.rename(archive)  # another process may be doing the same
    return home


def _digest(java: Path) -> str:
    """Of everything that an archive depends on."""
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = [f"{each.name} {each.stat().st_size}" for each in sorted(_JARS.glob("*.jar"))]
    told = "\0".join((_JAVA, str(java), version.decode(), str(_JARS), *jars))
    return sha256(told.encode()).hexdigest()[:_DIGEST_CHARS]


def _write_java(home: Path, java: Path, option: str, archive: Path) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    words = {"java": java, "jars": f"{_JARS}/*", "archive": archive}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    unfinished = program.with_name(f"java.{os.getpid()}")
    unfinished.write_text(_JAVA.format(option=option, **quoted))
    unfinished.chmod(_EXECUTABLE)
    unfinished.rename(program)


def _run_spark(home: Path) -> None:
    """Load what every run loads. More costs more here than it saves."""
    os.environ |= {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    with session(
        "classes", master="local[2]", conf={"spark.sql.warehouse.dir": str(home)}
    ) as spark:
        spark.range(3).write.parquet(f"{home}/table")
        assert spark.read.parquet(f"{home}/table").count() == 3
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # upon which it ends
    gateway.proc.wait(_PATIENCE_S)


def main() -> None:
    """See the module."""
    java = shutil.which("java")
    given = os.environ.get("JAVA_HOME")
    if given:
        java = str(Path(given, "bin", "java"))
    if java is not None:
        cache = Path(sys.argv[1])
        cache.mkdir(parents=True, exist_ok=True)
        print(quick_java(cache, Path(java)))


if __name__ == "__main__":
    main()
