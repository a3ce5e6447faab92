"""Removing delegation tokens that have expired: the controller does, from time to time."""

from __future__ import annotations

import logging
from functools import partial

from strandline.cluster.controller.delegation_tokens import remove_expired_tokens
from strandline.cluster.znodes import TokenNode
from strandline.errors import ProtocolError
from strandline.node.controller_loop import ControllerLoop
from strandline.types import Instant

log = logging.getLogger(__name__)


class TokenExpiry:
    """See the module. Every broker looks at its clock, and the one that is the controller acts."""

    def __init__(self, controller: ControllerLoop) -> None:
        self._controller = controller

    def look(self, now: Instant) -> None:
        """Periodic work, where tokens are enabled."""
        if self._controller.is_controller:
            self._remove(now)

    def _remove(self, now: Instant) -> None:
        decide = partial(remove_expired_tokens, now_ms=now.wall_ms)
        self._controller.carry_out(decide, done=self._removed, failed=_failed, now=now)

    def _removed(self, tokens: tuple[TokenNode, ...], now: Instant) -> None:
        for token in tokens:
            log.info("The delegation token %s of %s has expired", token.token_id, token.owner)
        if tokens:
            self._remove(now)


def _failed(error: ProtocolError, now: Instant) -> None:
    del now
    log.warning("Delegation tokens that expired could not be removed: %s", error)
