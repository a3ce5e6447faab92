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
    return _guarded(client, waits=False)


def in_turn(client: C) -> C:
    """A class decorator: a call of a public method waits for the one of another thread to end."""
    return _guarded(client, waits=True)


def _guarded(client: C, *, waits: bool) -> C:
    for name, member in list(vars(client).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(client, name, alone(member, waits=waits))
    return client


def waiting(method: Callable[Concatenate[U, P], R]) -> Callable[Concatenate[U, P], R]:
    """The method; it waits for the call of another thread to end."""
    return alone(method, waits=True)


def alone(
    method: Callable[Concatenate[U, P], R], *, waits: bool = False
) -> Callable[Concatenate[U, P], R]:
    """The method; raises `ProtocolError` (INVALID_REQUEST) while another thread is in one, unless
    it `waits` for that to end."""

    @wraps(method)
    def called(client: U, /, *args: P.args, **named: P.kwargs) -> R:
        use = client._use
        if not use.lock.acquire(blocking=False):
            if use.is_inherited:
                # The thread that has it may not be in this fork. The call is refused, or says
                # nothing to brokers.
                return method(client, *args, **named)
            if not waits:
                raise use.busy()
            use.lock.acquire()
        try:
            return method(client, *args, **named)
        finally:
            use.lock.release()

    return called
