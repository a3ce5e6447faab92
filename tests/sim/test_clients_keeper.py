"""The client that uses a group's offset as a register: what it can be told, and what is drawn."""

from __future__ import annotations

import pytest

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from strandline.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from strandline.sim.clients.make import Watches, make_client
from strandline.sim.clients.register import NOTHING, Register
from strandline.sim.keeping import KEEPER
from strandline.sim.options import draw_plan
from strandline.sim.plan import Action, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.run import run
from strandline.types import TopicPartition
from tests.sim.clients_stage import Asked, Stage


def test_a_register_holds_what_the_last_change_has_left() -> None:
    register = Register("g")
    assert register.may_hold(NOTHING)
    register.left(5)
    assert not register.may_hold(NOTHING)
    assert register.may_hold(5)
    assert register.is_certain


def test_a_register_in_doubt_may_hold_what_any_open_change_leaves() -> None:
    register = Register("g")
    register.left(5)
    register.doubt(6)
    register.doubt(NOTHING)
    assert [each for each in (NOTHING, 4, 5, 6) if register.may_hold(each)] == [NOTHING, 5, 6]
    assert str(register) == "nothing or 5 or 6"


def test_an_emptied_register_may_hold_what_comes_late() -> None:
    certain, doubtful = Register("g"), Register("h")
    for each in (certain, doubtful):
        each.left(5)
    doubtful.doubt(6)
    for each in (certain, doubtful):
        each.emptied()
    assert not certain.may_hold(5)
    assert doubtful.may_hold(6)


# -- one client ----------------------------------------------------------------------------------


class Puppet:
    """Broker 2 coordinates all groups, and answers as the one register that it keeps for each."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.lead("t", 0, 1)
        self.stage.lead(CONSUMER_OFFSETS, 0, 2)
        self.stored: dict[str, int] = {}
        self.forgets = False
        """Whether it confirms what it does not store."""
        self.client = self.stage.make(KEEPER, "y", topic="t", every="5ms", deletes="0")
        self.client.start()

    def serve(self, requests: int) -> None:
        for _ in range(requests):
            while not self.stage.requests:
                self.stage.schedule.step()
            self.answer(self.stage.requests.popleft())

    def answer(self, asked: Asked) -> None:
        match asked.body:
            case FindCoordinatorRequest():
                found = Coordinator(key=asked.body.coordinator_keys[0], node_id=2)
                asked.answer(FindCoordinatorResponse(coordinators=[found]))
            case OffsetCommitRequest(group_id=group, topics=[topic]):
                if not self.forgets:
                    self.stored[group] = topic.partitions[0].committed_offset
                partitions = [OffsetCommitResponsePartition()]
                topic_told = OffsetCommitResponseTopic(name="t", partitions=partitions)
                asked.answer(OffsetCommitResponse(topics=[topic_told]))
            case OffsetDeleteRequest(group_id=group):
                self.stored.pop(group, None)
                gone = OffsetDeleteResponseTopic(
                    name="t", partitions=[OffsetDeleteResponsePartition()]
                )
                asked.answer(OffsetDeleteResponse(topics=[gone]))
            case DeleteGroupsRequest(groups_names=[group]):
                self.stored.pop(group, None)
                asked.answer(DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group)]))
            case OffsetFetchRequest(groups=[group]):
                offset = self.stored.get(group.group_id, NOTHING)
                part = OffsetFetchResponsePartitions(committed_offset=offset)
                topics = [OffsetFetchResponseTopics(name="t", partitions=[part])]
                answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
                asked.answer(OffsetFetchResponse(groups=[answer]))
            case _:
                raise AssertionError(asked.body)

    @property
    def found(self) -> set[str]:
        return {each.invariant for each in self.client.findings}


def test_of_a_coordinator_that_stores_what_it_confirms_nothing_is_found() -> None:
    puppet = Puppet()
    puppet.serve(300)
    assert puppet.client.counters["keeper sees an offset"] > 10
    assert puppet.client.counters["keeper sees none"] > 10
    puppet.client.finish()
    while not puppet.client.is_done:
        puppet.serve(len(puppet.stage.requests))
        puppet.stage.schedule.step()
    assert puppet.found == set()


def test_a_confirmed_offset_that_is_not_there_is_found() -> None:
    puppet = Puppet()
    puppet.serve(20)
    puppet.forgets = True
    puppet.serve(40)
    assert puppet.found == {"I-39"}


def test_a_coordinator_that_was_deposed_may_answer_from_memory() -> None:
    puppet = Puppet()
    puppet.serve(20)
    puppet.forgets = True
    puppet.stage.lead(CONSUMER_OFFSETS, 0, 3)
    puppet.serve(40)
    assert puppet.found == set()


# -- what groups have stored in the end ----------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "found"),
    [(9, set()), (12, {"I-39"}), (5, {"I-39"}), (NOTHING, {"I-39"})],
)
def test_what_members_were_told_is_stored_is_read_in_the_end(stored: int, found: set[str]) -> None:
    at = TopicPartition("t", 0)
    puppet = Puppet()
    watches = Watches.of(puppet.stage)
    for generation, offset in enumerate((5, 9)):
        watches.groups.committing("g", at, offset)
        watches.groups.committed("g", at, generation, offset)
    puppet.stored["g"] = stored
    reader = make_client(puppet.stage, ClientSpec("offsets", "o", {"group": "g"}), watches)
    reader.start()
    while not reader.is_done:
        puppet.serve(1)
    assert {each.invariant for each in watches.groups.findings} == found
    assert reader.findings == []


# -- in clusters ---------------------------------------------------------------------------------


def test_keepers_in_a_cluster_whose_coordinators_fail() -> None:
    clients = tuple(
        ClientSpec(KEEPER, f"y{number}", {"topic": "t", "every": "20ms", "versions": "drawn"})
        for number in (1, 2)
    )
    kills = tuple(
        Action(at_ms * 1000, "kill", (f"leader:{CONSUMER_OFFSETS}-0",), {"down": "300ms"})
        for at_ms in (500, 1500)
    )
    options = Options(seed=5, topics=(TopicSpec("t", 1, 3),), safety_us=3_000_000)
    verdict = run(Plan(options, clients, kills))
    assert verdict.violations == ()


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [draw_plan(seed) for seed in range(300)]


def test_a_third_of_the_seeds_has_keepers(plans: list[Plan]) -> None:
    kept = [plan for plan in plans if any(each.kind == KEEPER for each in plan.clients)]
    assert 60 < len(kept) < 120
    for plan in kept:
        topics = {each.options["topic"] for each in plan.clients if each.kind == KEEPER}
        verbs = ("delete-topic", "recreate-topic")
        assert not topics & {each.words[0] for each in plan.actions if each.verb in verbs}


def test_the_topic_of_offsets_goes_where_nothing_else_is_stored(plans: list[Plan]) -> None:
    emptied = [
        plan for plan in plans if any(each.words == (CONSUMER_OFFSETS,) for each in plan.actions)
    ]
    assert len(emptied) > 5
    for plan in emptied:
        kinds = {each.kind for each in plan.clients}
        assert not kinds & {"group", "share", "copier", "transactional"}
