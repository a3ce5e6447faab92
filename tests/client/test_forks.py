"""Clients and clusters in a process that is forked from theirs: they stay with the other one."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import strandline
from strandline.errors import ErrorCode, ProtocolError
from strandline.testing import Cluster, ClusterError
from strandline.types import TopicPartition
from tests.alone import run_alone


def in_a_fork(work: Callable[[], object]) -> None:
    """Do this in a forked process, which drops all that it does not hold then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            gc.collect()
            status = 0
        except BaseException:  # noqa: BLE001 -- it must not come to what the other process does next
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ProtocolError, match="from which this one was forked") as found:
        call()
    assert found.value.code is ErrorCode.INVALID_REQUEST


def clients() -> None:
    at = TopicPartition("t", 0)
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        mine = cluster.client_config()
        group = {**mine, "group.id": "g", "auto.offset.reset": "earliest"}
        producer = strandline.Producer({**mine, "linger.ms": 60_000})
        transactional = strandline.Producer({**mine, "transactional.id": "x"})
        member = strandline.Consumer(group)
        worker = strandline.ShareConsumer({**mine, "group.id": "s"})
        admin = strandline.Admin(mine)
        with producer, transactional, member, worker, admin:
            producer.send("t", b"before")
            producer.flush()
            producer.send("t", b"lingers")
            transactional.begin()
            transactional.send("t", b"in a transaction")
            transactional._producer.flush()
            member.subscribe(["t"])
            while not member.assignment:
                member.poll()
            worker.subscribe(["t"])
            admin.list_topics()

            def work() -> None:
                refused(lambda: producer.send("t", b"from the fork"))
                refused(producer.flush)
                refused(transactional.commit)
                refused(member.poll)
                refused(lambda: member.position(at))
                refused(worker.poll)
                refused(admin.list_topics)
                for each in (producer, transactional, member, worker, admin):
                    each.close()
                with strandline.Producer(mine) as another:
                    another.send("t", b"from another")

            in_a_fork(work)
            transactional.commit()
            producer.send("t", b"after")
            assert producer.flush().delivered == 2
            assert member.group_metadata.member_id in {
                each.member_id for each in admin.describe_group("g").members
            }
            records = {record.value for _ in range(4) for record in member.poll()}
        with strandline.Consumer(mine) as reader:
            assert reader.end_offsets([at]) == {at: 6}  # and the marker of the commit
        assert records <= {
            *(b"before", b"lingers", b"in a transaction", b"from another", b"after"),
        }


def clients_of_a_loop() -> None:
    async def run(cluster: Cluster) -> None:
        mine = cluster.client_config()
        producer = strandline.AsyncProducer(mine)
        consumer = strandline.AsyncConsumer({**mine, "group.id": "g"})
        worker = strandline.AsyncShareConsumer({**mine, "group.id": "s"})
        async with producer, consumer, worker:
            await producer.send_and_wait("t", b"before")
            await consumer.subscribe(["t"])
            await consumer.poll()
            await worker.subscribe(["t"])

            async def work() -> None:
                for call in (producer.flush, consumer.poll, worker.poll):
                    with pytest.raises(ProtocolError, match="was forked"):
                        await call()
                for each in (producer, consumer, worker):
                    await each.close()

            def alone() -> None:
                asyncio._set_running_loop(None)
                asyncio.run(work())

            in_a_fork(alone)
            await producer.send_and_wait("t", b"after")

    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        asyncio.run(run(cluster))


def clients_in_a_call() -> None:
    """The thread that is in a call is not there in the fork, and never ends it."""
    with Cluster(brokers=1) as cluster:
        mine = cluster.client_config()
        with strandline.Producer(mine) as producer, strandline.Admin(mine) as admin:
            are_in_calls, may_end = threading.Event(), threading.Event()

            def call() -> None:
                with producer._use.lock, admin._use.lock:
                    are_in_calls.set()
                    may_end.wait()

            def work() -> None:
                refused(lambda: producer.send("t", b"from the fork"))
                refused(admin.list_topics)
                producer.close()
                admin.close()

            thread = threading.Thread(target=call)
            thread.start()
            are_in_calls.wait()
            in_a_fork(work)
            may_end.set()
            thread.join()


def clusters() -> None:
    cluster = Cluster(brokers=1).open()
    cluster.create_topic("t")

    def work() -> None:
        for call in (cluster.status, cluster.kill):
            with pytest.raises(ClusterError, match="from which this one was forked"):
                call()
        cluster.close()

    def forget() -> None:
        nonlocal cluster
        del cluster

    in_a_fork(work)
    in_a_fork(forget)
    assert Path(cluster.data_dir).exists()
    cluster.create_topic("u")
    cluster.close()


@pytest.mark.parametrize("part", [clients, clients_of_a_loop, clients_in_a_call, clusters])
def test_what_a_fork_inherits_stays_with_the_process_that_made_it(part: Callable[[], None]) -> None:
    run_alone(part)
