"""Jars of Apache Kafka, ZooKeeper and Spark from Maven Central, by coordinates, into a cache.

These are the released artefacts, unchanged; only the launch scripts of the binary distributions
are missing, and the harnesses pass the JVM flags that those scripts would pass (see `brokers`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

KAFKA_VERSION = "4.3.1"
SCALA_VERSION = "2.13"
ROCKSDB_VERSION = "10.1.3"
ZOOKEEPER_VERSION = "3.9.5"
SPARK_VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"
ICEBERG_VERSION = "1.11.0"
ICEBERG_SPARK_VERSION = "4.1.1"
S3MOCK_VERSION = "4.11.0"
HADOOP_VERSION = "3.5.0"
"""Of the Hadoop that pyspark brings."""
AWS_VERSION = "2.57.8"
# The binding between Kafka's logging interface and its log4j: without it WARN lines are lost.
LOG_BINDING_VERSION = "2.25.4"
_NETTY_VERSION = "4.1.130.Final"


class JarsError(Exception):
    """The jars could not be had; the sentence says what to install or set."""


class Artefact(NamedTuple):
    """A library of Maven Central. `alone`: without what it depends on.

    `kind` is Maven's classifier: another file of the same project, such as its tests.
    """

    group: str
    name: str
    version: str
    alone: bool = False
    kind: str = ""


def kafka_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """Directory with the jars of the broker. `STRANDLINE_KAFKA_JARS` overrides the download."""
    return _jars(
        cache / f"kafka-{version}",
        _kafka(version),
        override="STRANDLINE_KAFKA_JARS",
        proof=f"kafka_{SCALA_VERSION}-*.jar",
    )


def streams_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """Directory with Kafka Streams and MirrorMaker, to stand behind the broker's jars.

    `STRANDLINE_STREAMS_JARS` overrides the download.
    """
    return _jars(
        cache / f"streams-{version}",
        _streams(version),
        override="STRANDLINE_STREAMS_JARS",
        proof="kafka-streams-*.jar",
    )


def connect_jars(cache: Path, version: str = KAFKA_VERSION) -> Path:
    """Directory with Kafka Connect's connectors for files; the worker is among the broker's jars.

    `STRANDLINE_CONNECT_JARS` overrides the download.
    """
    return _jars(
        cache / f"connect-{version}",
        [Artefact("org.apache.kafka", "connect-file", version, alone=True)],
        override="STRANDLINE_CONNECT_JARS",
        proof="connect-file-*.jar",
    )


def zookeeper_jars(cache: Path, version: str = ZOOKEEPER_VERSION) -> Path:
    """Directory with the jars of a ZooKeeper server and nothing beside: it starts faster so.

    `STRANDLINE_ZOOKEEPER_JARS` overrides the download.
    """
    return _jars(
        cache / f"zookeeper-{version}",
        _zookeeper(version),
        override="STRANDLINE_ZOOKEEPER_JARS",
        proof="zookeeper-[0-9]*.jar",
    )


def spark_kafka_jars(cache: Path, version: str = SPARK_VERSION) -> Path:
    """Directory with Spark's own connector for Kafka and what Spark itself does not bring along.

    `STRANDLINE_SPARK_KAFKA_JARS` overrides the download.
    """
    return _jars(
        cache / f"spark-kafka-{version}",
        _spark_kafka(version),
        override="STRANDLINE_SPARK_KAFKA_JARS",
        proof=f"spark-sql-kafka-0-10_{SCALA_VERSION}-*.jar",
    )


def delta_jars(cache: Path, version: str = DELTA_VERSION) -> Path:
    """Directory with Delta's own writer for Spark.

    `STRANDLINE_DELTA_JARS` overrides the download.
    """
    return _jars(
        cache / f"delta-{version}",
        _delta(version),
        override="STRANDLINE_DELTA_JARS",
        proof=f"delta-spark_4.2_{SCALA_VERSION}-*.jar",
    )


def iceberg_jars(cache: Path, version: str = ICEBERG_VERSION) -> Path:
    """Directory with Iceberg's runtime for Spark and the Spark that it is for: a reader of tables.

    `STRANDLINE_ICEBERG_JARS` overrides the download.
    """
    return _jars(
        cache / f"iceberg-{version}",
        _iceberg(version),
        override="STRANDLINE_ICEBERG_JARS",
        proof=f"iceberg-spark-runtime-4.1_{SCALA_VERSION}-*.jar",
    )


def iceberg_rest_jars(cache: Path, version: str = ICEBERG_VERSION) -> Path:
    """Directory with Iceberg's own REST catalog, as its project tests its clients with.

    `STRANDLINE_ICEBERG_REST_JARS` overrides the download.
    """
    return _jars(
        cache / f"iceberg-rest-{version}",
        _iceberg_rest(version),
        override="STRANDLINE_ICEBERG_REST_JARS",
        proof="iceberg-open-api-*.jar",
    )


def s3mock_jars(cache: Path, version: str = S3MOCK_VERSION) -> Path:
    """Directory with S3Mock, an S3 server in one jar that Java runs.

    `STRANDLINE_S3MOCK_JARS` overrides the download.
    """
    return _jars(
        cache / f"s3mock-{version}",
        [Artefact("com.adobe.testing", "s3mock", version, alone=True, kind="exec")],
        override="STRANDLINE_S3MOCK_JARS",
        proof="s3mock-*-exec.jar",
    )


def hadoop_aws_jars(cache: Path, version: str = HADOOP_VERSION) -> Path:
    """Directory with what Spark's own writers need to reach S3 (`s3a`).

    `STRANDLINE_HADOOP_AWS_JARS` overrides the download.
    """
    return _jars(
        cache / f"hadoop-aws-{version}",
        _hadoop_aws(version),
        override="STRANDLINE_HADOOP_AWS_JARS",
        proof="hadoop-aws-*.jar",
    )


def project_file(version: str) -> str:
    """A Maven project that depends on Kafka's broker and its tools, and on nothing else."""
    return _project_file(_kafka(version))


