"""What all commands share that talk to a cluster: the option for its address, and the client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings, parse_addresses
from strandline.errors import InvalidSetting

F = TypeVar("F", bound=Callable[..., Any])


def bootstrap_option(command: F) -> F:
    """Add `-b/--bootstrap`, which wins over the one in front of the command."""
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT,...",
        default=None,
        help="Brokers to ask first.",
    )(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def open_cluster(bootstrap: str | None, *, patience_ms: int | None = None) -> ClusterClient:
    """The client for a command. Raises `click.UsageError` for addresses that are none.

    `patience_ms` is for commands that look at brokers which may not answer: how long one may take.
    """
    if bootstrap is None:
        bootstrap = click.get_current_context().find_root().params["bootstrap"]
    try:
        addresses = parse_addresses(bootstrap)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    settings = ClientSettings(client_id="strandline-cli")
    if patience_ms is not None:
        settings = replace(
            settings, request_timeout_ms=patience_ms, operation_timeout_ms=2 * patience_ms
        )
    return ClusterClient(addresses, settings)


def as_typed(text: str, bootstrap: str | None) -> str:
    """A sentence of a broker, whose commands name the cluster as this command line does.

    What comes from the environment or is the default holds for the next command as well.
    """
    if bootstrap is None:
        root = click.get_current_context().find_root()
        if root.get_parameter_source("bootstrap") is not ParameterSource.COMMANDLINE:
            return text
        bootstrap = root.params["bootstrap"]
    return text.replace("`strandline ", f"`strandline -b {bootstrap} ")


LOOKING_MS: Final = 3000
"""For looking at brokers, some of which may be paused or dead."""


def parse_assignments(items: tuple[str, ...], option: str) -> dict[str, str]:
    """Read `name=value` arguments of a repeated option."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} takes NAME=VALUE, not '{item}'.")
        found[name.strip()] = value.strip()
    return found
