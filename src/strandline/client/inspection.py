"""Asking Strandline brokers about themselves: the client's side of `node.inspection`.

    document = inspect(cluster, BrokerId(1), "status", topics=["orders"])

Each broker knows its own part only, so most questions are for all of them. Other Kafka brokers do
not know the request, and close the connection upon it; that becomes a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.refusal import check
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.inspect import InspectRequest, InspectResponse
from strandline.types import BrokerId

Document = dict[str, Any]
ByBroker = Mapping[BrokerId, Document | ProtocolError]
"""What each of several brokers said."""


def inspect(
    cluster: ClusterClient, broker_id: BrokerId, subject: str, **arguments: object
) -> Document:
    """What one broker says about a subject. Raises `ProtocolError`: the subject's own, or
    UNSUPPORTED_VERSION if the broker hung up, as one that is not Strandline's does."""
    request = InspectRequest(subject=subject, arguments=json.dumps(arguments).encode())
    try:
        return _ask(cluster.connection_to(broker_id), request)
    except ProtocolError as error:
        if error.code is not ErrorCode.NETWORK_EXCEPTION:
            raise
    # The connection may have been to a process that is gone. A new one is made, once.
    connection = cluster.connection_to(broker_id)
    try:
        return _ask(connection, request)
    except ProtocolError as error:
        if error.code is not ErrorCode.NETWORK_EXCEPTION:
            raise
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Broker {broker_id} at {connection.address} hung up when it was asked for "
            f"'{subject}': either it is no Strandline broker, or it has just stopped.",
        ) from error


def inspect_each(
    cluster: ClusterClient, subject: str, **arguments: object
) -> dict[BrokerId, Document | ProtocolError]:
    """What every broker that is registered says, or why it says nothing, by their ids."""
    found: dict[BrokerId, Document | ProtocolError] = {}
    for broker_id in sorted(cluster.refresh().brokers):
        try:
            found[broker_id] = inspect(cluster, broker_id, subject, **arguments)
        except ProtocolError as error:
            found[broker_id] = error
    return found


def answers_of(by_broker: ByBroker) -> dict[BrokerId, Document]:
    """What the brokers said that said something."""
    return {
        each: found for each, found in by_broker.items() if not isinstance(found, ProtocolError)
    }


def inspect_all(
    cluster: ClusterClient, subject: str, **arguments: object
) -> dict[BrokerId, Document]:
    """As `inspect_each`, but raises the error of the first broker that has one."""
    found: dict[BrokerId, Document] = {}
    for broker_id, document in inspect_each(cluster, subject, **arguments).items():
        if isinstance(document, ProtocolError):
            raise document
        found[broker_id] = document
    return found


def _ask(connection: Connection, request: InspectRequest) -> Document:
    response = connection.call(ApiKey.INSPECT, InspectResponse, request)
    check(response.error_code, response.error_message, f"subject '{request.subject}'")
    try:
        document = json.loads(response.document)
    except ValueError as error:
        raise MalformedFrame(f"The broker at {connection.address} sent no JSON.") from error
    if not isinstance(document, dict):
        raise MalformedFrame(f"The broker at {connection.address} sent no JSON object.")
    return document
