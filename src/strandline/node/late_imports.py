"""The modules of a node that its start leaves out, imported before they are first needed.

Handlers, groups and `why` are imported on first use, so that a broker is ready early. The first use
of many of them is a failover or a first refusal, which is when an event loop must not stand still
for 0.14 s (0.4 s where bytecode is not kept). So a broker process imports them in a thread soon
after it is ready.
"""

from __future__ import annotations

import logging
import threading
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

import strandline.node

log = logging.getLogger(__name__)

DELAY_S: Final = 1.0
"""From the moment a broker is ready: its first clients come first, and a short life needs none."""


def import_in_thread() -> None:
    """Import them in a thread, which shares the interpreter with the event loop in short slices.

    Without a thread, or memory, each is imported on first use.
    """
    # No daemon: an import that the end of the process cuts off would keep its lock for ever.
    thread = threading.Thread(target=_import_what_fits, name="strandline-imports")
    try:
        thread.start()
    except RuntimeError as error:
        log.info("Modules are imported on first use: %s", error)


def _import_what_fits() -> None:
    try:
        import_all()
    except MemoryError:
        log.warning("There is no memory to import modules early: they are imported on first use")


def import_all() -> None:
    """Import every module of the node, and what they need."""
    for module in walk_packages(strandline.node.__path__, "strandline.node."):
        import_module(module.name)
