"""`--client-config FILE`: how a cluster lets a command in, in the format of Kafka's tools.

The file has Kafka's names of settings, one a line. Those of TLS and SASL count for every command,
and `bootstrap.servers` where no `-b` is given. Others are those of programs that share the file:
they change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from strandline.errors import InvalidSetting

if TYPE_CHECKING:
    from strandline.client.security.config import ClientConfig

F = TypeVar("F", bound=Callable[..., Any])

OPTION: Final = "--client-config"
_ENVIRONMENT: Final = "STRANDLINE_CLIENT_CONFIG"
_KEY: Final = __name__
_BOOTSTRAP: Final = "bootstrap.servers"


def client_config_option(command: F) -> F:
    """Add `--client-config`, in front of a command or behind it."""
    return click.option(
        OPTION,
        metavar="FILE",
        envvar=_ENVIRONMENT,
        show_envvar=True,
        expose_value=False,
        callback=_keep,
        help="Settings of TLS and SASL, under Kafka's names.",
    )(command)


def _keep(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    if path is None or context.resilient_parsing:
        return
    # Only here: most commands, and every start of a broker, do without.
    from strandline.client.security.config import ClientConfig, is_about_security
    from strandline.client.security.secret import read_text
    from strandline.config.properties import parse_properties

    try:
        given = parse_properties(read_text(OPTION, path))
        config = ClientConfig({name: given[name] for name in given if is_about_security(name)})
        config.security  # noqa: B018 - what is wrong in it is said before anything is done
    except InvalidSetting as wrong:
        raise click.BadParameter(str(wrong), context, parameter) from wrong
    context.meta[_KEY] = (path, config, given.get(_BOOTSTRAP))


def take_client_config(path: str) -> None:
    """As if the file were given on the command line, if none is. Raises `click.UsageError`."""
    context = click.get_current_context()
    if _found()[0] is None:
        _keep(context, click.Option([OPTION]), path)


def client_config() -> ClientConfig:
    """What the command line gave."""
    from strandline.client.security.config import UNSECURED

    return _found()[1] or UNSECURED


def bootstrap_of_config() -> str | None:
    """The file's `bootstrap.servers`, if there is a file that has it."""
    return _found()[2]


def as_typed_option() -> str:
    """The option as it was given, for commands that are to be typed next; with a space before."""
    path = _found()[0]
    return "" if path is None else f" {OPTION} {quote(path)}"


def _found() -> tuple[str | None, ClientConfig | None, str | None]:
    found: tuple[str | None, ClientConfig | None, str | None]
    found = click.get_current_context().meta.get(_KEY, (None, None, None))
    return found
