"""Kafka's producer and consumer in Java: one run of ClientChecks, its answers compared."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.java.processes import Broker, ToolServer

EXPECTED: Final[dict[str, Any]] = {
    "idempotent none": [99, 99, 99, 99],
    "idempotent gzip": [199, 199, 199, 199],
    "idempotent snappy": [299, 299, 299, 299],
    "idempotent lz4": [399, 399, 399, 399],
    "idempotent zstd": [499, 499, 499, 499],
    "acks 0": False,
    "acks 1": 501,
    "too large": "RecordTooLargeException",
    "after too large": 0,
    "bad name": "InvalidTopicException",
    "partitions": 4,
    "no offset": "NoOffsetForPartitionException",
    "beginnings": [0, 0],
    "ends": [502, 500],
    "by time": [50, 1_000_000_000_200, "null"],
    "committed before": "null",
    "seek": [498, 499, 500, 501],
    "pause": [0, 1],
    "lag": 500,
    "commit": [77, "mine"],
    "out of range": "OffsetOutOfRangeException",
    "cooperative": ["+4", "-2", "+2", "-4"],
    "static": 0,
    "static, twice": "FencedInstanceIdException",
    "pattern": True,
    "transactional": "begun",
    "group.protocol=consumer": "records",
    "share group": "records",
}


def test_every_answer(tools: ToolServer, broker: Broker) -> None:
    answers: dict[str, Any] = json.loads(tools.run("ClientChecks", broker.address).succeeded())
    assert answers.keys() == EXPECTED.keys()
    wrong = {
        question: {"answer": answer, "expected": EXPECTED[question]}
        for question, answer in answers.items()
        if answer != EXPECTED[question]
    }
    assert not wrong, json.dumps(wrong, indent=1)
