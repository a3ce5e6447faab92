"""A fetch that is on its way, on an event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from strandline.client.aio.connection import Connection
from strandline.client.fetch_session import FetchSession
from strandline.client.fetching import FetchFrom
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.fetch import FetchResponse
from strandline.types import BrokerId, TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class FetchInFlight:
    """What was asked of whom."""

    broker: BrokerId
    connection: Connection
    answer: asyncio.Future[object]
    session: FetchSession
    asked: dict[TopicPartition, FetchFrom]

    def response(self) -> FetchResponse:
        """The answer, which has come. Raises `ProtocolError` if it has not, and never will."""
        response = self.answer.result()
        if not isinstance(response, FetchResponse):
            raise ProtocolError(ErrorCode.NETWORK_EXCEPTION, "The answer is no answer to a fetch.")
        return response
