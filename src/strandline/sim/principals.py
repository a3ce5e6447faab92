"""Who a simulated client is: its host says it."""

from __future__ import annotations

from typing import Final

from strandline.types import ANONYMOUS, USER, Principal

INTRUDER: Final = "intruder"
"""The host of a client that may do nothing begins so."""


def principal_of(host: str) -> Principal:
    """Brokers and other clients are super users where there is an authorizer."""
    return Principal(USER, INTRUDER) if host.startswith(INTRUDER) else ANONYMOUS
