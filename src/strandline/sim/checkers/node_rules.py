"""A broker's own check (`Node.check`), and I-40: no request waits although it has enough bytes.

The parts of a broker check themselves. What they cannot tell without reading files is whether a
parked fetch could be sent enough; that is worked out here from the models of the logs. Everything
here holds between two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from strandline.errors import InvariantViolated
from strandline.node.waiting_fetch import WaitingFetch
from strandline.sim.checkers.invariants import BUG
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings

if TYPE_CHECKING:
    from strandline.node.fetch_sessions import Fetched
    from strandline.node.node import Node
    from strandline.node.replica import Replica


class NodeRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def check(self, node: Node, replicas: Iterable[Replica]) -> None:
        """A turn has ended, in which these replicas were touched."""
        self._ask(partial(node.check, replicas))

    def check_all(self, node: Node) -> None:
        """All that the broker can say of itself."""
        self._ask(node.check_all)

    def _ask(self, check: Callable[[], None]) -> None:
        try:
            check()
        except InvariantViolated as error:
            self._findings.add(error.invariant or BUG, str(error))

    def check_fetches(
        self, node: Node, hosted: Mapping[Replica, tuple[LogModel, PartitionModel]]
    ) -> None:
        """I-40: no parked fetch can be sent as much as it wants."""
        for entry in node.purgatory:
            fetch = entry.operation
            if not isinstance(fetch, WaitingFetch):
                continue
            total = 0
            for fetched, replica in fetch.awaited:
                found = hosted.get(replica)
                if found is None or _is_throttled(fetch, found[0]):
                    continue
                size, is_all = _available(found[0], fetched, fetch, total)
                total += size
                if not is_all:
                    break  # how much fits behind that is not known
            if total and total >= fetch.bytes_min:
                self._findings.add(
                    "I-40",
                    f"A fetch of {fetch.connection.client_host} at broker {node.broker_id} is "
                    f"parked, but {total} bytes are there of the {fetch.bytes_min} that it wants",
                )


def _is_throttled(fetch: WaitingFetch, model: LogModel) -> bool:
    """Whether a throttle may keep records from a follower (KIP-73)."""
    return not fetch.is_consumer and bool(model.log.config.leader_replication_throttled_replicas)


def _available(
    model: LogModel, fetched: Fetched, fetch: WaitingFetch, total: int
) -> tuple[int, bool]:
    """The bytes of whole batches that the fetch may be sent, behind `total` of other partitions;
    and whether these are all. Not those from the first on that compaction has been at: it may have
    made room for one more within the limits of the fetch, which completes none, as in Kafka.

    The first batch of an answer is sent whatever its size. An answer comes from one segment; but if
    there is more in the next one it is sent without waiting, so it does not matter here.
    """
    log = model.log
    end = log.last_stable_offset if fetch.is_consumer else log.log_end_offset
    limit = min(max(0, fetched.max_bytes), max(0, fetch.bytes_max - total))
    expected = fetched.fetch_offset
    first = model.index_at(expected)
    if first and model.batches[first - 1].next_offset > expected:
        first -= 1
    found, index = 0, first
    while index < len(model.batches) and model.batches[index].next_offset <= end:
        batch = model.batches[index]
        if batch.base_offset > expected or batch.base_offset in model.remains:
            return found, False
        size = model.size_of(index)
        if found + size > limit and (found or total):
            break
        found += size
        expected = batch.next_offset
        index += 1
        if found >= fetch.bytes_min:
            break
    return found, True
