"""The options that say where schemas are, for all commands that decode keys and values."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

import click

from strandline.errors import InvalidSetting
from strandline.schemas.places import NOWHERE, REGISTRY_VARIABLE, SchemaPlaces

F = TypeVar("F", bound=Callable[..., Any])


def schema_options(command: F) -> F:
    """Add `--schema-registry` and `--schemas`."""
    with_registry = click.option(
        "--schema-registry",
        "registry",
        metavar="URL",
        envvar=REGISTRY_VARIABLE,
        show_envvar=True,
        help="Where Avro schemas are known by their ids; http or https.",
    )(command)
    return click.option(
        "--schemas",
        "schema_directory",
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Avro schemas in files: ID.avsc, TOPIC-value.avsc, TOPIC-key.avsc.",
    )(with_registry)


def schema_places(directory: str | None, registry: str | None) -> SchemaPlaces:
    """What the options say, checked; raises `click.ClickException`."""
    places = SchemaPlaces(directory, registry)
    if places == NOWHERE:
        return places
    # Who decodes nothing starts without what asking a registry needs.
    from strandline.schemas.sources import Schemas

    try:
        Schemas.at(places)
    except InvalidSetting as wrong:
        raise click.UsageError(f"--schema-registry: {wrong}") from wrong
    if find_spec("fastavro") is None:
        raise click.ClickException(
            "Decoding Avro needs fastavro. Install it with: pip install 'strandline[avro]'"
        )
    return places
