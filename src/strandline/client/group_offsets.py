"""The offsets of a member: what its group has committed, and what it commits itself.

This file knows OffsetFetch, OffsetCommit and what every refusal of them means, as in Kafka's
`ConsumerCoordinator`. What a refusal means for the membership is told to the member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from strandline.client.backoff import ExponentialBackoff
from strandline.client.consumer_protocol import NO_GENERATION
from strandline.client.coordinator_client import CoordinatorClient, sentence
from strandline.client.group_requests import (
    LAST_BY_NAME,
    Committed,
    Membership,
    commit_request,
    fetch_offsets_request,
    stored_offsets,
)
from strandline.client.group_settings import CONSUMER, GroupSettings
from strandline.errors import RETRIABLE, ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition

MEMBERSHIP_LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)
_MEMBERSHIP_CHANGES: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH}
)
_COMMIT_RETRIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        # The next heartbeat brings the epoch with which it is tried again.
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_MEMBER_REFUSED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})
"""Refusals of a question by a member of the consumer protocol: it hears from its next heartbeat
what to do."""
_NEWER_METADATA: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)


class CommitResult(NamedTuple):
    """What became of a commit."""

    offsets: Mapping[TopicPartition, Committed]
    generation: int
    """Of the last attempt."""
    code: ErrorCode
    """NONE, or the first partition's that was refused; NETWORK_EXCEPTION without an answer."""


class OffsetsOwner(Protocol):
    """The member, as its offsets see it."""

    @property
    def membership(self) -> Membership: ...

    def offsets_asked(self, partitions: Iterable[TopicPartition]) -> None:
        """The committed offsets are asked for."""

    def offsets_found(self, offsets: Mapping[TopicPartition, Committed | None]) -> None:
        """They were told; None where there is none."""

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """A commit made in that generation, or a question of a member of the consumer protocol,
        met an error that is about the membership."""

    def fail(self, error: ProtocolError) -> None:
        """The member is of no use any more."""


@dataclass(eq=False, slots=True)
class PendingCommit:
    """A commit without an outcome yet."""

    offsets: Mapping[TopicPartition, Committed]
    """What is still to be stored of it: later commits may have stored something newer."""
    then: Callable[[CommitResult], None]
    deadline_ms: int | None
    """Until when it is tried again; None: once."""
    is_last: bool
    """Whether its partitions go in any case: it does not wait for a topic that may come."""
    backoff: ExponentialBackoff
    number: int
    """They count up: what comes later is newer."""
    retry_at_ms: int = 0
    is_withdrawn: bool = False

    def withdraw(self) -> None:
        """Do not send it again: its outcome is not waited for any more."""
        self.is_withdrawn = True


