"""InitProducerId for idempotent producers (KIP-98, KIP-360)."""

from __future__ import annotations

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.producer_ids import ProducerIds
from strandline.node.request import Request
from strandline.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from strandline.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Instant, ProducerId


class InitProducerIdHandler:
    """Answers InitProducerId, versions 0 to 5. Transactional ids are refused: not served yet."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(self, request: Request[InitProducerIdRequest], now: Instant) -> None:
        """Give an id that was never given before, with epoch 0.

        A producer that names its old id because it lost its state gets a fresh one, too, which is
        as good as a bumped epoch: no other client knows it.
        """
        body = request.body
        if body.transactional_id is not None:
            code = (
                ErrorCode.INVALID_REQUEST
                if not body.transactional_id
                else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            _refuse(request, code)
            return

        def answer(taken: ProducerId | ProtocolError, at: Instant) -> None:
            del at
            if isinstance(taken, ProtocolError):
                _refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                request.reply(InitProducerIdResponse(producer_id=taken, producer_epoch=0))

        self._producer_ids.take(answer, now)


def _refuse(request: Request[InitProducerIdRequest], code: ErrorCode) -> None:
    request.reply(
        InitProducerIdResponse(
            error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    )
