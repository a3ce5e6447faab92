"""Clients of the simulated metadata store that hold it to its promises at every word it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strandline.cluster.store import (
    Changes,
    Create,
    MultiRefused,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    NodeStat,
    Operation,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    StoreView,
)
from strandline.cluster.tree import parent_path
from strandline.sim.schedule import Schedule
from strandline.sim.store import Store
from strandline.sim.store_client import StoreClient
from strandline.sim.streams import Streams
from strandline.types import BrokerId

TIMEOUT_US = 6_000_000
Nodes = dict[str, tuple[bytes, NodeStat]]


def advance(nodes: Nodes, changes: Changes) -> None:
    """Follow the changes, which must fit."""
    for change in changes.changes:
        match change:
            case NodeCreated(path, data, stat):
                assert path not in nodes
                assert parent_path(path) == "/" or parent_path(path) in nodes
                nodes[path] = (data, stat)
            case NodeDataSet(path, data, stat):
                assert nodes[path][1].created_zxid == stat.created_zxid
                nodes[path] = (data, stat)
            case NodeDeleted(path):
                assert not any(other.startswith(f"{path}/") for other in nodes)
                del nodes[path]


@dataclass(slots=True, eq=False)
class Wish:
    """One write and what became of it."""

    mark: str
    applied: int | None = None
    """Number of the truth that first shows it."""
    outcomes: int = 0
    outcome: StoreError | None = None


class Ensemble:
    """A store, the history of its truth, and the followers."""

    def __init__(self, seed: int = 1, *, latency_us: int = 500, lag_us: int = 0) -> None:
        streams = Streams(seed)
        self.schedule = Schedule(streams("schedule"))
        self.store = Store(
            self.schedule,
            streams,
            session_timeout_us=TIMEOUT_US,
            latency_us=latency_us,
            lag_us=lag_us,
        )
        self.truth: list[Nodes] = [{}]
        self.wishes: dict[str, Wish] = {}
        self.log: list[str] = []
        self.store.watchers.append(self._changed)
        self.followers: list[Follower] = []

    def _changed(self, changes: Changes, image: object) -> None:
        del image
        nodes = dict(self.truth[-1])
        advance(nodes, changes)
        self.truth.append(nodes)
        for change in changes.changes:
            if isinstance(change, NodeCreated) and change.path in self.wishes:
                wish = self.wishes[change.path]
                assert wish.applied is None, f"{wish.mark} was applied twice"
                wish.applied = len(self.truth) - 1

    @property
    def now(self) -> int:
        """The number of the present truth."""
        return len(self.truth) - 1

    def join(self, broker_id: int, *, torn: bool = False) -> Follower:
        follower = Follower(self, BrokerId(broker_id), torn=torn)
        self.followers.append(follower)
        return follower

    def run(self, ms: float) -> None:
        self.schedule.run_until(self.schedule.now_us + int(ms * 1000))

    def run_until(self, condition: Callable[[], bool], *, ms: int = 60_000) -> None:
        end_us = self.schedule.now_us + ms * 1000
        while not condition():
            next_us = self.schedule.next_us
            assert next_us is not None, "in vain: nothing will happen"
            assert next_us <= end_us, "in vain: nothing happened in time"
            self.schedule.step()


class Follower:
    """One process with a client."""

    def __init__(self, ensemble: Ensemble, broker_id: BrokerId, *, torn: bool) -> None:
        self.ensemble = ensemble
        self.broker_id = broker_id
        self.torn = torn
        self.heard: list[Changes] = []
        self.sessions: list[int] = []
        self.client = StoreClient(ensemble.store, self, broker_id)
        self.nodes: Nodes = _nodes_of(self.client.first_view)
        self.zxid = self.client.first_view.zxid
        self.seen = ensemble.now
        """Number of the newest truth that this follower may have been told."""
        assert self.nodes == ensemble.truth[-1]

    def metadata_changed(self, changes: Changes) -> None:
        assert not self.client.is_gone
        assert not self.client.is_paused
        assert changes.zxid > self.zxid
        self.zxid = changes.zxid
        self.heard.append(changes)
        self.sessions.append(self.client.session)
        advance(self.nodes, changes)
        self.ensemble.log.append(f"{self.ensemble.schedule.now_us} {self.broker_id} {changes}")
        if not self.torn:
            self.seen = self._moment_of()

    def _moment_of(self) -> int:
        """What was told is a truth of one moment, and not older than what was told before."""
        truth = self.ensemble.truth
        for number in range(self.seen, len(truth)):
            if truth[number] == self.nodes:
                return number
        raise AssertionError("what was told was never true, or not any more")

    def _newest(self) -> int:
        """The newest truth that equals what this follower knows."""
        truth = self.ensemble.truth
        return max(number for number, nodes in enumerate(truth) if nodes == self.nodes)

    def wish(self, mark: str, *operations: Operation) -> Wish:
        """Write, with a node of that name that shows whether it happened."""
        wish = self.ensemble.wishes[mark] = Wish(mark)
        was_ready = self.client.is_ready
        asked = self.ensemble.now
        schedule = self.ensemble.schedule
        patience_us = schedule.now_us + TIMEOUT_US

        def told(outcome: StoreError | None) -> None:
            assert not self.client.is_gone
            assert not self.client.is_paused
            wish.outcomes += 1
            wish.outcome = outcome
            kind = type(outcome).__name__
            self.ensemble.log.append(f"{schedule.now_us} {mark} {kind}")
            if isinstance(outcome, OutcomeUnknown):
                assert was_ready
                is_blind = schedule.now_us >= patience_us or not self.client.is_ready
                assert is_blind or wish.applied is None or mark in self.nodes, "back without news"
            elif not self.torn:
                self._judge(wish, outcome, was_ready=was_ready, asked=asked)

        self.client.write([Create(mark), *operations], told)
        assert not wish.outcomes, "an outcome was told within the write"
        return wish

    def _judge(
        self, wish: Wish, outcome: StoreError | None, *, was_ready: bool, asked: int
    ) -> None:
        if outcome is None:
            assert was_ready
            assert wish.mark in self.nodes, "done, but its changes were not heard"
        else:
            assert wish.applied is None
            assert isinstance(outcome, MultiRefused) == was_ready
            if isinstance(outcome, MultiRefused):
                assert self._newest() >= asked, "refused, but the cause was not heard"
            else:
                assert type(outcome) is StoreUnavailable


def _nodes_of(view: StoreView) -> Nodes:
    return {node.path: (node.data, node.stat) for node in view.nodes}


def outcomes_of(wishes: Sequence[Wish]) -> list[str]:
    """What was told of each, by the name of its kind; "-" if nothing was."""
    return [
        "-"
        if not wish.outcomes
        else "done"
        if wish.outcome is None
        else type(wish.outcome).__name__
        for wish in wishes
    ]
