"""Clients without a group protocol that ask the coordinators of groups.

They ask one thing after the other, or several at once. With each answer they are told whether the
broker was the coordinator in truth, by the metadata, from the question until the answer: one that
was deposed and does not know it yet answers from memory, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.group_requests import LAST_BY_NAME, fetch_offsets_request
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.find_coordinator import FindCoordinatorResponse
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import TopicPartition

QUICK_US: Final = 1_000
_FORGETTING_MS: Final = 5 * 86_400_000
"""From then on clocks that were set may have let offsets expire (`offsets.retention.minutes`)."""

Answered: TypeAlias = Callable[[bool, Outcome], None]
"""Hears whether the broker was the coordinator in truth all the time, and what it said."""


class Question(NamedTuple):
    """A request to a coordinator."""

    key: ApiKey
    version: int
    request: object
    leaves: int = -1
    """Of one that changes a stored offset: what is stored when it is made."""


class CoordinatorClient(SimClient):
    """See the module. `step` is what it does next, once nothing is asked any more."""

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.is_asking = False
        self.backoff = ExponentialBackoff(self.random)
        self._reads_as = min(LAST_BY_NAME, self.cluster.versions.of(ApiKey.OFFSET_FETCH))

    def pump(self) -> None:
        """See `SimClient`: it goes by its own time."""

    def step(self) -> None:
        """Do what comes next."""
        raise NotImplementedError

    def next(self, wait_us: int) -> None:
        """What was asked is answered: go on, so much later."""
        self.is_asking = False
        self.after(wait_us, self.go_on_if_idle)

    def go_on_if_idle(self) -> None:
        """Do what comes next, unless something is asked."""
        if not self.is_asking:
            self.step()

    def look_elsewhere(self, group: str) -> None:
        """Who was asked is not the coordinator, or may not be: find out, and try again later."""
        self.cluster.router.forget_coordinator(group)
        self._try_again()

    def _try_again(self) -> None:
        self.next(1000 * self.backoff.next_ms())

    # -- asking ------------------------------------------------------------------------------

    def ask(self, group: str, questions: Sequence[Question], then: Answered) -> bool:
        """Ask the coordinator all of these, one behind the other, and hear each answer. Without a
        coordinator it is looked for, and nothing is asked: returns whether it was."""
        cluster = self.cluster
        broker = cluster.router.coordinator(group)
        if broker is None:
            self._find_coordinator(group)
            return False
        connection = cluster.connection(broker, "coordinator")
        if connection is None:
            self.look_elsewhere(group)
            return False
        self.is_asking = True
        led = self.world.coordinates(broker, group)

        def answered(outcome: Outcome) -> None:
            if not self.is_done:
                then(led is not None and led == self.world.coordinates(broker, group), outcome)

        for each in questions:
            cluster.ask(connection, each.key, each.request, answered, version=each.version)
        return True

    def _find_coordinator(self, group: str) -> None:
        cluster, key = self.cluster, ApiKey.FIND_COORDINATOR
        connection = cluster.any_connection()
        if connection is None:
            self._try_again()
            return
        self.is_asking = True
        question = cluster.router.coordinator_request(group)
        cluster.ask_for(connection, key, question, partial(self._found_coordinator, group))

    def _found_coordinator(self, group: str, outcome: Outcome) -> None:
        if isinstance(outcome, FindCoordinatorResponse):
            found = outcome.coordinators[0] if outcome.coordinators else outcome
            if found.error_code == ErrorCode.NONE:
                self.cluster.router.learn_coordinator(group, outcome)
                self.next(QUICK_US)
                return
            self.counters[f"{self.kind} {ErrorCode(found.error_code).name}"] += 1
        self._try_again()

    # -- stored offsets ----------------------------------------------------------------------

    @property
    def may_have_expired(self) -> bool:
        """Whether clocks were set so far that nothing need be stored any more."""
        return self.world.clocks_set_ms >= _FORGETTING_MS

    def offsets_question(self, group: str, partitions: Iterable[TopicPartition]) -> Question:
        """What is stored of these?"""
        request = fetch_offsets_request(group, list(partitions), self._reads_as)
        return Question(ApiKey.OFFSET_FETCH, self._reads_as, request)

    def offsets_in(self, outcome: Outcome) -> Mapping[TopicPartition, int] | None:
        """The offsets in an answer to that, -1 where none is stored; None in a refusal."""
        if isinstance(outcome, RequestFailed):
            return None
        found = outcome.groups[0] if outcome.groups else outcome
        parts = [(topic.name, each) for topic in found.topics for each in topic.partitions]
        codes = [ErrorCode(each) for each in (found.error_code, *(p.error_code for _, p in parts))]
        refused = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
        self.counters[f"{self.kind} {ApiKey.OFFSET_FETCH.name} {refused.name}"] += 1
        if refused is not ErrorCode.NONE:
            return None
        return {TopicPartition(name, p.partition_index): p.committed_offset for name, p in parts}
