"""Random lives of two groups, with fail-overs, against the invariants of the specification.

Generations are never reused, a generation has one leader, everyone in a stable group has what its
leader assigned, every request is answered exactly once and in time (I-40), and a new coordinator
finds the last acknowledged commit (I-39). `GroupCoordinator.check` runs after every event.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from strandline.errors import ErrorCode
from strandline.groups.requests import Token
from strandline.groups.settings import GroupSettings
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.describe_groups import DescribeGroupsRequest
from strandline.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from strandline.protocol.messages.sync_group import SyncGroupResponse
from strandline.types import LeaderEpoch, TopicPartition
from tests.groups.world import World

GROUPS = st.sampled_from(["g", "h"])
INSTANCES = st.sampled_from([None, None, "i-1", "i-2"])
INDEX = st.integers(0, 7)
LONGEST_MS = 60_000 + 3_000 * 20
REFUSALS = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR]
)

Known = tuple[str, str, str | None, int]
"""(group, member id, instance id, generation)."""
Life = tuple[int, str, int]
"""(epoch, group, incarnation)."""


class Machine(RuleBasedStateMachine):
    """Clients that do anything at any time, and a log that is slow and sometimes refuses."""

    world_class: type[World]

    def __init__(self) -> None:
        super().__init__()
        self.world = self.world_class(
            GroupSettings(
                members_max=4,
                new_member_join_timeout_ms=90_000,
                offsets_retention_check_interval_ms=10**9,  # only deletions end a group here
            ),
            partition_count=2,
        )
        self.epoch = 1
        self.known: list[Known] = []
        """(group, member id, instance id, generation) as clients have been told."""
        self.asked: dict[Token, tuple[str, str, str | None, Any]] = {}
        """Unanswered and unread requests: token -> (kind, group, instance, extra)."""
        self.asked_at: dict[Token, int] = {}
        self.leaders: dict[tuple[Life, int], str] = {}
        """(epoch, group, incarnation, generation) -> who leads it."""
        self.told: dict[tuple[Life, str], int] = {}
        """(epoch, incarnation, member id) -> the newest generation it was told of."""
        self.members: dict[tuple[str, int], list[str]] = {}
        """(member id, generation) -> the members that it was told to assign to."""
        self.assigned: dict[tuple[str, int, str], int] = {}
        """(group, member id) -> the newest generation whose assignment it got."""
        self.acknowledged: dict[tuple[str, TopicPartition], set[int]] = {}
        """(group, partition) -> the offsets whose commits were acknowledged."""
        self.committed: dict[tuple[str, TopicPartition], set[int]] = {}
        """(group, partition) -> all offsets that were ever to be committed."""
        self.barriers: Counter[str] = Counter()
        """Group -> the number of the last commit before its last deletion was asked for."""
        self.incarnation: Counter[str] = Counter()
        self.commits = 0

    # Clients.

    @rule(group=GROUPS, instance=INSTANCES, version=st.sampled_from([3, 9]), extra=INDEX)
    def join(self, group: str, instance: str | None, version: int, extra: int) -> None:
        protocols = self._protocols(extra)
        token = self.world.join(
            group=group, group_instance_id=instance, version=version, protocols=protocols
        )
        self._asked(token, "join", group, instance)

    @precondition(lambda self: self.known)
    @rule(index=INDEX, extra=INDEX)
    def rejoin(self, index: int, extra: int) -> None:
        self._rejoin(self._known(index), extra)

    @precondition(lambda self: self.known)
    @rule(index=INDEX)
    def sync(self, index: int) -> None:
        self._sync(self._known(index))

    @precondition(lambda self: self.known)
    @rule(index=INDEX)
    def heartbeat(self, index: int) -> None:
        group, member, instance, generation = self._known(index)
        error = self.world.heartbeat(member, generation, group, instance)
        assert error in (
            ErrorCode.NONE,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )

    @precondition(lambda self: self.known)
    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        group, member, instance, _ = self._known(index)
        token = self.world.leave((member, instance), group=group)
        self._asked(token, "leave", group, instance)

    @precondition(lambda self: self.known)
    @rule(index=INDEX, partition=st.integers(0, 1))
    def commit(self, index: int, partition: int) -> None:
        group, member, instance, generation = self._known(index)
        self._commit(
            group,
            partition,
            generation=generation,
            member_id=member,
            group_instance_id=instance,
        )

    @rule(group=GROUPS, partition=st.integers(0, 1))
    def commit_without_membership(self, group: str, partition: int) -> None:
        self._commit(group, partition)

    def _commit(self, group: str, partition: int, **who: Any) -> None:
        self.commits += 1
        key = (group, TopicPartition("orders", partition))
        self.committed.setdefault(key, set()).add(self.commits)
        token = self.world.commit((partition, self.commits), group=group, **who)
        self._asked(token, "commit", group, None, (key, self.commits))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self._read_answers()
        token = self.world.ask(DeleteGroupsRequest(groups_names=[group]))
        answer = self.world.replies.get(token)
        if answer is not None and answer.results[0].error_code in (
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            return
        self.incarnation[group] += 1
        self.barriers[group] = self.commits
        self._asked(token, "delete", group, None)

    @rule(group=GROUPS)
    def a_group_settles(self, group: str) -> None:
        """Everyone who is known does what a good client does."""
        for entry in [entry for entry in self.known if entry[0] == group]:
            self._rejoin(entry, 0)
        self.world.advance(9_000)
        self._read_answers()
        for entry in [entry for entry in self.known if entry[0] == group]:
            self._sync(entry)

    # The world.

    @rule(ms=st.sampled_from([1, 500, 3_000, 5_000, 9_000, 61_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def the_log_becomes_slow(self) -> None:
        self.world.hold = True

    @rule()
    def the_log_becomes_fast(self) -> None:
        self.world.hold = False
        self.world.release()

    @precondition(lambda self: self.world.held)
    @rule(count=st.integers(1, 3))
    def some_appends_are_durable(self, count: int) -> None:
        self.world.release(count)

    @rule(error=REFUSALS)
    def the_next_append_is_refused(self, error: ErrorCode) -> None:
        self.world.fail_with = error

    @rule()
    def fail_over(self) -> None:
        """Everything in flight reaches the new coordinator, although no client was answered."""
        self.epoch += 1
        old = self.world
        for partition in range(old.partition_count):
            old.run(old.coordinator.unload_partition(partition, LeaderEpoch(self.epoch), old.now))
        assert old.coordinator.next_deadline() is None
        self._read_answers()
        assert not self.asked, "giving up answers everyone"
        self.world = old.fail_over(self.epoch)
        self.world.coordinator.check()

    # What is promised.

    @invariant()
    def read_answers(self) -> None:
        self._read_answers()
        late = self.world.now.monotonic_ms - LONGEST_MS
        assert all(at > late for at in self.asked_at.values()), "a request waits for ever"

    @invariant()
    def commits_are_found(self) -> None:
        for group in ("g", "h"):
            found = self.world.offsets(group)
            for partition in (0, 1):
                key = (group, TopicPartition("orders", partition))
                sure = {o for o in self.acknowledged.get(key, ()) if o > self.barriers[group]}
                if sure:
                    newest = max(sure)
                    allowed = {o for o in self.committed[key] if o >= newest}
                else:
                    allowed = {-1, *self.committed.get(key, ())}
                assert found.get(key[1], -1) in allowed

    @invariant()
    def stable_members_have_assignments(self) -> None:
        request = DescribeGroupsRequest(groups=["g", "h"])
        for group in self.world.answer(request).groups:
            if group.group_state == "Stable":
                assert group.members
                assert all(member.member_assignment for member in group.members)

    def _read_answers(self) -> None:
        for token in [token for token in self.asked if token in self.world.replies]:
            kind, group, instance, extra = self.asked.pop(token)
            del self.asked_at[token]
            response = self.world.replies[token]
            if isinstance(response, JoinGroupResponse):
                self._joined(group, instance, response)
            elif isinstance(response, SyncGroupResponse):
                self._synced(group, response, *extra)
            elif kind == "commit":
                key, offset = extra
                if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    self.acknowledged.setdefault(key, set()).add(offset)

    def _joined(self, group: str, instance: str | None, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._learn(group, response.member_id, instance, response.generation_id)
        elif response.error_code == ErrorCode.NONE:
            self._learn(group, response.member_id, instance, response.generation_id)
            self._check_generation(group, instance, response)
        else:
            assert response.generation_id == -1

    def _check_generation(
        self, group: str, instance: str | None, response: JoinGroupResponse
    ) -> None:
        member, generation = response.member_id, response.generation_id
        life = (self.epoch, group, self.incarnation[group])
        assert generation >= self.told.get((life, member), 0), "a generation came back"
        self.told[life, member] = generation
        if response.leader != member:
            assert response.members == []
            return
        leader = self.leaders.setdefault((life, generation), instance or member)
        assert leader == (instance or member), "two leaders of one generation"
        members = [joined.member_id for joined in response.members]
        assert member in members
        assert len(set(members)) == len(members) <= 4
        self.members[member, generation] = members

    def _synced(
        self, group: str, response: SyncGroupResponse, member: str, generation: int
    ) -> None:
        if response.error_code != ErrorCode.NONE:
            return
        name, assigned_generation, owner = response.assignment.decode().split("/")
        assert (name, int(assigned_generation)) == (group, generation)
        assert owner == member or owner.startswith("i-"), "an assignment of another member"
        place = (group, self.incarnation[group], member)
        assert generation >= self.assigned.get(place, 0), "an assignment came back"
        self.assigned[place] = generation

    # Helpers.

    def _rejoin(self, entry: Known, extra: int) -> None:
        group, member, instance, _ = entry
        protocols = self._protocols(extra)
        token = self.world.join(member, group, group_instance_id=instance, protocols=protocols)
        self._asked(token, "join", group, instance)

    def _sync(self, entry: Known) -> None:
        group, member, instance, generation = entry
        parts = [
            (other, f"{group}/{generation}/{other}".encode())
            for other in self.members.get((member, generation), [])
        ]
        token = self.world.sync(member, generation, parts, group, group_instance_id=instance)
        self._asked(token, "sync", group, instance, (member, generation))

    def _protocols(self, extra: int) -> list[JoinGroupRequestProtocol]:
        metadata = self.world.subscription("orders", *(["more"] if extra == 7 else []))
        names = ["range", "sticky"] if extra % 2 else ["range"]
        return [self.world.protocol(name, metadata) for name in names]

    def _known(self, index: int) -> Known:
        return self.known[-1 - index % len(self.known)]

    def _learn(self, group: str, member: str, instance: str | None, generation: int) -> None:
        self.known = [entry for entry in self.known if entry[1] != member][-7:]
        self.known.append((group, member, instance, generation))

    def _asked(
        self, token: Token, kind: str, group: str, instance: str | None, extra: Any = None
    ) -> None:
        self.asked[token] = (kind, group, instance, extra)
        self.asked_at[token] = self.world.now.monotonic_ms

    def teardown(self) -> None:
        """At rest everything is answered, and every group is calm."""
        self.the_log_becomes_fast()
        self.world.advance(LONGEST_MS)
        self.read_answers()
        assert not self.asked
        self.world.coordinator.check()
        for overview in self.world.coordinator.overviews():
            assert overview.state.value in ("Empty", "Stable"), overview.state


def test_random_lives(world_type: type[World]) -> None:
    class Bound(Machine):
        world_class = world_type

    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=250, stateful_step_count=60, deadline=None, derandomize=True, database=None
        ),
    )
