"""A `java` with which short runs of Spark, Kafka and ZooKeeper take half of the processor's time.

    python -m tests.quick_java DIRECTORY    makes it below there, unless it is there, and prints
                                            what JAVA_HOME may be; nothing without a Java

Most of what a short run costs is that thousands of classes are read and verified anew, and that
code is compiled which then runs for a second. So this `java`, which hands all else on to the one on
PATH, has the quick compiler only; and for the jars of each it has an archive of classes that were
read before (https://openjdk.org/jeps/350), which a first run leaves behind at its end. In seconds
of the processor, from the start to the end: Kafka 4.0 without, 2.4 with it; ZooKeeper 0.5 and 0.3.

An archive is for class paths that begin with what it was made of: so those jars come before all
else on them. Java sees by itself whether an archive fits, and does without if it does not.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyspark
from pyspark.core.context import SparkContext

from strandline.lakehouse.session import session
from tests.zookeeper import server as zookeeper

_SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
_EXECUTABLE: Final = 0o755
_DIGEST_CHARS: Final = 16
_PATIENCE_S: Final = 300.0

_JAVA: Final = """#!/bin/sh
archive=
for each; do
  shift
  case $each in
{branches}    org.apache.spark.launcher.Main) archive= ;;
  esac
  set -- "$@" "$each"
done
exec {java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \\
  "-Xlog:cds*=off" ${{archive:+"{option}=$archive"}} "$@"
"""
_BRANCH: Final = """\
    *{jars}*)
      before=${{each%%{jars}*}} after=${{each#*{jars}}}
      before=${{before%:}} after=${{after#:}}
      each={jars}"${{before:+:$before}}${{after:+:$after}}"
      archive={archive} ;;
"""
_KAFKA: Final = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller_port}
log.dirs={home}/data
"""
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass(frozen=True, slots=True)
class Archived:
    """Jars, and what loads with the `java` of a home what every run of them loads. To load more
    costs more here than it saves."""

    name: str
    jars: Path
    run: Callable[[Path], None]


def quick_java(cache: Path, java: Path) -> Path:
    """The home of a `java` that starts this one, and archives of classes beside it."""
    archived = _archived()
    home = cache / f"java-{_digest(java, archived)}"
    if not (home / "bin" / "java").exists():
        with tempfile.TemporaryDirectory(dir=cache) as place:
            unfinished = Path(place)
            _write_java(unfinished, java, "-XX:ArchiveClassesAtExit", archived, unfinished)
            for each in archived:
                each.run(unfinished)
            home.mkdir(exist_ok=True)
            for made in unfinished.glob("*.jsa"):
                made.rename(home / made.name)
        _write_java(home, java, "-XX:SharedArchiveFile", archived, home)
    return home


def _archived() -> list[Archived]:
    """Those whose jars are here."""
    found = [Archived("spark", _SPARK_JARS, _run_spark)]
    kafka = os.environ.get("STRANDLINE_KAFKA_JARS")
    if kafka:
        found.append(Archived("kafka", Path(kafka), _run_kafka))
    if zookeeper.missing() is None:
        found.append(Archived("zookeeper", zookeeper.jars(), _run_zookeeper))
    return found


def _digest(java: Path, archived: list[Archived]) -> str:
    """Of everything that an archive depends on."""
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = [
        f"{jar} {jar.stat().st_size}"
        for each in archived
        for jar in sorted(each.jars.glob("*.jar"))
    ]
    told = "\0".join((_JAVA, _BRANCH, str(java), version.decode(), *jars))
    return sha256(told.encode()).hexdigest()[:_DIGEST_CHARS]


def _write_java(home: Path, java: Path, option: str, archived: list[Archived], at: Path) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    branches = "".join(
        _BRANCH.format(
            jars=shlex.quote(f"{each.jars}/*"), archive=shlex.quote(f"{at}/{each.name}.jsa")
        )
        for each in archived
    )
    unfinished = program.with_name(f"java.{os.getpid()}")
    unfinished.write_text(
        _JAVA.format(java=shlex.quote(str(java)), option=option, branches=branches)
    )
    unfinished.chmod(_EXECUTABLE)
    unfinished.rename(program)


def _run_spark(home: Path) -> None:
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


def _run_kafka(home: Path) -> None:
    """Start and stop a broker. What formats its directory leaves an archive that this replaces."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        port, controller_port = (each.getsockname()[1] for each in (one, other))
    properties = home / "kafka.properties"
    properties.write_text(_KAFKA.format(port=port, controller_port=controller_port, home=home))
    jars = f"{os.environ['STRANDLINE_KAFKA_JARS']}/*"
    start: list[str | Path] = [
        home / "bin" / "java",
        "-Dorg.apache.logging.log4j.level=OFF",
        "-cp",
        jars,
    ]
    tool = [*start, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", properties]
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL, timeout=_PATIENCE_S)
    with subprocess.Popen([*start, "kafka.Kafka", properties], stdout=subprocess.DEVNULL) as kafka:
        deadline = time.monotonic() + _PATIENCE_S
        while kafka.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.05)  # between two looks; the condition is that it listens
            else:
                break
        kafka.send_signal(signal.SIGTERM)


def _run_zookeeper(home: Path) -> None:
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{home / 'bin'}{os.pathsep}{before}"
    server = zookeeper.ZooKeeperServer(home / "zookeeper", (zookeeper.Ports.chosen(),), 0)
    server.start()
    server.wait_until_serving()
    server.end()
    os.environ["PATH"] = before


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
