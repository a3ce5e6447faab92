"""One client sends many requests at once and takes its answers late."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import LocalBroker, Wire
from tests.broker.test_tls import TlsWire, context_of, port_of, secured
from tests.certificates import Authority, Certificate

PARTITIONS = 300
REQUESTS = 600
"""Their answers are more than sockets hold."""


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_requests_sent_at_once_are_answered_as_their_answers_are_taken(
    tmp_path: Path, authority: Authority, certificate: Certificate, is_encrypted: bool
) -> None:
    with (
        LocalBroker(tmp_path / "data", *secured(certificate)) as broker,
        Wire(port_of(broker, "PLAINTEXT")) as other,
    ):
        other.create_topic("orders", PARTITIONS)
        port = port_of(broker, "SSL" if is_encrypted else "PLAINTEXT")
        with TlsWire(port, context_of(authority)) if is_encrypted else Wire(port) as many:
            many.send(*[(MetadataRequest(topics=None), 9)] * REQUESTS)
            assert other.ask(MetadataRequest(topics=[]), 9).topics == []
            for _ in range(REQUESTS):
                [topic] = many.receive().topics
                assert len(topic.partitions) == PARTITIONS
            assert many.ask(MetadataRequest(topics=[]), 9).topics == []
