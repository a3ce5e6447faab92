"""Limits inside of brokers that no run of some seconds reaches, made small in some seeds.

What is done in chunks, turns and blocks takes one in such a run, and a cache is never full: so what
happens between two of them is never seen. As FoundationDB's knobs these are constants of the code,
set for the time of one run; none of them may change what is true. A plan names them by their
modules: `knobs: node.rolling_task.SYNCS_PER_TURN=1`. This file knows names and values only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Final

from strandline.node.late_imports import import_all
from strandline.sim.scenarios.script import BadScript

KNOBS: Final[Mapping[str, tuple[int, ...]]] = {
    "cluster.controller.looks._REPAIRS_AHEAD": (1, 2),
    "cluster.controller.looks._STARTS_AHEAD": (1, 2),
    "cluster.controller.reconciliation.LEADERS_PER_MULTI": (1, 2),
    "cluster.controller.reconciliation.PARTITIONS_PER_MULTI": (1, 2),
    "cluster.controller.topic_writes.REMOVALS_PER_MULTI": (1, 3),
    "cluster.controller.topic_writes.STATES_PER_MULTI": (1, 2),
    "cluster.znodes.singles.PRODUCER_ID_BLOCK_SIZE": (1, 2),
    "node.consumer_fast_path._CREDIT_MAX": (1, 2),
    "node.consumer_fast_path._LAYOUTS_MAX": (1,),
    "node.consumer_fast_path._PARTITIONS_MAX": (1,),
    "node.consumer_fast_path._SHAPES_MAX": (1, 2),
    "node.controller._ROUNDS_MAX": (1, 2),
    "node.coordinator_loading._RECORDS_PER_STEP": (1, 3),
    "node.in_sync_changes._PARTITIONS_MAX": (1, 2),
    "node.marker_sending.PARTITIONS_AT_ONCE": (1, 2),
    "node.peer_link.IN_FLIGHT_MAX": (1, 2),
    "node.peer_link.QUEUED_MAX": (1, 3),
    "node.produce_fast_path._SHAPES_MAX": (1, 2),
    "node.retention_task.AGES_PER_TURN": (1, 2),
    "node.retention_task.DROPS_PER_TURN": (1, 2),
    "node.retention_task.REMOVALS_PER_TURN": (1, 2),
    "node.rolling_task.LOOKS_PER_TURN": (1, 2),
    "node.rolling_task.SYNCS_PER_TURN": (1, 2),
    "storage.batch_scan.LOOKUP_CHUNK_BYTES": (62, 200),
    "storage.batch_scan.SCAN_CHUNK_BYTES": (62, 200, 1_000),
    "storage.bookmarks.BATCHES_AHEAD": (1, 2),
    "storage.bookmarks.BOOKMARKS_MAX": (1, 2),
    "storage.bookmarks.READ_BYTES_MAX": (100, 1_000),
    "storage.index_file.PENDING_BYTES_MAX": (8, 24),
    "storage.log_copy.BATCHES_MAX": (1, 2),
    "storage.producer_recall._STRETCH_MAX": (200,),
    "storage.producer_recall._STRETCH_MIN": (100,),
    "storage.tail.BATCHES_KEPT": (1, 2, 5),
    "storage.transaction_index.ENTRIES_PER_READ": (1, 2),
}
"""The values that are drawn for each, all of them small."""

_SHARES: Final = (0.0, 0.0, 0.1, 0.3, 1.0)
"""How many of the knobs a seed turns."""
_NOT_OF_BROKERS: Final = ("strandline.sim", "strandline.client")


def draw_knobs(random: Random) -> dict[str, int]:
    """The knobs of a seed; of many seeds none."""
    share = random.choice(_SHARES)
    return {
        name: random.choice(values) for name, values in KNOBS.items() if random.random() < share
    }


def check_knob(name: str) -> None:
    """Raises `BadScript` if there is none of that name."""
    if name not in KNOBS:
        raise BadScript(f"'{name}' is no knob; those are: {', '.join(KNOBS)}.")


@contextmanager
def turned(knobs: Mapping[str, int]) -> Iterator[None]:
    """Set these constants, in their modules and in all code of brokers that has imported them."""
    former: list[tuple[ModuleType, str, int]] = []
    for knob, value in knobs.items():
        name = knob.rpartition(".")[2]
        for module in _holders(knob):
            former.append((module, name, getattr(module, name)))
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, there in former:
            setattr(module, name, there)


@cache
def _import_brokers() -> None:
    """What brokers import on first use, too: a module that came during a run would keep what is
    turned then for all others."""
    import_all()


@cache
def _holders(knob: str) -> tuple[ModuleType, ...]:
    """The modules that have the constant: its own, and those that have imported it by its name."""
    _import_brokers()
    path, _, name = knob.rpartition(".")
    origin = import_module(f"strandline.{path}")
    others = [
        module
        for module_name, module in sys.modules.items()
        if module is not origin
        and not name.startswith("_")
        and module_name.startswith("strandline.")
        and not module_name.startswith(_NOT_OF_BROKERS)
        and vars(module).get(name) is getattr(origin, name)
    ]
    return (origin, *others)
