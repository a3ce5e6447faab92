"""What a run does before Spark starts: it looks whether it can begin, and has anything to do.

Spark takes seconds to start, and the table's frontier and the logs' ends say beforehand whether it
will have anything to do. This file asks what every start of a run asks (`start_offsets.py`), shows
what every start shows, and must not import Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.client.retry import is_worth_waiting_for
from strandline.errors import ErrorCode, ProtocolError
from strandline.lakehouse.pipeline import log_facts
from strandline.lakehouse.pipeline.events import Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.lag import Lag
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.patience import Patience
from strandline.lakehouse.pipeline.publishing import Publisher
from strandline.lakehouse.pipeline.start_offsets import StartOffsets, start_offsets
from strandline.lakehouse.tables.store import TableStore

if TYPE_CHECKING:
    from strandline.lakehouse.pipeline.runner import StopRequest

_PAUSE_S: Final = 1.0
_PATIENCE_MS: Final = 5_000
"""For a cluster that answers, and has no leader, say: then that is told."""


def look(
    store: TableStore, options: RunOptions, tell: Callable[[Event], None], stop: StopRequest
) -> StartOffsets:
    """Where a run would begin, as a run finds it out; brokers that do not answer are waited for.

    Raises what forbids a run: `PipelineError`, `TableError`, and ProtocolError where waiting does
    not help.
    """
    patience = Patience(options.patience_s, tell)
    while True:
        try:
            return _look(store, options)
        except ProtocolError as error:
            if not is_worth_waiting_for(error):
                raise
            if error.code is ErrorCode.BROKER_NOT_AVAILABLE and not options.waits_at_start:
                raise _unanswered(error) from error
            sentence = error.sentence
            if patience.is_over() or stop.is_set:
                raise patience.given_up(sentence) from error
            patience.tell(sentence)
            time.sleep(_PAUSE_S)


def _look(store: TableStore, options: RunOptions) -> StartOffsets:
    store.settle()
    frontiers = store.state().frontiers
    settings = replace(options.read_settings(store.spec), patience_ms=_PATIENCE_MS)
    facts = log_facts.ask(settings, store.spec.topics, frontiers)
    return start_offsets(frontiers, facts, accepts_loss=options.accepts_loss)


def _unanswered(error: ProtocolError) -> ProtocolError:
    return ProtocolError(
        error.code,
        f"{error.sentence} Start the brokers, or name others with -b HOST:PORT; "
        "a run with --patience DURATION waits for them.",
    )


def finish_if_up_to_date(
    store: TableStore, begin: StartOffsets, options: RunOptions, tell: Callable[[Event], None]
) -> Stopped | None:
    """Tell the events of a run that has nothing to commit, and write its group's offsets.

    Returns how it ended, or None if there is work.
    """
    if begin.has_work:
        return None
    spec = store.spec
    reached = begin.reached(begin.frontiers)
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
