"""What a node of Apache Kafka is told: its own settings, and what all nodes must agree on."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4


@dataclass(frozen=True, slots=True)
class Quorum:
    """What all nodes of one Kafka cluster must agree on. `voters`: node id to controller port."""

    voters: Mapping[int, int]
    cluster_id: str = field(default_factory=lambda: _kafka_uuid())


def kafka_settings(
    node_id: int, port: int, quorum: Quorum, data: Path, settings: Mapping[str, str]
) -> dict[str, str]:
    """Kafka's configuration: KRaft, defaults but for the harness's own settings."""
    controller_port = quorum.voters[node_id]
    node = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{voter}@127.0.0.1:{voter_port}" for voter, voter_port in quorum.voters.items()
        ),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # Internal topics of a single node; their defaults ask for three.
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return {**node, **settings}


def as_properties(settings: Mapping[str, str]) -> str:
    """As a file of Java's properties."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _kafka_uuid() -> str:
    """Kafka writes UUIDs as 22 characters of URL-safe base64; one must not start with a dash."""
    while (text := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text
