"""What all commands share that talk to a cluster: the option for its address, and the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from strandline.cli.client_config import (
    as_typed_option,
    bootstrap_of_config,
    client_config,
    client_config_option,
)
from strandline.client.clock import Clock
from strandline.client.cluster import ClusterClient
from strandline.client.inspection import answers_of, inspect_each
from strandline.client.security.settings import Security
from strandline.client.settings import Address, ClientSettings, parse_addresses
from strandline.errors import InvalidSetting, ProtocolError

F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(command: F) -> F:
    """Add `-b/--bootstrap`, which wins over the one in front of the command, and
    `--client-config`."""
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT,...",
        default=None,
        help="Brokers to ask first.",
    )(client_config_option(command))


def bootstrap_of(given: str | None) -> tuple[Address, ...]:
    """The addresses of the brokers: those behind the command, in front of it, or of the file.

    Raises `click.UsageError` for what are none.
    """
    root = click.get_current_context().find_root()
    text = given
    if text is None and root.get_parameter_source("bootstrap") is ParameterSource.DEFAULT:
        text = bootstrap_of_config()
    try:
        return parse_addresses(root.params["bootstrap"] if text is None else text)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def open_cluster(bootstrap: str | None, *, patience_ms: int | None = None) -> ClusterClient:
    """The client for a command. Raises `click.UsageError` for addresses that are none.

    `patience_ms` is for commands that look at brokers which may not answer: how long one may take.
    """
    addresses = bootstrap_of(bootstrap)
    security = client_config().security
    settings = ClientSettings(
        client_id="strandline-cli", connect_timeout_ms=CONNECTING_MS, security=security
    )
    if patience_ms is not None:
        settings = replace(
            settings, request_timeout_ms=patience_ms, operation_timeout_ms=2 * patience_ms
        )
    client = ClusterClient(addresses, settings)
    typed = partial(as_typed, bootstrap=bootstrap)
    client.on_delay = Delay(client.clock, partial(_causes, addresses, security, typed)).failed
    return client


def _causes(
    addresses: Sequence[Address], security: Security, typed: Callable[[str], str]
) -> list[str]:
    """What the brokers know to be wrong, as `strandline why` tells it; of those that answer."""
    settings = ClientSettings(
        client_id="strandline-cli",
        connect_timeout_ms=_ASKING_MS,
        request_timeout_ms=_ASKING_MS,
        operation_timeout_ms=_ASKING_MS,
        security=security,
    )
    with ClusterClient(addresses, settings) as client:
        try:
            found = answers_of(inspect_each(client, "why"))
        except ProtocolError:
            return []  # that nothing answers is what is told already
    found_causes = [
        typed(f"{finding['about']}: {finding['cause']}")
        for document in found.values()
        for finding in document["findings"]
    ]
    causes = list(dict.fromkeys(found_causes))[:_CAUSES_MAX]
    if len(set(found_causes)) > len(causes):
        causes.append(typed("`strandline why` tells more."))
    return causes


def as_typed(text: str, bootstrap: str | None) -> str:
    """A sentence of a broker, whose commands name the cluster as this command line does.

    What comes from the environment or is the default holds for the next command as well.
    """
    root = click.get_current_context().find_root()
    if bootstrap is None and root.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE:
        bootstrap = root.params["bootstrap"]
    options = "" if bootstrap is None else f" -b {quote(bootstrap)}"
    return text.replace("`strandline ", f"`strandline{options}{as_typed_option()} ")


class Delay:
    """Tells a person who waits what for, on standard error: after seconds, then now and then."""

    def __init__(self, clock: Clock, causes: Callable[[], Sequence[str]] = tuple) -> None:
        """`causes` asks the brokers what they know to be wrong, and takes no long time."""
        self._clock = clock
        self._causes = causes
        self._began_ms: int | None = None
        self._failed_ms = 0
        self._due_ms = 0

    def failed(self, error: ProtocolError) -> None:
        """Something failed and is perhaps tried again."""
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is None or now_ms - self._failed_ms > FORGOTTEN_MS:
            self._began_ms, self._due_ms = now_ms, now_ms + SHOWN_AFTER_MS
        self._failed_ms = now_ms
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + SHOWN_AGAIN_MS
            waited_s = (now_ms - self._began_ms) // 1000
            click.echo(f"Still trying after {waited_s} s: {error.message or error}", err=True)
            for cause in self._causes():
                click.echo(f"  {cause}", err=True)


SHOWN_AFTER_MS: Final = 3000
CONNECTING_MS: Final = 4000
"""A SYN that was lost is sent again after one and after three seconds."""
_ASKING_MS: Final = 500
_CAUSES_MAX: Final = 3
SHOWN_AGAIN_MS: Final = 60_000
FORGOTTEN_MS: Final = 10_000
"""What did not fail for so long has worked meanwhile."""
LOOKING_MS: Final = 3000
"""For looking at brokers, some of which may be paused or dead."""
DESCRIBING_MS: Final = 5000
"""The same for larger questions, which are asked again if a broker does not answer."""


def parse_assignments(items: tuple[str, ...], option: str) -> dict[str, str]:
    """Read `name=value` arguments of a repeated option."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE, not '{item}'.")
        found[name.strip()] = value.strip()
    return found
