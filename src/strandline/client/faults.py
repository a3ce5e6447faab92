"""Asking a local cluster for faults: the client's side of `broker.fault_control`.

    cause(find_control(cluster), Fault("kill", (1,)))

One line of JSON is sent and one comes back, on a connection of its own: the brokers' ports are no
way in, since those of a paused broker do not answer. Every broker says where to connect, if its
cluster was started with `--faults`. This file knows the lines; a caller with an event loop sends
them itself (`asking`, `asking_for_states`, `done_of`, `states_of`).
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import Any, Final

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect
from strandline.client.settings import Address, parse_addresses
from strandline.errors import ErrorCode, ProtocolError

FAULTS: Final = (
    "pause",
    "resume",
    "kill",
    "restart",
    "partition",
    "heal",
    "slow-disk",
    "expire-session",
)
DELAY_MS_DEFAULT: Final = 500
DELAY_MS_MAX: Final = 60_000
PATIENCE_S: Final = 120.0
"""A restart after a kill waits until the session of the killed broker has ended."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen to which brokers; `delay_ms` is for slow disks only."""

    fault: str
    brokers: tuple[int, ...]
    delay_ms: int = DELAY_MS_DEFAULT


def find_control(cluster: ClusterClient) -> Address:
    """Where faults can be asked for, from the first broker that says it.

    Raises `ProtocolError`; POLICY_VIOLATION, with the flag's name, if faults are not allowed.
    """
    failure: ProtocolError | None = None
    for broker_id in sorted(cluster.refresh().brokers):
        try:
            return parse_addresses(inspect(cluster, broker_id, "faults")["address"])[0]
        except ProtocolError as error:
            failure = failure or error
    raise failure or ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, "No broker is registered.")


def cause(address: Address, fault: Fault) -> str:
    """Have it done; what was done, as a sentence. Raises `ProtocolError`."""
    try:
        with socket.create_connection(address, PATIENCE_S) as connection:
            connection.sendall(asking(fault))
            line = connection.makefile("rb").readline()
    except OSError as error:
        raise not_asked(address, error) from error
    return done_of(line)


# -- The lines ---------------------------------------------------------------------------------


def asking(fault: Fault) -> bytes:
    """The request for a fault."""
    return json.dumps(asdict(fault)).encode() + b"\n"


def asking_for_states() -> bytes:
    """The request for how every broker is."""
    return b'{"question": "states"}\n'


def done_of(line: bytes) -> str:
    """What was done. Raises `ProtocolError` with the sentence of the refusal."""
    return str(_answer(line, "done"))


def states_of(line: bytes) -> list[dict[str, Any]]:
    """For each broker: id, life (running, paused, restarting, down), is_cut_off, slow_ms or None.

    Raises `ProtocolError`.
    """
    found: list[dict[str, Any]] = _answer(line, "brokers")
    return found


def not_asked(address: Address, error: Exception) -> ProtocolError:
    """The error for a control that cannot be reached, or hung up."""
    why = str(error) or "it does not answer"
    return ProtocolError(
        ErrorCode.NETWORK_EXCEPTION, f"The fault control at {address} cannot be asked: {why}."
    )


def _answer(line: bytes, name: str) -> Any:
    try:
        answer = json.loads(line or b"{}")
        if name in answer:
            return answer[name]
        refusal = str(answer.get("error", "There was no answer."))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(
            ErrorCode.NETWORK_EXCEPTION, f"The fault control answered with no JSON: {error}."
        ) from error
    raise ProtocolError(ErrorCode.INVALID_REQUEST, refusal)
