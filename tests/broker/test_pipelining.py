"""One client sends many requests at once, or large ones, and takes its answers late."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.protocol.messages.metadata import MetadataRequest
from strandline.records.codec import Codec
from tests.broker.harness import LocalBroker, Wire
from tests.broker.test_tls import TlsWire, context_of, port_of, secured
from tests.certificates import Authority, Certificate
from tests.node.messages import batch, produce

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


def test_requests_behind_one_that_takes_long_are_answered_behind_it(tmp_path: Path) -> None:
    """Its batches are small until they are looked into."""
    data = batch(bytes(8_000_000), codec=Codec.ZSTD)
    partitions = 20
    with (
        LocalBroker(tmp_path / "data") as broker,
        Wire(broker.port) as wire,
        Wire(broker.port) as other,
    ):
        wire.create_topic("orders", partitions)
        long = produce({("orders", number): data for number in range(partitions)})
        wire.send((long, 9), (produce(batch(b"b")), 9), (MetadataRequest(topics=[]), 9))
        assert other.ask(MetadataRequest(topics=[]), 9).topics == []
        for base in ([0] * partitions, [1]):
            [topic] = wire.receive().responses
            assert [each.base_offset for each in topic.partition_responses] == base
            assert not any(each.error_code for each in topic.partition_responses)
        assert wire.receive().topics == []
