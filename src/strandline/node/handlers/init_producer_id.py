"""InitProducerId for idempotent and transactional producers (KIP-98, KIP-360)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.producer_ids import ProducerIds
from strandline.node.request import Request
from strandline.node.transaction_host import TransactionHost
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Instant, ProducerId

_FENCED_SINCE: Final = 4


class InitProducerIdHandler:
    """Answers InitProducerId, versions 0 to 5."""

    def __init__(
        self, producer_ids: ProducerIds, transactions: Callable[[], TransactionHost]
    ) -> None:
        """`transactions` makes the coordinator: without transactional ids it is not needed."""
        self._producer_ids = producer_ids
        self._transactions = transactions

    def handle(self, request: Request[InitProducerIdRequest], now: Instant) -> None:
        """Give an identity: a fresh id, or what the coordinator has for a transactional id.

        An idempotent producer that names its old id because it lost its state gets a fresh one,
        too, which is as good as a bumped epoch: no other client knows it.
        """
        body = request.body
        if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
            _refuse(request, ErrorCode.INVALID_REQUEST)
            return
        if body.transactional_id is not None:
            self._ask_coordinator(request, now)
            return

        def answer(taken: ProducerId | ProtocolError, at: Instant) -> None:
            del at
            if isinstance(taken, ProtocolError):
                _refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                request.reply(InitProducerIdResponse(producer_id=taken, producer_epoch=0))

        self._producer_ids.take(answer, now)

    def _ask_coordinator(self, request: Request[InitProducerIdRequest], now: Instant) -> None:
        def done(response: InitProducerIdResponse, _at: Instant) -> None:
            is_fenced = response.error_code == ErrorCode.PRODUCER_FENCED
            if is_fenced and request.version < _FENCED_SINCE:
                response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            request.reply(response)

        self._transactions().ask(request.body, request.version, done, now)


def _refuse(request: Request[InitProducerIdRequest], code: ErrorCode) -> None:
    request.reply(
        InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    )
