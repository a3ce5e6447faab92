"""Running the page's server: in the foreground, or as the child of a process with brokers.

It is a process of its own in any case: drawing for pages must not take the time of brokers, and
Python runs one thread at a time. A child ends with its parent, whatever became of that: its
standard input then ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

import uvicorn

from strandline.broker.addresses import bound_socket
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import Address
from strandline.config.listeners import host_and_port
from strandline.errors import CannotListen, InvalidSetting, InvariantViolated
from strandline.schemas.sources import Schemas
from strandline.ui.access import Tokens
from strandline.ui.app import application
from strandline.ui.faults import FaultInjector, finder
from strandline.ui.questions import Question

DEFAULT_PORT: Final = 8989
"""Of a page beside brokers."""
_PORTS_TRIED: Final = 20
_STOP_SECONDS: Final = 2


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose. Raises `CannotListen`."""
    try:
        made = bound_socket(host, port)
        try:
            made.listen()  # from now on a browser waits for the server and is not refused
        except OSError:
            made.close()
            raise
    except OSError as error:
        where = host_and_port(host, port)
        raise CannotListen(
            "ui-port", f"The page cannot be served at {where}: {error.strerror}."
        ) from error
    return made


def listen_from(host: str, first: int = DEFAULT_PORT) -> socket.socket:
    """A listening socket at the first free port from `first` on, or at any if many are taken."""
    for port in range(first, first + _PORTS_TRIED):
        try:
            return listen(host, port)
        except CannotListen as error:
            if not _is_taken(error):
                raise
    return listen(host, 0)


def _is_taken(error: CannotListen) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE


def address_of(listening: socket.socket, *, is_secure: bool = False) -> str:
    """What to open in a browser."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if is_secure else 'http'}://{host_and_port(host, port)}/"


def check_certificate(path: str) -> None:
    """Raise `InvalidSetting` unless the page can be served over TLS with it."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            path,
            password=str,  # an encrypted key would ask the terminal
        )
    except (OSError, ValueError) as error:  # what TLS refuses is an OSError
        raise InvalidSetting(
            "certificate", f"{path} is no PEM file with a private key and its certificate: {error}."
        ) from error


def is_local(listening: socket.socket) -> bool:
    """Whether only this machine reaches it."""
    return ip_address(listening.getsockname()[0]).is_loopback


def serve(
    listening: socket.socket,
    bootstrap: str | None,
    *,
    control: Address | None = None,
    schemas: Schemas | None = None,
    until: Callable[[], None] | None = None,
    may_edit: bool = False,
    tables: Question | None = None,
    tokens: Tokens | None = None,
    certificate: str | None = None,
    security: Security = PLAINTEXT,
) -> None:
    """Serve until a signal comes, or until `until`, which is called in a thread, returns.

    `control` is where faults can be asked for, if that is known; `schemas` are those that records
    are decoded by. With `may_edit` pages may produce records and reset groups. `tables` is asked
    for what lakehouse tables are there. `tokens` are needed where others than this machine reach
    the page. `certificate` is a PEM file with a key and certificates, to serve it over TLS;
    `security` is what lets the page in at the brokers.
    """
    host = listening.getsockname()[0]
    injector = None
    if not is_local(listening) and tokens is None:
        raise InvariantViolated("A page that others reach is to ask for tokens.")
    if bootstrap is not None:
        injector = FaultInjector(finder(bootstrap, control, security))
    server = uvicorn.Server(
        uvicorn.Config(
            application(
                bootstrap,
                (host,),
                injector,
                schemas,
                may_edit=may_edit,
                tables=tables,
                tokens=tokens,
                is_secure=certificate is not None,
                security=security,
            ),
            ssl_certfile=certificate,
            log_level="warning",
            access_log=False,
            lifespan="on",
            # Pages hold streams open for good: they are not waited for.
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
    # A signal ends the server, which then sends it again for other handlers.
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(server, listening, until))


async def _run(
    server: uvicorn.Server, listening: socket.socket, until: Callable[[], None] | None
) -> None:
    ending = None
    if until is not None:
        ending = asyncio.create_task(_end_when(server, until))
    await server.serve(sockets=[listening])
    if ending is not None:
        ending.cancel()


async def _end_when(server: uvicorn.Server, until: Callable[[], None]) -> None:
    await asyncio.to_thread(until)
    server.should_exit = True


def until_parent_ends() -> None:
    """Wait for the end of standard input."""
    while sys.stdin.buffer.read(4096):
        pass
