"""What the commands that run brokers share: options, and the configuration made from them.

This file must not import what serving does not need: the client stays outside.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.errors import InvalidSetting

if TYPE_CHECKING:
    from strandline.node.authentication.first_users import FirstUser

log = logging.getLogger(__name__)

LEVELS: Final = ("debug", "info", "warning", "error")

_HAS_PORT: Final = re.compile(r":\d+$")

F = TypeVar("F", bound=Callable[..., Any])


def broker_options(command: F) -> F:
    """Add the options that say what a broker is like."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option(
        "--config",
        "config_path",
        metavar="FILE",
        help="A properties file, as Kafka's server.properties.",
    ),
    click.option(
        "--set",
        "overrides",
        metavar="NAME=VALUE",
        multiple=True,
        help="One setting; wins over the file. May be repeated.",
    ),
    click.option(
        "--data-dir", metavar="DIR", help="Where data is kept. Short for --set log.dirs=DIR."
    ),
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Where clients connect. Short for --set listeners=PLAINTEXT://HOST:PORT.",
    ),
    click.option(
        "--insecure",
        is_flag=True,
        help="Let everyone in who reaches the address. Short for --set "
        "strandline.allow.insecure.listeners=true.",
    ),
    click.option(
        "--add-scram",
        "first_users",
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        multiple=True,
        help="A user of SCRAM, made unless it is there; the password may be env:NAME or file:PATH. "
        "May be repeated.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        help="What is logged to standard error.",
    ),
)


def parse_users(texts: Sequence[str]) -> list[FirstUser]:
    """The users of `--add-scram`. Raises `click.UsageError`."""
    if not texts:
        return []
    from strandline.node.authentication.first_users import parse_first_user

    try:
        return [parse_first_user(text, SystemRandom()) for text in texts]
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong


def load_config(
    config_path: str | None,
    overrides: Sequence[str],
    data_dir: str | None,
    listen: str | None,
    *,
    insecure: bool,
) -> BrokerConfig:
    """The configuration. Raises `click.UsageError` with a sentence for what is not allowed."""
    wanted = list(overrides)
    if data_dir is not None:
        wanted.append(f"log.dirs={data_dir}")
    if listen is not None:
        if not _HAS_PORT.search(listen):
            raise click.UsageError(
                f"--listen takes HOST:PORT, not '{listen}'; without a HOST, as in ':9092', it is "
                "every interface."
            )
        wanted.append(f"listeners=PLAINTEXT://{listen}")
    if insecure:
        wanted.append("strandline.allow.insecure.listeners=true")
    try:
        loaded = load_broker_config(config_path, wanted)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except OSError as error:
        raise click.UsageError(
            f"The properties file {config_path} cannot be read: {error.strerror}."
        ) from error
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.config
