"""Apache Kafka's broker and tools from Maven Central, by coordinates, into a cache directory.

These are the released artefacts, unchanged; only the launch scripts of the binary distribution are
missing, and the harness passes the JVM flags that those scripts would pass (see `brokers`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.3.1"
SCALA_VERSION = "2.13"
# The binding between Kafka's logging interface and its log4j: without it WARN lines are lost.
LOG_BINDING_VERSION = "2.25.4"


class JarsError(Exception):
    """Kafka's jars could not be had; the sentence says what to install or set."""


def kafka_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """Directory with the jars of the broker. `STRANDLINE_KAFKA_JARS` overrides the download."""
    given = os.environ.get("STRANDLINE_KAFKA_JARS")
    if given:
        return _checked(Path(given))
    target = cache / f"kafka-{version}"
    if not target.exists():
        _download(target, version)
    return _checked(target)


def project_file(version: str) -> str:
    """A Maven project that depends on the broker and its tools, and on nothing else."""
    wanted = (
        ("org.apache.kafka", f"kafka_{SCALA_VERSION}", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG_BINDING_VERSION),
    )
    dependencies = "\n".join(
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version></dependency>"
        for group, artifact, number in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>strandline.bench</groupId><artifactId>kafka</artifactId><version>1</version>\n"
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n</project>\n"
    )


def _download(target: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if not maven:
        raise JarsError("mvn is not installed: install Maven or set STRANDLINE_KAFKA_JARS")
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    project = unfinished / "pom.xml"
    project.write_text(project_file(version))
    command = [maven, "-q", "-B", "-f", str(project), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        shutil.rmtree(unfinished)
        raise JarsError(f"Maven could not fetch Kafka {version}:\n{done.stdout}{done.stderr}")
    unfinished.rename(target)


def _checked(directory: Path) -> Path:
    if not any(directory.glob(f"kafka_{SCALA_VERSION}-*.jar")):
        raise JarsError(f"{directory} holds no kafka_{SCALA_VERSION}-*.jar")
    return directory


def main() -> None:
    """Fetch the jars if need be and print their directory: for shell scripts."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cache-dir", type=Path, required=True)
    cache: Path = parser.parse_args().cache_dir
    cache.mkdir(parents=True, exist_ok=True)
    print(kafka_jars(cache))


if __name__ == "__main__":
    main()
