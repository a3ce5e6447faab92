"""Programs without a group protocol that store offsets, delete them, and delete groups (I-39).

`client keeper y1 topic=t partition=0 every=50ms deletes=20`

What a group has stored for a partition is a `Register`. A keeper makes one change at a time
(OffsetCommit, OffsetDelete, DeleteGroups), now and then several at once, and reads (OffsetFetch).
After a change without a definite outcome it goes on with another group, and asks for the former one
now and then, and in the end.

Judged are answers of a broker that coordinated the group in truth, from before the question until
the answer. One that was deposed and does not know it yet answers from memory, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.group_requests import (
    LAST_BY_NAME,
    Committed,
    Membership,
    commit_request,
    fetch_offsets_request,
)
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorResponse
from strandline.protocol.messages.offset_commit import OffsetCommitRequest
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.protocol.messages.offset_fetch import OffsetFetchResponse
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.register import NOTHING, Register
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import Offset

_DAY_MS: Final = 86_400_000
_FORGETTING_MS: Final = 5 * _DAY_MS
"""From then on clocks that were set may have let offsets expire (`offsets.retention.minutes`)."""
_RETENTIONS: Final = range(2, 5)
"""Versions of OffsetCommit that say how long an offset is kept."""
_BURSTS: Final = ("cg", "gc", "cgc", "gcg", "coc", "oc", "ccg")
"""Changes that are asked for at once: commits, deletions of the group, and of its offset."""
_AT_ONCE: Final = 0.08
"""Of the steps."""
_LOOK_BACK: Final = 0.2
"""Of the steps, once it has gone on with another group."""
_READS: Final = 30
"""Of a hundred steps about the present group."""
_QUICK_US: Final = 1_000

_Answered: TypeAlias = Callable[[bool, Outcome], None]
"""Hears whether the broker coordinated the group in truth all the time, and what it said."""


class _Question(NamedTuple):
    key: ApiKey
    version: int
    request: object
    leaves: int = NOTHING
    """Of a change: what is stored when it is made."""


class Keeper(SimClient):
    """See the module."""

    kind: ClassVar[str] = "keeper"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        (self._at,) = options.partitions()
        self._every_us = options.time_us("every", "50ms")
        self._deletes = options.number("deletes", 20)
        self._may_be_emptied = options.flag("emptied")
        """Whether the topic of offsets may be deleted meanwhile."""
        self._commits_as = min(LAST_BY_NAME, self.cluster.versions.of(ApiKey.OFFSET_COMMIT))
        self._reads_as = min(LAST_BY_NAME, self.cluster.versions.of(ApiKey.OFFSET_FETCH))
        self._deletes_as = self.cluster.versions.of(ApiKey.DELETE_GROUPS)
        self.cluster.topics = [self._at.topic]
        self._registers: list[Register] = []
        self._left: list[Register] = []
        """To be read before it can end."""
        self._offset = 0
        self._is_asking = False
        self._backoff = ExponentialBackoff(self.random)

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._begin_another()
        self.after(self.about(self._every_us), self._step)

    def _begin_another(self) -> None:
        self._registers.append(Register(f"{self.name}-{len(self._registers)}"))

    def pump(self) -> None:
        """See `SimClient`: it goes by its own time."""

    def finishing(self) -> None:
        """See `SimClient`."""
        self._left = list(self._registers)
        self._step()

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if self._is_asking:
            return
        if not self._left:
            self.done()
        elif self.now_us > self.give_up_us:
            group = self._left[0].group
            self.found("I-50", f"{self.name} could not find out what group {group} has stored")
            self.done()

    def _step(self) -> None:
        if self._is_asking:
            return
        random, present = self.random, self._registers[-1]
        if self.is_finishing:
            if self._left:
                self._read(self._left[0])
        elif len(self._registers) > 1 and random.random() < _LOOK_BACK:
            self._read(random.choice(self._registers))
        elif random.random() < _AT_ONCE:
            self._change_at_once(present)
        elif (drawn := random.randrange(100)) < _READS:
            self._read(present)
        else:
            is_deletion = drawn < _READS + self._deletes
            change = self._deletion(present) if is_deletion else self._commit(present)
            self._ask(present, [change], partial(self._made, present, change))

    def _next(self, wait_us: int) -> None:
        self._is_asking = False
        self.after(wait_us, self._step)

    def _go_on(self) -> None:
        self._next(self.about(self._every_us))

    def _try_again(self) -> None:
        self._next(1000 * self._backoff.next_ms())

    # -- changes -----------------------------------------------------------------------------

    def _commit(self, register: Register) -> _Question:
        self._offset += 1
        version, metadata = self._commits_as, "x" * self.random.choice((0, 0, 60))
        stored = {self._at: Committed(Offset(self._offset), metadata=metadata)}
        request = commit_request(Membership(register.group, None), stored, {}, version)
        assert isinstance(request, OffsetCommitRequest)
        if version in _RETENTIONS:
            request.retention_time_ms = self.random.choice((-1, 10 * _DAY_MS, 2**63 - 1))
        return _Question(ApiKey.OFFSET_COMMIT, version, request, self._offset)

    def _deletion(self, register: Register) -> _Question:
        if self.random.random() < 0.5:
            return self._offset_deletion(register)
        return self._group_deletion(register)

    def _offset_deletion(self, register: Register) -> _Question:
        partitions = [OffsetDeleteRequestPartition(partition_index=self._at.partition)]
        topics = [OffsetDeleteRequestTopic(name=self._at.topic, partitions=partitions)]
        request = OffsetDeleteRequest(group_id=register.group, topics=topics)
        return _Question(ApiKey.OFFSET_DELETE, 0, request)

    def _group_deletion(self, register: Register) -> _Question:
        request = DeleteGroupsRequest(groups_names=[register.group])
        return _Question(ApiKey.DELETE_GROUPS, self._deletes_as, request)

    def _made(
        self, register: Register, change: _Question, was_true: bool, outcome: Outcome
    ) -> None:
        """A change has an outcome, of a register that was certain until now."""
        router = self.cluster.router
        if isinstance(outcome, RequestFailed):
            if outcome.was_sent:
                router.forget_coordinator(register.group)
                self._doubt(register, change)
            self._go_on()
            return
        code = _code_of(change.key, outcome)
        self.counters[f"keeper {change.key.name} {code.name}"] += 1
        is_deletion = change.leaves == NOTHING
        if code is ErrorCode.NONE and (was_true or not is_deletion):
            register.left(change.leaves)
        elif code is ErrorCode.GROUP_ID_NOT_FOUND and is_deletion:
            if was_true:
                self._saw(register, NOTHING)
        else:
            # One that was deposed has nothing to write where it knows of nothing; and a broker may
            # have written what it refuses, as it is the coordinator no more.
            router.forget_coordinator(register.group)
            self._doubt(register, change)
        self._go_on()

    def _doubt(self, register: Register, change: _Question) -> None:
        register.doubt(change.leaves)
        if register is self._registers[-1]:
            self._begin_another()

    def _change_at_once(self, register: Register) -> None:
        """Ask for several changes at once, after which any of them may be the last."""
        makers = {"c": self._commit, "g": self._group_deletion, "o": self._offset_deletion}
        changes = [makers[each](register) for each in self.random.choice(_BURSTS)]
        left = len(changes)

        def made(was_true: bool, outcome: Outcome) -> None:
            nonlocal left
            del was_true, outcome
            left -= 1
            if not left:
                self._go_on()

        if self._ask(register, changes, made):
            for change in changes:
                self._doubt(register, change)

    # -- reading -----------------------------------------------------------------------------

    def _read(self, register: Register) -> None:
        request = fetch_offsets_request(register.group, [self._at], self._reads_as)
        question = _Question(ApiKey.OFFSET_FETCH, self._reads_as, request)
        self._ask(register, [question], partial(self._told, register))

    def _told(self, register: Register, was_true: bool, outcome: Outcome) -> None:
        """What is stored, perhaps."""
        offset = None
        if isinstance(outcome, OffsetFetchResponse):
            found = outcome.groups[0] if outcome.groups else outcome
            parts = [each for topic in found.topics for each in topic.partitions]
            code = ErrorCode(found.error_code or (parts[0].error_code if parts else 0))
            self.counters[f"keeper {ApiKey.OFFSET_FETCH.name} {code.name}"] += 1
            if code is ErrorCode.NONE and parts and was_true:
                offset = parts[0].committed_offset
        if offset is None:
            self.cluster.router.forget_coordinator(register.group)
            self._try_again()
            return
        self._backoff.reset()
        self._saw(register, offset)
        if self._left and self._left[0] is register:
            self._left.pop(0)
        self._next(_QUICK_US if self.is_finishing else self.about(self._every_us))

    def _saw(self, register: Register, offset: int) -> None:
        """A coordinator that was one in truth has this."""
        self.counters["keeper sees an offset" if offset >= 0 else "keeper sees none"] += 1
        if register.may_hold(offset):
            return
        has_expired = self.world.clocks_set_ms >= _FORGETTING_MS
        if offset == NOTHING and (has_expired or self._may_be_emptied):
            register.emptied()
            return
        self.found(
            "I-39",
            f"{self.name} read {offset} of group {register.group}, which can only have {register}",
            self._at,
        )
        register.doubt(offset)  # it is told once

    # -- asking ------------------------------------------------------------------------------

    def _ask(self, register: Register, questions: Sequence[_Question], then: _Answered) -> bool:
        """Ask the coordinator all of these, one behind the other, and hear each answer. Without a
        coordinator it is looked for, and nothing is asked: returns whether it was."""
        cluster, group = self.cluster, register.group
        broker = cluster.router.coordinator(group)
        if broker is None:
            self._find_coordinator(group)
            return False
        connection = cluster.connection(broker, "coordinator")
        if connection is None:
            cluster.router.forget_coordinator(group)
            self._try_again()
            return False
        self._is_asking = True
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
        self._is_asking = True
        question = cluster.router.coordinator_request(group)
        cluster.ask_for(connection, key, question, partial(self._found_coordinator, group))

    def _found_coordinator(self, group: str, outcome: Outcome) -> None:
        if isinstance(outcome, FindCoordinatorResponse):
            found = outcome.coordinators[0] if outcome.coordinators else outcome
            if found.error_code == ErrorCode.NONE:
                self.cluster.router.learn_coordinator(group, outcome)
                self._next(_QUICK_US)
                return
            self.counters[f"keeper {ErrorCode(found.error_code).name}"] += 1
        self._try_again()


def _code_of(key: ApiKey, answer: Any) -> ErrorCode:
    """What an answer says of the one change that was asked for."""
    if key is ApiKey.DELETE_GROUPS:
        return ErrorCode(answer.results[0].error_code)
    if key is ApiKey.OFFSET_DELETE and answer.error_code:
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)
