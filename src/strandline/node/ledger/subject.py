"""The subject `ledger`: what is kept, and the bytes of one entry in pieces."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import allow_only, optional_integer, optional_text
from strandline.node.parts import NodeParts
from strandline.types import Instant

VERSION: Final = 1
PIECE_BYTES: Final = 4 << 20


def ledger(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """Without arguments, all entries. `id` and `position`: up to 4 MiB of an entry's batches."""
    del now
    allow_only(arguments, ("id", "position"))
    entry_id = optional_text(arguments, "id")
    ledgers = node.replicas.host.ledgers
    if entry_id is None:
        entries = [asdict(entry) for entry in ledgers.entries()]
        return {"version": VERSION, "broker": node.broker_id, "entries": entries}
    position = optional_integer(arguments, "position") or 0
    if position < 0:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The argument 'position' is negative.")
    data = ledgers.read(entry_id, position, PIECE_BYTES)
    return {"version": VERSION, "broker": node.broker_id, "data": b64encode(data).decode()}
