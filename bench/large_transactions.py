"""`python -m bench.large_transactions`: what a huge transaction, and very many ids, do to a broker.

One broker in a process of its own. First one transaction joins every partition of a topic and is
committed; then so many transactional ids begin a transaction each, and time out together. All the
while a second connection asks for ApiVersions: the longest of these answers is how long the
broker's loop stood still at most, with what the machine did besides. Memory is the broker's, before
and after; CPU is the broker's for the whole of each step.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.brokers import COMMON_SETTINGS, StrandlineBroker, running_strandline
from bench.topics import Topics
from strandline.client.connection import Connection
from strandline.client.settings import Address, ClientSettings
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from strandline.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from strandline.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

MIB = 1 << 20
TIMEOUT_MS = 1000
PATIENCE_MS = 120_000
SETTINGS = {
    **COMMON_SETTINGS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
}


class Probe:
    """Asks again and again, and remembers the longest answer."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connection = connect()
        self.longest_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        request = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
        while not self._is_over.wait(0.001):
            before = time.monotonic()
            self._connection.call(ApiKey.API_VERSIONS, ApiVersionsResponse, request)
            self.longest_s = max(self.longest_s, time.monotonic() - before)

    def end(self) -> float:
        """Stop, and tell the longest answer in seconds."""
        self._is_over.set()
        self._thread.join()
        self._connection.close()
        return self.longest_s


class Bench:
    """The broker and what is asked of it."""

    def __init__(self, broker: StrandlineBroker) -> None:
        self._broker = broker
        self.connection = self.connect()

    def connect(self) -> Connection:
        """A connection of its own. A step may keep an answer waiting for long: that is measured."""
        return Connection.open(
            Address("127.0.0.1", self._broker.port), ClientSettings(request_timeout_ms=PATIENCE_MS)
        )

    def step(self, title: str, work: Callable[[], None]) -> None:
        """Do the work beside a probe, and print what it took."""
        probe = Probe(self.connect)
        cpu, began = self._broker.cpu_seconds(), time.monotonic()
        work()
        took, cpu = time.monotonic() - began, self._broker.cpu_seconds() - cpu
        longest_ms = probe.end() * 1000
        memory = self._broker.resident_bytes() / MIB
        print(
            f"{title:50} {took:7.2f} s {cpu:7.2f} s CPU {longest_ms:7.0f} ms longest answer "
            f"{memory:6.0f} MiB",
            flush=True,
        )

    def initialize(self, transactional_id: str, timeout_ms: int = 60_000) -> int:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = self.connection.call(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse, request)
        if response.error_code:
            sys.exit(f"InitProducerId of {transactional_id} failed: {response.error_code}")
        return response.producer_id

    def add(self, transactional_id: str, producer_id: int, topic: str, count: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=list(range(count)))
            ],
        )
        self.connection.call(
            ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnResponse, request, highest=3
        )

    def commit(self, transactional_id: str, producer_id: int) -> None:
        """Commit, and wait until every partition has its marker."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, committed=True
        )
        ended = self.connection.call(ApiKey.END_TXN, EndTxnResponse, request, highest=4)
        if ended.error_code:
            sys.exit(f"EndTxn failed: {ended.error_code}")
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        while True:
            [state] = self.connection.call(
                ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsResponse, asked
            ).transaction_states
            if state.transaction_state == "CompleteCommit":
                return

    def find(self, transactional_id: str) -> None:
        """Wait until there is a coordinator."""
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        while True:
            [found] = self.connection.call(
                ApiKey.FIND_COORDINATOR, FindCoordinatorResponse, request
            ).coordinators
            if not found.error_code:
                return

    def count_open(self) -> int:
        request = ListTransactionsRequest(state_filters=["Ongoing", "PrepareAbort"])
        response = self.connection.call(ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse, request)
        return len(response.transaction_states)


def main() -> None:
    """Measure both and print a line for each step."""
    parser = argparse.ArgumentParser(prog="python -m bench.large_transactions", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--ids", type=int, default=10_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as home,
        running_strandline(Path(home) / "broker", SETTINGS) as broker,
    ):
        _measure(Bench(broker), broker, given.partitions, given.ids)


def _measure(bench: Bench, broker: StrandlineBroker, partitions: int, ids: int) -> None:
    topics = Topics(broker.address)
    bench.find("wide")
    bench.step(
        f"create a topic of {partitions} partitions",
        lambda: topics.create("wide", partitions, leader_port=broker.port, replicas=1),
    )
    producer_id = bench.initialize("wide")
    bench.step(
        f"join {partitions} partitions", lambda: bench.add("wide", producer_id, "wide", partitions)
    )
    bench.step("commit until all have their markers", lambda: bench.commit("wide", producer_id))
    made: dict[str, int] = {}

    def initialize() -> None:
        for number in range(ids):
            made[f"id-{number}"] = bench.initialize(f"id-{number}", TIMEOUT_MS)

    def begin() -> None:
        for name, each in made.items():
            bench.add(name, each, "wide", 1)

    def time_out() -> None:
        while bench.count_open():
            time.sleep(0.05)

    bench.step(f"initialize {ids} ids", initialize)
    bench.step(f"begin {ids} transactions", begin)
    bench.step("until all have timed out", time_out)


if __name__ == "__main__":
    main()
