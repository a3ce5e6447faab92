"""One Spark session and one cluster for all tests of tables, sources and sinks.

A session takes seconds and 2 GB to start, so every test that uses the fixture `spark` runs in the
same worker process (the group `spark` of xdist) and shares it. What needs no Spark should not ask
for it. Tests keep apart by topics (`new_topic`) and directories (`tmp_path`) of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.client.cluster import ClusterClient
from strandline.lakehouse.session import session
from strandline.lakehouse.tables.delta_spark import SESSION_SETTINGS
from strandline.testing import Cluster
from tests.lakehouse.locations.s3_server import KEYS, S3Server
from tests.lakehouse.locations.s3mock import s3mock as running_s3mock

HERE = Path(__file__).parent
_numbers = count(1)
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares the session, or the cluster."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if not item.path.is_relative_to(HERE):
            continue
        if "spark" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "cluster" in fixtures:
            item.add_marker(pytest.mark.xdist_group("lakehouse"))


def jars_of(name: str, variable: str) -> list[Path]:
    """Jars that `check` fetched into the cache, or that a variable names; maybe none."""
    cache = os.environ.get("STRANDLINE_TEST_CACHE")
    given = os.environ.get(variable)
    place = Path(given) if given else Path(cache, name) if cache else None
    return sorted(place.glob("*.jar")) if place else []


KAFKA_CONNECTOR_JARS = jars_of("spark-kafka-4.2.0", "STRANDLINE_SPARK_KAFKA_JARS")
DELTA_JARS = jars_of("delta-4.4.0", "STRANDLINE_DELTA_JARS")
S3MOCK_JARS = jars_of("s3mock-4.11.0", "STRANDLINE_S3MOCK_JARS")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; with Spark's connector for Kafka and Delta's writer where their jars are."""
    place = tmp_path_factory.mktemp("spark")
    running = session(
        "tests",
        master="local[2]",
        memory="1g",
        java_options=f"{_QUICK_START} -Djava.io.tmpdir={place}",
        log_level="OFF",
        jars=[*KAFKA_CONNECTOR_JARS, *DELTA_JARS],
        conf={
            **(SESSION_SETTINGS if DELTA_JARS else {}),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            # Java code that Spark makes for each query is compiled for a few hundred rows.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
            "spark.sql.catalogImplementation": "in-memory",
            # Its JVM is also the server of Spark Connect that a test's other process uses.
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            # What opens the S3 server of the tests (`s3`), in tasks as well.
            **{f"spark.executorEnv.{name}": value for name, value in KEYS.items()},
        },
    )
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One broker for tests that do it no harm; those that do take `strandline_cluster`.

    Retention never runs: the records of some tests are years old.
    """
    with Cluster(brokers=1, settings={"log.initial.task.delay.ms": 86_400_000}) as running:
        yield running


@pytest.fixture
def client(cluster: Cluster) -> Iterator[ClusterClient]:
    """A client of that cluster."""
    with ClusterClient(cluster.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def new_topic(cluster: Cluster, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes a topic with a name of its own: `new_topic(partitions=2, cleanup_policy="compact")`."""

    def make(partitions: int = 1, **configs: Any) -> str:
        words = "".join(each if each.isalnum() else "-" for each in request.node.name)
        name = f"{words[:60]}-{next(_numbers)}"
        cluster.create_topic(name, partitions, 1, **configs)
        return name

    return make


@pytest.fixture(scope="session")
def one_s3_server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture(scope="session")
def one_s3mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if not S3MOCK_JARS:
        pytest.skip("needs python -m bench.kafka_jars --of s3mock")
    with (
        running_s3mock(S3MOCK_JARS[0], tmp_path_factory.mktemp("s3mock")) as behind,
        S3Server(behind) as running,
    ):
        yield running


@pytest.fixture
def s3(one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, which behaves, and whose address is in the environment."""
    with _named(one_s3_server, monkeypatch):
        yield one_s3_server


@pytest.fixture
def s3mock(one_s3mock: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """As `s3`, but it is S3Mock's."""
    with _named(one_s3mock, monkeypatch):
        yield one_s3mock


@contextmanager
def _named(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    server.plant()
    yield
    server.plant()


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A bucket of the test's own."""
    return s3.bucket(f"lake-{next(_numbers)}")
