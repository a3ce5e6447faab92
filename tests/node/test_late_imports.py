"""`late_imports`: after it, a broker imports nothing of its own on first use."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Final

import pytest

from strandline.node import late_imports

USES: Final = """
import sys
import strandline.cli.broker, strandline.broker.startup
from strandline.node import late_imports

late_imports.import_in_thread()
(thread,) = [t for t in late_imports.threading.enumerate() if t.name == "strandline-imports"]
thread.join()

from strandline.testing.cluster import Cluster
inside = set(sys.modules)

from confluent_kafka import Consumer, Producer
with Cluster(2) as cluster:
    cluster.create_topic("t", assignment={0: [1, 2]}, min_insync_replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("t", b"value")
    assert producer.flush(30) == 0
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": "g",
        "auto.offset.reset": "earliest",
    })
    consumer.subscribe(["t"])
    assert consumer.poll(30).value() == b"value"
    cluster.kill(1)
    consumer.close()
print(*sorted(name for name in set(sys.modules) - inside if name.startswith("strandline.")))
"""


def test_a_broker_imports_nothing_of_its_own_on_first_use() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", USES], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == []


def test_without_memory_a_broker_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(name: str) -> None:
        raise MemoryError

    monkeypatch.setattr(late_imports, "import_module", fails)
    caplog.set_level(logging.WARNING)
    late_imports.import_in_thread()
    for thread in threading.enumerate():
        if thread.name == "strandline-imports":
            thread.join()
    assert "no memory to import modules early" in caplog.text
