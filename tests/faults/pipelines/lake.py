"""An S3 server for the tables, whose connections can be cut, and DuckDB, which reads them there.

The run of the table reaches the server through a proxy of TCP; proofs go past it. Nothing in the
server is lost by that: what is tried is what a network does between a run and its store.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import duckdb_extension_delta
import duckdb_extension_httpfs

from strandline.lakehouse.tables.definition import DEAD_LETTERS, LATE, TableSpec
from strandline.types import TopicPartition
from tests.lakehouse.duckdb_reader import use_s3, with_extensions
from tests.lakehouse.locations.s3_server import KEYS, S3Server
from tests.zookeeper.proxy import TcpProxy

TABLES: Final = "s3://lake/tables"
_CUT_S: Final = (0.2, 6.0)
"""How long answers are lost, or connections hang: up to longer than a call waits to connect."""
_BROKEN: Final = "connections broken"
_MUTE: Final = "answers lost"
_HANGING: Final = "connections hang"
WAYS: Final = (_BROKEN, _MUTE, _HANGING)


class Lake:
    """A context manager; meanwhile this process's environment names the server."""

    def __enter__(self) -> Self:
        self._at_end = ExitStack()
        with ExitStack() as begun:
            self.server = begun.enter_context(S3Server())
            parts = urlsplit(self.server.url)
            self._proxy = begun.enter_context(TcpProxy(parts.hostname or "", parts.port or 0))
            self.server.bucket(urlsplit(TABLES).netloc)
            self._before = dict(os.environ)
            os.environ.update(self.server.environment)
            begun.callback(self._forget)
            self._at_end = begun.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._at_end.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a driver, whose way to the server can be cut; executors are told by it."""
        return {**self.server.environment, "AWS_ENDPOINT_URL": f"http://{self._proxy.address}"}

    @property
    def settings(self) -> str:
        """Lines of Spark's for executors: where they find the keys."""
        return "".join(f"spark.executorEnv.{name} {value}\n" for name, value in KEYS.items())

    def cut(self, way: str, chance: random.Random) -> None:
        """Hurt all connections in a way of `WAYS`, for a time of chance, and end that."""
        if way == _BROKEN:
            self._proxy.drop()
            return
        if way == _MUTE:
            self._proxy.swallow_replies()
        else:
            self._proxy.cut()
        time.sleep(chance.uniform(*_CUT_S))  # that it lasts so long is the test
        self._proxy.heal()

    def places(self, spec: TableSpec) -> dict[TopicPartition, list[int]]:
        """The offsets of a Delta table's rows, late rows and dead letters, as DuckDB reads them."""
        found: dict[TopicPartition, list[int]] = {}
        with with_extensions((duckdb_extension_httpfs, duckdb_extension_delta)) as connection:
            use_s3(connection, self.server.url)
            for side in (None, LATE, DEAD_LETTERS):
                if side is not None and not self._has(spec, side):
                    continue
                rows = connection.execute(
                    "select kafka_topic, kafka_partition, kafka_offset "
                    f"from delta_scan('{spec.directory(side)}')"
                ).fetchall()
                for topic, partition, offset in rows:
                    found.setdefault(TopicPartition(topic, partition), []).append(offset)
        return found

    def _has(self, spec: TableSpec, side: str) -> bool:
        directory = urlsplit(str(spec.directory(side)))
        found = self.server.client().list_objects_v2(
            Bucket=directory.netloc, Prefix=f"{directory.path.strip('/')}/_delta_log/", MaxKeys=1
        )
        return bool(found.get("Contents"))

    def _forget(self) -> None:
        for name in self.server.environment:
            if name in self._before:
                os.environ[name] = self._before[name]
            else:
                del os.environ[name]
