"""Rounds of periodic work over all logs of a node: which take part, and what a failure means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from strandline.errors import InvariantViolated, StorageError
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas

log = logging.getLogger(__name__)


def usable(replicas: Replicas) -> Iterator[Replica]:
    """The replicas of now whose logs take appends when their turn in the round comes."""
    for replica in list(replicas):
        if replica.log.failure is None and not replica.is_retired:
            yield replica


def guarded(name: str, replica: Replica, work: Callable[[], int]) -> int:
    """Do work on one log and return its result; 0 if it failed.

    A log that fails does not keep the round from the others. `name` begins the message.
    """
    try:
        return work()
    except StorageError as error:
        log.error("%s of %s failed: %s", name, replica.topic_partition, error)
    except InvariantViolated as error:
        log.critical("%s of %s found a bug: %s", name, replica.topic_partition, error)
        replica.log.health.fail(str(error))
    return 0