def _project_file(artefacts: Sequence[Artefact]) -> str:
    dependencies = "\n".join(
        f"    <dependency><groupId>{wanted.group}</groupId><artifactId>{wanted.name}</artifactId>"
        f"<version>{wanted.version}</version>"
        f"{f'<classifier>{wanted.kind}</classifier>' if wanted.kind else ''}"
        f"{_ALONE if wanted.alone else ''}</dependency>"
        for wanted in artefacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>strandline.bench</groupId><artifactId>jars</artifactId><version>1</version>\n"
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n</project>\n"
    )


_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def _kafka(version: str) -> list[Artefact]:
    return [
        Artefact("org.apache.kafka", f"kafka_{SCALA_VERSION}", version),
        Artefact("org.apache.kafka", "kafka-tools", version),
        Artefact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG_BINDING_VERSION),
    ]


def _streams(version: str) -> list[Artefact]:
    """What they need beside these is needed by the broker and its tools, too."""
    own = ["kafka-streams", "connect-mirror", "connect-mirror-client"]
    return [
        *(Artefact("org.apache.kafka", name, version, alone=True) for name in own),
        Artefact("org.rocksdb", "rocksdbjni", ROCKSDB_VERSION, alone=True),
    ]


def _zookeeper(version: str) -> list[Artefact]:
    """What the server loads: no TLS libraries, no web console, the smallest logging there is."""
    wanted = [
        ("org.apache.zookeeper", "zookeeper", version),
        ("org.apache.zookeeper", "zookeeper-jute", version),
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
        ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
        ("org.slf4j", "slf4j-api", "2.0.13"),
        ("org.slf4j", "slf4j-simple", "2.0.13"),
        *(
            ("io.netty", f"netty-{part}", _NETTY_VERSION)
            for part in ("buffer", "common", "handler", "transport")
        ),
    ]
    return [Artefact(*coordinates, alone=True) for coordinates in wanted]


def _spark_kafka(version: str) -> list[Artefact]:
    """The versions beside the connector's are those of its project file, but for the tokens: of
    that library Central had nothing newer than 4.0.0 when this was written, and it suffices."""
    wanted = [
        ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA_VERSION}", version),
        ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA_VERSION}", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.13.1"),
    ]
    return [Artefact(*coordinates, alone=True) for coordinates in wanted]


