"""One call of a client at a time: one beside that of another thread is refused, or waits for it.

Two at once would take one another's answers, and read the same records. Two readers are a mistake
of the program, and are refused as by Kafka's consumer; a producer serves threads in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from strandline.client.api.refusals import Use

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class Used(Protocol):
    """A client."""

    @property
    def _use(self) -> Use: ...


U = TypeVar("U", bound=Used)


def one_thread(client: C) -> C:
    """A class decorator: its public methods are `alone`. Calls that follow one another may come
    from different threads, and a listener may call the client that calls it."""
    for name, member in list(vars(client).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(client, name, alone(member))
    return client


def in_turn(client: C) -> C:
    """A class decorator: a call of a public method waits for the one of another thread to end."""
    for name, member in list(vars(client).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(client, name, _waiting(member))
    return client


def _waiting(method: Callable[Concatenate[U, P], R]) -> Callable[Concatenate[U, P], R]:
    @wraps(method)
    def called(client: U, /, *args: P.args, **named: P.kwargs) -> R:
        with client._use.lock:
            return method(client, *args, **named)

    return called


def alone(method: Callable[Concatenate[U, P], R]) -> Callable[Concatenate[U, P], R]:
    """The method; raises `ProtocolError` (INVALID_REQUEST) while another thread is in one."""

    @wraps(method)
    def called(client: U, /, *args: P.args, **named: P.kwargs) -> R:
        lock = client._use.lock
        if not lock.acquire(blocking=False):
            raise client._use.busy()
        try:
            return method(client, *args, **named)
        finally:
            lock.release()

    return called