class GroupOffsets:
    """See the module."""

    def __init__(
        self,
        owner: OffsetsOwner,
        coordinator: CoordinatorClient,
        settings: GroupSettings,
        random: Random,
    ) -> None:
        self._owner = owner
        self._coordinator = coordinator
        self._settings = settings
        self._group = settings.group
        self._random = random
        self._backoff = settings.backoff(random)
        self._retry_at_ms = 0
        self._wanted: dict[TopicPartition, None] = {}
        self._asked: dict[TopicPartition, None] = {}
        """What is being asked for. Partitions that are given up meanwhile leave it."""
        self._is_asking = False
        self._pending: dict[PendingCommit, None] = {}
        """All commits without an outcome, the oldest first."""
        self._commits: list[PendingCommit] = []
        """Those of them that wait for a coordinator, or for their next attempt."""
        self._count = 0

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do; None if not by time."""
        times = [each.deadline_ms for each in self._commits if each.deadline_ms is not None]
        if self._coordinator.broker is not None:
            times += [each.retry_at_ms for each in self._commits if not self._is_held(each)]
            if self._wanted and not self._is_asking:
                times.append(self._retry_at_ms)
        return min(times, default=None)

    def step(self) -> None:
        """Send what is due."""
        now_ms = self._coordinator.now_ms
        is_known = self._coordinator.broker is not None
        waiting, self._commits = self._commits, []
        for each in waiting:
            if each.is_withdrawn:
                self._end_commit(each, ErrorCode.REQUEST_TIMED_OUT)
            elif not each.offsets:
                self._end_commit(each, ErrorCode.NONE)
            elif is_known and each.retry_at_ms <= now_ms and not self._is_held(each):
                self._send_commit(each)
            elif each.deadline_ms is not None and each.deadline_ms <= now_ms:
                self._end_commit(each, ErrorCode.REQUEST_TIMED_OUT)
            else:
                self._commits.append(each)
        if is_known and self._wanted and not self._is_asking and self._retry_at_ms <= now_ms:
            self._ask()

    # -- What is committed -------------------------------------------------------------------

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Find out what is committed for these, however long it takes."""
        self._wanted.update(dict.fromkeys(partitions))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are given up: what was asked about them is void."""
        for each in partitions:
            self._wanted.pop(each, None)
            self._asked.pop(each, None)

    def _ask(self) -> None:
        wanted = list(self._wanted)
        self._asked = dict.fromkeys(wanted)
        self._is_asking = True
        ids, highest = self._ids(wanted)
        self._owner.offsets_asked(wanted)
        membership = self._owner.membership
        who = membership if self._settings.protocol == CONSUMER else None
        self._coordinator.ask(
            ApiKey.OFFSET_FETCH,
            lambda version: fetch_offsets_request(
                self._group, wanted, version, ids=ids, is_stable=True, who=who
            ),
            partial(
                self._told,
                membership.generation,
                {topic_id: name for name, topic_id in ids.items()},
            ),
            highest=highest,
            code_of=lambda answer: stored_offsets(answer, {}).error,
        )

    def _told(
        self, generation: int, names: Mapping[TopicId, str], code: ErrorCode, answer: Any
    ) -> None:
        self._is_asking = False
        asked, self._asked = self._asked, {}
        found: dict[TopicPartition, Committed | None] = {}
        if code is ErrorCode.NONE:
            told = stored_offsets(answer, names)
            found = {at: each for at, each in told.offsets.items() if at in asked}
            refused = {at: each for at, each in told.refused.items() if at in asked}
            code = next(iter(refused.values()), code)
            self._forget_metadata(refused)
        for at in found:
            self._wanted.pop(at, None)
        if any(at in self._wanted for at in asked):
            self._retry_at_ms = self._coordinator.now_ms + self._backoff.next_ms()
            if code in _MEMBER_REFUSED and self._settings.protocol == CONSUMER:
                self._owner.commit_refused(code, generation)
            elif code is not ErrorCode.NONE and code not in RETRIABLE:
                self._owner.fail(sentence(code, self._group))
                return
        else:
            self._backoff.reset()
        if found:
            self._owner.offsets_found(found)

    # -- Commits -----------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        then: Callable[[CommitResult], None],
        deadline_ms: int | None,
        *,
        is_last: bool = False,
    ) -> PendingCommit:
        """Commit; `then` hears once what became of it: at once if there is nothing to be asked.

        Of several commits of a partition the last one counts. One that is to be tried again waits
        for those that were made after it, and leaves out what they have stored.
        """
        generation = self._owner.membership.generation
        backoff = self._settings.backoff(self._random)
        self._count += 1
        commit = PendingCommit(offsets, then, deadline_ms, is_last, backoff, self._count)
        self._pending[commit] = None
        if not offsets:
            self._end_commit(commit, ErrorCode.NONE, generation)
        elif generation == NO_GENERATION:
            self._end_commit(commit, ErrorCode.UNKNOWN_MEMBER_ID, generation)
        elif self._coordinator.broker is not None:
            self._send_commit(commit)
        elif deadline_ms is not None:
            self._commits.append(commit)
        else:
            self._end_commit(commit, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return commit

    def _is_held(self, commit: PendingCommit) -> bool:
        """Whether a later commit of the same partitions has no outcome yet."""
        return any(
            each.number > commit.number and not commit.offsets.keys().isdisjoint(each.offsets)
            for each in self._pending
        )

    def _send_commit(self, commit: PendingCommit) -> None:
        who = self._owner.membership
        if who.generation == NO_GENERATION:
            # As a commit of no member it could be taken, were the group empty by now.
            self._end_commit(commit, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        offsets = commit.offsets
        ids, highest = self._ids(offsets)
        self._coordinator.ask(
            ApiKey.OFFSET_COMMIT,
            lambda version: commit_request(who, offsets, ids, version),
            partial(self._committed, commit, who.generation),
            highest=highest,
            code_of=_first_refusal,
        )

    def _committed(
        self, commit: PendingCommit, generation: int, code: ErrorCode, answer: Any
    ) -> None:
        del answer
        if code is ErrorCode.REQUEST_TIMED_OUT:
            self._coordinator.lost()
        if code in _NEWER_METADATA:
            self._forget_metadata(commit.offsets)
        if code in MEMBERSHIP_LOST or code in _MEMBERSHIP_CHANGES:
            self._owner.commit_refused(code, generation)
        now_ms = self._coordinator.now_ms
        may_retry = code in _COMMIT_RETRIABLE and not (commit.is_last and code in _NEWER_METADATA)
        if may_retry and self._owner.membership.generation == NO_GENERATION:
            # It is out meanwhile, and its driver may have nothing more to do for it.
            self._end_commit(commit, ErrorCode.UNKNOWN_MEMBER_ID, generation)
            return
        if may_retry and commit.deadline_ms is not None and not commit.is_withdrawn:
            retry_at_ms = now_ms + commit.backoff.next_ms()
            if retry_at_ms < commit.deadline_ms:
                commit.retry_at_ms = retry_at_ms
                self._commits.append(commit)
                return
        self._end_commit(commit, code, generation)
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._owner.fail(sentence(code, self._group))

    def _end_commit(
        self, commit: PendingCommit, code: ErrorCode, generation: int | None = None
    ) -> None:
        if generation is None:
            generation = self._owner.membership.generation
        del self._pending[commit]
        if code is ErrorCode.NONE:
            for each in self._pending:
                if each.number < commit.number:
                    each.offsets = {
                        at: offset
                        for at, offset in each.offsets.items()
                        if at not in commit.offsets
                    }
        commit.then(CommitResult(commit.offsets, generation, code))

    def fail_commits(self) -> None:
        """The member is out, or over: what waits will never be sent."""
        waiting, self._commits = self._commits, []
        for each in waiting:
            self._end_commit(each, ErrorCode.UNKNOWN_MEMBER_ID)

    # -- Topics ------------------------------------------------------------------------------

    def _ids(self, partitions: Iterable[TopicPartition]) -> tuple[dict[str, TopicId], int | None]:
        """The ids of the topics, and the newest version that can be used with them."""
        ids: dict[str, TopicId] = {}
        for at in partitions:
            topic = self._coordinator.router.topic(at.topic)
            ids[at.topic] = NO_TOPIC_ID if topic is None else topic.topic_id
        return ids, LAST_BY_NAME if NO_TOPIC_ID in ids.values() else None

    def _forget_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        self._coordinator.router.forget({at.topic for at in partitions})


def _first_refusal(answer: Any) -> int:
    codes = (part.error_code for topic in answer.topics for part in topic.partitions)
    return next((code for code in codes if code != ErrorCode.NONE), 0)
