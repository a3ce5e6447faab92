"""The page's server as a child: says its address on standard output, ends with its parent."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from strandline.client.settings import parse_addresses
from strandline.config.loopback import loopback
from strandline.errors import InvalidSetting
from strandline.schemas.places import REGISTRY_VARIABLE, SchemaPlaces
from strandline.schemas.sources import Schemas
from strandline.ui.questions import Question
from strandline.ui.serving import (
    address_of,
    listen,
    listen_from,
    serve,
    until_parent_ends,
)


def main(
    arguments: Sequence[str] | None = None, tables: Callable[[], Question] | None = None
) -> None:
    """See the module. `tables` makes what is asked for the lakehouse tables that are there."""
    parser = argparse.ArgumentParser(prog="python -m strandline.ui")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--port", type=int, help="default: the first free one from a fixed one")
    parser.add_argument("--control")
    parser.add_argument("--schemas")
    parser.add_argument("--edit", action="store_true")
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the whole group of processes; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        control = parse_addresses(options.control)[0] if options.control else None
        schemas = Schemas.at(SchemaPlaces(options.schemas, os.environ.get(REGISTRY_VARIABLE)))
        if options.port is None:
            listening = listen_from(loopback())
        else:
            listening = listen(loopback(), options.port)
    except InvalidSetting as error:
        sys.exit(str(error))
    sys.stdout.write(f"{address_of(listening)}\n")
    sys.stdout.flush()
    # Nothing else may come out there: the parent does not read on.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    serve(
        listening,
        options.bootstrap,
        control=control,
        schemas=schemas,
        until=until_parent_ends,
        may_edit=options.edit,
        tables=None if tables is None else tables(),
    )


if __name__ == "__main__":
    main()
