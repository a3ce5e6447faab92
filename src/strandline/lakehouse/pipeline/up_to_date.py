"""Ends a run with `once` without starting Spark when the table is up to date.

Spark takes seconds to start, and the table's frontier and the logs' ends say beforehand whether it
will have anything to do. This file asks what every start of a run asks (`beginning.py`), shows what
every start shows, and must not import Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from strandline.errors import ProtocolError
from strandline.lakehouse.pipeline import log_facts
from strandline.lakehouse.pipeline.events import Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.lag import Lag
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.publishing import Publisher
from strandline.lakehouse.pipeline.start_offsets import start_offsets
from strandline.lakehouse.reading.errors import ReadError
from strandline.lakehouse.tables.store import TableStore

log = logging.getLogger(__name__)


def finish_if_up_to_date(
    store: TableStore, options: RunOptions, tell: Callable[[Event], None]
) -> Stopped | None:
    """Tell the events of a run that has nothing to commit, and write its group's offsets.

    Returns how it ended, or None if there is work. Raises what forbids a run: `PipelineError`,
    `TableError`. Trouble with the cluster is left to a run, which has patience for it.
    """
    spec = store.spec
    store.settle()
    frontiers = store.state().frontiers
    try:
        facts = log_facts.ask(options.read_settings(spec), spec.topics, frontiers)
    except (ProtocolError, ReadError) as error:
        log.debug("Whether there is anything new is not known: %s", error)
        return None
    begin = start_offsets(frontiers, facts, accepts_loss=options.accepts_loss)
    if begin.has_work:
        return None
    reached = begin.reached(frontiers)
    nothing = Lag(0, 0.0, dict.fromkeys(reached, 0))
    tell(Started(len(begin.starts), sum(reached.values()), nothing))
    publisher = Publisher(
        options.bootstrap,
        spec.name,
        lambda sentence: tell(Notice(sentence)),
        security=options.config.security,
    )
    with closing(publisher):
        publisher.publish(reached)
    tell(Notice("Nothing is new, so Spark was not started."))
    stopped = Stopped(0, 0, nothing)
    tell(stopped)
    return stopped
