"""Inspect: the subjects that a broker can be asked about, and the one handler for all of them.

A subject is a function `(node, arguments, now) -> document`, in a file of its own that is imported
when it is first asked for. It runs in the node's turn, so it must be quick, and it sees everything
that the node holds: its answer is consistent. This file knows names, sizes and who may ask; it
must not know what any subject says. Why this is a request at all stands in design note 0012.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.parts import NodeParts
from strandline.node.request import Request
from strandline.protocol.messages.inspect import InspectRequest, InspectResponse
from strandline.types import Instant

log = logging.getLogger(__name__)

ARGUMENTS_BYTES_MAX: Final = 1 << 16
DOCUMENT_BYTES_MAX: Final = 32 << 20
_MESSAGE_CHARACTERS_MAX: Final = 4000

Arguments: TypeAlias = Mapping[str, object]
JsonObject: TypeAlias = Mapping[str, object]
Answer: TypeAlias = Callable[[NodeParts, Arguments, Instant], JsonObject]
"""Raises `ProtocolError` for what cannot be answered; INVALID_REQUEST for wrong arguments."""


class Subject(NamedTuple):
    """Where a subject's function is (`module:function`), and who may ask for it."""

    where: str
    is_loopback_only: bool = False
    """For what changes something that no Kafka client could change."""

    def load(self) -> Answer:
        """The function."""
        module, name = self.where.split(":")
        found: Answer = getattr(import_module(module), name)
        return found


SUBJECTS: Final[Mapping[str, Subject]] = MappingProxyType(
    {
        "picture": Subject("strandline.node.status.picture:picture"),
        "compact": Subject("strandline.node.explain.compact:compact"),
        "explain": Subject("strandline.node.explain.subject:explain"),
        "faults": Subject("strandline.node.fault_address:faults", is_loopback_only=True),
        "ledger": Subject("strandline.node.ledger.subject:ledger"),
        "status": Subject("strandline.node.status.snapshot:status"),
        "why": Subject("strandline.node.why.subject:why"),
    }
)


class InspectHandler:
    """Answers Inspect, version 0."""

    def __init__(self, node: NodeParts) -> None:
        self._node = node

    def handle(self, request: Request[InspectRequest], now: Instant) -> None:
        """Find the subject, ask it, and answer with its document."""
        body = request.body
        try:
            subject = _find(body.subject, request.connection.client_host)
            document = subject(self._node, _parse(body.arguments), now)
            encoded = _encode(body.subject, document)
        except ProtocolError as error:
            request.reply(_refused(error.code, error.message))
        except StorageError as error:
            log.error("The subject %s cannot be answered: %s", body.subject, error)
            request.reply(_refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        else:
            request.reply(InspectResponse(document=encoded))


def is_loopback(host: str) -> bool:
    """Whether a client's address is of the machine on which the broker runs."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _find(name: str, client_host: str) -> Answer:
    subject = SUBJECTS.get(name)
    if subject is None:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"There is no subject '{name[:100]}'; there are {', '.join(sorted(SUBJECTS))}.",
        )
    if subject.is_loopback_only and not is_loopback(client_host):
        raise ProtocolError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"The subject '{name}' can be asked only from the machine on which the broker runs.",
        )
    return _load(subject)


@cache
def _load(subject: Subject) -> Answer:
    return subject.load()


def _parse(arguments: bytes) -> Arguments:
    if not arguments:
        return {}
    if len(arguments) > ARGUMENTS_BYTES_MAX:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"The arguments have {len(arguments)} bytes; {ARGUMENTS_BYTES_MAX} are allowed.",
        )
    try:
        parsed = json.loads(arguments)
        json.dumps(parsed, ensure_ascii=False).encode()  # JSON can say "\\ud800", answers cannot
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"The arguments are not JSON: {error}."
        ) from error
    if not isinstance(parsed, dict):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The arguments are not a JSON object.")
    return parsed


def _encode(name: str, document: JsonObject) -> bytes:
    encoded = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    if len(encoded) > DOCUMENT_BYTES_MAX:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The document '{name}' would have {len(encoded)} bytes, and {DOCUMENT_BYTES_MAX} are "
            "allowed: ask for less of it.",
        )
    return encoded


def _refused(code: ErrorCode, message: str) -> InspectResponse:
    return InspectResponse(error_code=code, error_message=message[:_MESSAGE_CHARACTERS_MAX] or None)