def _delta(version: str) -> list[Artefact]:
    """Delta's own writer for Spark 4.2; what it needs of Spark is in Spark."""
    kernel = [f"delta-kernel-{part}" for part in ("api", "defaults", "unitycatalog")]
    own = [f"delta-spark_4.2_{SCALA_VERSION}", "delta-storage", *kernel]
    return [Artefact("io.delta", name, version, alone=True) for name in own]


def _iceberg(version: str) -> list[Artefact]:
    """The newest Spark of which there is a runtime; it does not run in the one after it."""
    runtime = f"iceberg-spark-runtime-4.1_{SCALA_VERSION}"
    return [
        Artefact("org.apache.iceberg", runtime, version, alone=True),
        Artefact("org.apache.spark", f"spark-sql_{SCALA_VERSION}", ICEBERG_SPARK_VERSION),
    ]


def _iceberg_rest(version: str) -> list[Artefact]:
    """The server is among the tests of its project, which name none of what they run on. Hadoop's
    classes, which it asks for its settings, are those of pyspark."""
    return [
        Artefact(
            "org.apache.iceberg", "iceberg-open-api", version, alone=True, kind="test-fixtures"
        ),
        Artefact("org.apache.iceberg", "iceberg-core", version, alone=True, kind="tests"),
        Artefact("org.apache.iceberg", "iceberg-core", version),
        Artefact("org.apache.iceberg", "iceberg-aws", version),
        *(Artefact("software.amazon.awssdk", name, "2.42.33") for name in ("s3", "sts", "kms")),
        Artefact("software.amazon.awssdk", "url-connection-client", "2.42.33"),
        Artefact("org.xerial", "sqlite-jdbc", "3.51.2.0"),
        Artefact("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.6"),
        Artefact("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.6"),
        Artefact("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.6"),
        Artefact("org.slf4j", "slf4j-simple", "2.0.17"),
    ]


def _hadoop_aws(version: str) -> list[Artefact]:
    """Of Amazon's libraries those that are used: all of them together are half a gigabyte."""
    names = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    return [
        Artefact("org.apache.hadoop", "hadoop-aws", version, alone=True),
        *(Artefact("software.amazon.awssdk", name, AWS_VERSION) for name in names),
        Artefact(
            "software.amazon.s3.analyticsaccelerator",
            "analyticsaccelerator-s3",
            "1.3.1",
            alone=True,
        ),
    ]


def _jars(target: Path, artefacts: Sequence[Artefact], *, override: str, proof: str) -> Path:
    given = os.environ.get(override)
    if given:
        return _checked(Path(given), proof)
    if not target.exists():
        _download(target, artefacts, override)
    return _checked(target, proof)


def _download(target: Path, artefacts: Sequence[Artefact], override: str) -> None:
    maven = shutil.which("mvn")
    if not maven:
        raise JarsError(f"mvn is not installed: install Maven or set {override}")
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    project = unfinished / "pom.xml"
    project.write_text(_project_file(artefacts))
    command = [maven, "-q", "-B", "-f", str(project), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        shutil.rmtree(unfinished)
        raise JarsError(f"Maven could not fetch {target.name}:\n{done.stdout}{done.stderr}")
    try:
        unfinished.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(unfinished)  # another process was faster


def _checked(directory: Path, proof: str) -> Path:
    if not any(directory.glob(proof)):
        raise JarsError(f"{directory} holds no {proof}")
    return directory


def main() -> None:
    """Fetch the jars if need be and print their directory: for shell scripts."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cache-dir", type=Path, required=True)
    parser.add_argument("--of", choices=tuple(_FETCHERS), default="kafka")
    options = parser.parse_args()
    cache: Path = options.cache_dir
    cache.mkdir(parents=True, exist_ok=True)
    print(_FETCHERS[options.of](cache))


_FETCHERS: Mapping[str, Callable[[Path], Path]] = {
    "kafka": kafka_jars,
    "streams": streams_jars,
    "connect": connect_jars,
    "zookeeper": zookeeper_jars,
    "spark-kafka": spark_kafka_jars,
    "delta": delta_jars,
    "iceberg": iceberg_jars,
    "iceberg-rest": iceberg_rest_jars,
    "s3mock": s3mock_jars,
    "hadoop-aws": hadoop_aws_jars,
}


if __name__ == "__main__":
    main()
