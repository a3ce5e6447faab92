"""Producing the demo's events beside everything else that the process does.

This file knows the producer and one thread. It must not know the table.
"""

from __future__ import annotations

import threading
from typing import Final

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, ProtocolError, StrandlineError
from strandline.lakehouse.demo.flights import events
from strandline.records.codec import Codec

PARTITIONS: Final = 3
_FLUSH_EVERY: Final = 5_000
"""Records; what was given to the producer is sent at the latest after so many."""


class Production(threading.Thread):
    """Sends the events, in their order, to a topic; acknowledged by all replicas in sync.

    The route is the key: the flights of one route stay in order.
    """

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        super().__init__(name="strandline-demo-production", daemon=True)
        self._addresses = bootstrap
        self._topic = topic
        self._count = count
        self._stop_it = threading.Event()
        self.produced = 0
        """Acknowledged records. Written by this thread alone."""
        self.failure: StrandlineError | None = None

    def make_topic(self) -> None:
        """Create the topic. The events are of 2013, and none of them may expire."""
        with ClusterClient(self._addresses, _SETTINGS) as client:
            try:
                Admin(client).topics.create(
                    self._topic, partitions=PARTITIONS, configs={"retention.ms": "-1"}
                )
            except ProtocolError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def run(self) -> None:
        """The thread. What went wrong is in `failure`."""
        try:
            self._send_all()
        except StrandlineError as error:
            self.failure = error

    def end(self) -> None:
        """Stop producing, if it still does, and wait for the end."""
        self._stop_it.set()
        if self.ident is not None:
            self.join()

    def _send_all(self) -> None:
        with ClusterClient(self._addresses, _SETTINGS) as client:
            producer = Producer(client, ProducerSettings(codec=Codec.LZ4))
            for number, event in enumerate(events(self._count), start=1):
                producer.send(self._topic, event.value, key=event.key)
                if number % _FLUSH_EVERY == 0:
                    self._settle(producer)
                    if self._stop_it.is_set():
                        return
            self._settle(producer)

    def _settle(self, producer: Producer) -> None:
        result = producer.flush()
        result.raise_failure()
        self.produced += result.delivered


_SETTINGS: Final = ClientSettings(client_id="strandline-demo")
