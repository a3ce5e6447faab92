"""UnregisterBroker: the cluster forgets a broker that will not come back."""

from __future__ import annotations

from functools import partial

from strandline.cluster.controller import Refusal, unregister_broker
from strandline.errors import ProtocolError
from strandline.node.controller import Controller
from strandline.node.request import Request
from strandline.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from strandline.types import BrokerId, Instant


class UnregisterBrokerHandler:
    """Answers UnregisterBroker, version 0, on any broker: Kafka's client asks any of them."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handle(self, request: Request[UnregisterBrokerRequest], now: Instant) -> None:
        """Forget the broker if it is down."""

        def done(results: tuple[Refusal | None, ...], at: Instant) -> None:
            del at
            for refusal in results:
                request.reply(_response(refusal))

        def failed(error: ProtocolError, at: Instant) -> None:
            del at
            request.reply(_response(Refusal.of(error)))

        decide = partial(unregister_broker, broker_id=BrokerId(request.body.broker_id))
        self._controller.carry_out(decide, done=done, failed=failed, now=now)


def _response(refusal: Refusal | None) -> UnregisterBrokerResponse:
    if refusal is None:
        return UnregisterBrokerResponse()
    return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.message)
