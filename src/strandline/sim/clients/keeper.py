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

from functools import partial
from typing import Any, ClassVar, Final

from strandline.client.channel import RequestFailed
from strandline.client.group_requests import (
    LAST_BY_NAME,
    Committed,
    Membership,
    commit_request,
)
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.offset_commit import OffsetCommitRequest
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.coordinator_client import QUICK_US, CoordinatorClient, Question
from strandline.sim.clients.register import NOTHING, Register
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import Offset

_DAY_MS: Final = 86_400_000
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


class Keeper(CoordinatorClient):
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
        self._deletes_as = self.cluster.versions.of(ApiKey.DELETE_GROUPS)
        self.cluster.topics = [self._at.topic]
        self._registers: list[Register] = []
        self._left: list[Register] = []
        """To be read before it can end."""
        self._offset = 0

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        self._begin_another()
        self.after(self.about(self._every_us), self.go_on_if_idle)

    def _begin_another(self) -> None:
        self._registers.append(Register(f"{self.name}-{len(self._registers)}"))

    def finishing(self) -> None:
        """See `SimClient`."""
        self._left = list(self._registers)
        self.go_on_if_idle()

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if self.is_asking:
            return
        if not self._left:
            self.done()
        elif self.now_us > self.give_up_us:
            group = self._left[0].group
            self.found("I-50", f"{self.name} could not find out what group {group} has stored")
            self.done()

    def step(self) -> None:
        """See `CoordinatorClient`."""
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
            self.ask(present.group, [change], partial(self._made, present, change))

    def _go_on(self) -> None:
        self.next(self.about(self._every_us))

    # -- changes -----------------------------------------------------------------------------

    def _commit(self, register: Register) -> Question:
        self._offset += 1
        version, metadata = self._commits_as, "x" * self.random.choice((0, 0, 60))
        stored = {self._at: Committed(Offset(self._offset), metadata=metadata)}
        request = commit_request(Membership(register.group, None), stored, {}, version)
        assert isinstance(request, OffsetCommitRequest)
        if version in _RETENTIONS:
            request.retention_time_ms = self.random.choice((-1, 10 * _DAY_MS, 2**63 - 1))
        return Question(ApiKey.OFFSET_COMMIT, version, request, self._offset)

    def _deletion(self, register: Register) -> Question:
        if self.random.random() < 0.5:
            return self._offset_deletion(register)
        return self._group_deletion(register)

    def _offset_deletion(self, register: Register) -> Question:
        partitions = [OffsetDeleteRequestPartition(partition_index=self._at.partition)]
        topics = [OffsetDeleteRequestTopic(name=self._at.topic, partitions=partitions)]
        request = OffsetDeleteRequest(group_id=register.group, topics=topics)
        return Question(ApiKey.OFFSET_DELETE, 0, request)

    def _group_deletion(self, register: Register) -> Question:
        request = DeleteGroupsRequest(groups_names=[register.group])
        return Question(ApiKey.DELETE_GROUPS, self._deletes_as, request)

    def _made(self, register: Register, change: Question, was_true: bool, outcome: Outcome) -> None:
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

    def _doubt(self, register: Register, change: Question) -> None:
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

        if self.ask(register.group, changes, made):
            for change in changes:
                self._doubt(register, change)

    # -- reading -----------------------------------------------------------------------------

    def _read(self, register: Register) -> None:
        question = self.offsets_question(register.group, [self._at])
        self.ask(register.group, [question], partial(self._told, register))

    def _told(self, register: Register, was_true: bool, outcome: Outcome) -> None:
        offsets = self.offsets_in(outcome)
        if offsets is None or not was_true:
            self.look_elsewhere(register.group)
            return
        self.backoff.reset()
        self._saw(register, offsets[self._at])
        if self._left and self._left[0] is register:
            self._left.pop(0)
        self.next(QUICK_US if self.is_finishing else self.about(self._every_us))

    def _saw(self, register: Register, offset: int) -> None:
        """A coordinator that was one in truth has this."""
        self.counters["keeper sees an offset" if offset >= 0 else "keeper sees none"] += 1
        if register.may_hold(offset):
            return
        if offset == NOTHING and (self.may_have_expired or self._may_be_emptied):
            register.emptied()
            return
        self.found(
            "I-39",
            f"{self.name} read {offset} of group {register.group}, which can only have {register}",
            self._at,
        )
        register.doubt(offset)  # it is told once


def _code_of(key: ApiKey, answer: Any) -> ErrorCode:
    """What an answer says of the one change that was asked for."""
    if key is ApiKey.DELETE_GROUPS:
        return ErrorCode(answer.results[0].error_code)
    if key is ApiKey.OFFSET_DELETE and answer.error_code:
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)
