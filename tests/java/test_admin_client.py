"""Kafka's Admin client in Java: one run of AdminChecks, its answers compared one by one."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.java.processes import Broker, ToolServer

REFUSED: Final = "UnsupportedVersionException"
EXPECTED: Final[dict[str, Any]] = {
    "cluster controller": 1,
    "cluster operations": [
        "ALTER",
        "ALTER_CONFIGS",
        "CLUSTER_ACTION",
        "CREATE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "IDEMPOTENT_WRITE",
    ],
    "log directories": [True],
    "create, validate only": "done",
    "topics before": False,
    "create": [2, 1, "1234567"],
    "create again": "TopicExistsException",
    "create with a gap": "InvalidReplicaAssignmentException",
    "create with defaults": 1,
    "describe by id": [
        "admin-checks",
        2,
        False,
        [
            "ALTER",
            "ALTER_CONFIGS",
            "CREATE",
            "DELETE",
            "DESCRIBE",
            "DESCRIBE_CONFIGS",
            "READ",
            "WRITE",
        ],
    ],
    "describe by unknown id": "UnknownTopicIdException",
    "describe by name": True,
    "describe nothing": "UnknownTopicOrPartitionException",
    "list": True,
    "grow, validate only": "done",
    "grow": "done",
    "grow again": "InvalidPartitionsException",
    "grow to an unknown broker": "InvalidReplicaAssignmentException",
    "partitions": 4,
    "setting": [
        "1234567",
        "DYNAMIC_TOPIC_CONFIG",
        "LONG",
        False,
        False,
        ["DYNAMIC_TOPIC_CONFIG retention.ms"],
    ],
    "settings documented": [],
    "set": "done",
    "append": "done",
    "appended": "delete,compact",
    "subtract": "done",
    "subtracted": "delete",
    "append to what is no list": "InvalidConfigurationException",
    "delete": "done",
    "deleted": "DEFAULT_CONFIG",
    "set nonsense": "InvalidConfigurationException",
    "set out of range": "InvalidConfigurationException",
    "broker setting": ["STATIC_BROKER_CONFIG", True],
    "sensitive": [True, True],
    "settings of no topic": "UnknownTopicOrPartitionException",
    "resources": ["BROKER 1"],
    "offset earliest": [0, -1, 0],
    "offset latest": [4, -1, 0],
    "offset max timestamp": [2, 9000, 0],
    "offset earliest local": [0, -1, 0],
    "offset latest tiered": [-1, -1, -1],
    "offset earliest pending upload": [-1, -1, -1],
    "offset timestamp 2000": [1, 3000, 0],
    "offset timestamp 9001": [-1, -1, -1],
    "delete records": 1,
    "delete all records": 0,
    "delete too many records": "OffsetOutOfRangeException",
    "alter group offsets": "done",
    "alter group offsets of nothing": "UnknownTopicOrPartitionException",
    "group offsets": {"admin-checks-0": [3, "seen", 0], "admin-checks-1": [8, "", -1]},
    "offsets of several groups": ["admin-group 1", "nobody 0"],
    "list groups": ["Classic Empty ''"],
    "describe group": ["EMPTY", "CLASSIC", 1, 0],
    "describe classic group": "EMPTY",
    "describe nobody": "GroupIdNotFoundException",
    "delete group offsets": "done",
    "group offsets left": "[admin-checks-1]",
    "delete groups": "done",
    "delete nobody": "GroupIdNotFoundException",
    "delete by id": "done",
    "delete by id again": "UnknownTopicIdException",
    "delete by name": "done",
    "delete nothing": "UnknownTopicOrPartitionException",
    "topics after": False,
    "producers": "done",
    "transactions": "done",
    "elect who leads": "ElectionNotNeededException",
    "list reassignments": "done",
    "access control without an authorizer": "SecurityDisabledException",
    "refused: quorum": REFUSED,
    "credentials": "done",
    "share groups": "GroupIdNotFoundException",
}


def test_every_answer(tools: ToolServer, broker: Broker) -> None:
    answers: dict[str, Any] = json.loads(tools.run("AdminChecks", broker.address).succeeded())
    assert answers.pop("cluster id") == broker.report["cluster_id"]
    assert answers.pop("cluster nodes") == [f"1 {broker.address}"]
    assert answers.keys() == EXPECTED.keys()
    wrong = {
        question: {"answer": answer, "expected": EXPECTED[question]}
        for question, answer in answers.items()
        if answer != EXPECTED[question]
    }
    assert not wrong, json.dumps(wrong, indent=1)
