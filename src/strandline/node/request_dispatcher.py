"""From the frame of one request to its handler, and what the connection learns from it.

This file knows the header of requests, which versions are served, and where quotas count. It must
not know what any API does: `routes` has the handlers.
"""

from __future__ import annotations

import logging
from typing import Any

from strandline.errors import MalformedFrame
from strandline.node.connection import Connection
from strandline.node.parts import NodeParts
from strandline.node.produce_fast_path import JoinedTransaction, ProduceFastPath
from strandline.node.request import Handler, Request
from strandline.node.routes import Routes
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import REQUEST_ELEMENTS_MAX, parse_request_header
from strandline.protocol.messages.produce import ProduceRequest
from strandline.protocol.schema import decode_from
from strandline.types import Instant

log = logging.getLogger(__name__)


class RequestDispatcher:
    """See the module."""

    def __init__(self, routes: Routes, node: NodeParts) -> None:
        self._routes = routes
        self._outbox = node.outbox
        self._quotas = node.quotas
        self._replicas = node.replicas
        self._transactions = node.transactions

    def dispatch(self, connection: Connection, frame: memoryview, now: Instant) -> None:
        """Have one whole request handled. Raises `MalformedFrame`."""
        header, position = parse_request_header(frame)
        api_key, version, correlation_id, client_id = header
        handler = self._routes.find(api_key)
        if handler is None:
            raise MalformedFrame(f"The API with key {api_key} is not served.")
        api = KNOWN[api_key]
        if not api.versions.covers(version):
            if api_key != ApiKey.API_VERSIONS:
                raise MalformedFrame(
                    f"Version {version} of {api.name} is not served, only {api.versions}."
                )
            self._routes.refuse_version(
                Request(connection, self._outbox, api.key, version, correlation_id, None, None)
            )
            return
        # Bytes behind the body are left alone, as Kafka does: librdkafka 2.16 sends three of them
        # after a Metadata request for all topics.
        body: object = decode_from(
            api.request_class, version, frame, position, REQUEST_ELEMENTS_MAX
        )[0]
        request: Request[Any] = Request(
            connection,
            self._outbox,
            api.key,
            version,
            correlation_id,
            client_id,
            body,
            now.monotonic_ms,
        )
        self._handle(handler, request, len(frame), now)
        if api_key == ApiKey.PRODUCE and request.amend is None:
            self._learn(request, frame)
        elif api_key == ApiKey.FETCH and self._routes.fetches is not None:
            self._routes.fetches.learn(request, frame, now)

    def _handle_limited(
        self, handler: Handler, request: Request[Any], size: int, now: Instant
    ) -> None:
        """Handle a request of a client that may have quotas."""
        timed = self._quotas.begin(request)
        if request.api_key == ApiKey.PRODUCE:
            self._quotas.produced(request, size, now)
        handler(request, now)
        if timed is not None:
            timed.handled()

    def _learn(self, request: Request[ProduceRequest], frame: memoryview) -> None:
        """Give further produce requests of this shape the fast path."""
        body, connection = request.body, request.connection
        if (
            body.acks not in (1, -1)
            or len(body.topic_data) != 1
            or self._quotas.limits_producing(request)
        ):
            return
        topic = body.topic_data[0]
        if len(topic.partition_data) != 1 or connection.closing is not None:
            return
        number = topic.partition_data[0].index
        replica = self._replicas.for_fast_path(topic.name, topic.topic_id, number)
        if replica is None:
            return
        joined: JoinedTransaction | None = None
        if body.transactional_id is not None:
            verifier = self._transactions.verifier
            joined = JoinedTransaction(body.transactional_id, replica.topic_partition, verifier)
        if not isinstance(connection.fast_path, ProduceFastPath):
            connection.fast_path = ProduceFastPath(connection, self._outbox)
        connection.fast_path.learn(frame, request, replica, joined)

    def _handle(self, handler: Handler, request: Request[object], size: int, now: Instant) -> None:
        try:
            if self._quotas.is_limited:
                self._handle_limited(handler, request, size, now)
            else:
                handler(request, now)
        except Exception as error:
            # The boundary: one connection pays for a bug of ours, not the broker.
            log.exception("%s from %s failed", request.api_key.name, request.connection.client_host)
            request.abandon(f"{request.api_key.name} failed: {error}")
