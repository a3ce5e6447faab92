"""The steps of a start, driven by hand: what they write, wait for, and give up at."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from uuid import UUID

import pytest

from strandline.cluster.store import (
    BadVersion,
    Create,
    Delete,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoreError,
    StoreUnavailable,
)
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import BrokerNode, Endpoint, TopicNode, adoption_path
from strandline.cluster.znodes.topics import topic_path
from strandline.config.load import load_broker_config
from strandline.config.topic import TopicConfig
from strandline.errors import InvalidSetting
from strandline.node.start_up import StartUp, Step, Wait, Write
from strandline.storage.files import LockHeld
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.types import BrokerId, Instant, TopicPartition

ENDPOINTS = (Endpoint("PLAINTEXT", "here", 9092),)
OTHER = Endpoint("PLAINTEXT", "there", 9092)
SESSION = SessionId(7)
T0 = TopicPartition("t", 0)


class Driver:
    """Carries the steps out on a bare tree."""

    def __init__(self, *, is_alone: bool = False, files: MemoryFiles | None = None) -> None:
        self.tree = NodeTree()
        self.config = load_broker_config(None, ["node.id=1", "log.dirs=/data/a"]).config
        self.files = MemoryFiles() if files is None else files
        self.start_up = StartUp(
            self.config,
            self.files,
            Random(1),
            clock=lambda: Instant(1, 2),
            is_alone=is_alone,
        )
        self.start_up.directories.make()
        self.writes = 0

    def steps(self) -> Generator[Step, None, None]:
        return self.start_up.steps(self.tree.view())

    def carry_out(self, write: Write) -> None:
        changes = self.tree.multi(write.operations, SESSION).changes
        if changes is not None:
            self.start_up.changed(changes)
        self.writes += 1

    def register(self, endpoint: Endpoint) -> None:
        node = BrokerNode(BrokerId(1), (endpoint,), None, 1)
        create = Create(node.path, node.encode(), ephemeral=True)
        changes = self.tree.multi([create], SESSION).changes
        assert changes is not None
        self.start_up.changed(changes)

    def write(self, *operations: Operation) -> None:
        """Another broker changes the metadata."""
        changes = self.tree.multi(operations).changes
        assert changes is not None
        self.start_up.changed(changes)

    def run(self) -> None:
        """Everything goes well."""
        for step in self.steps():
            assert isinstance(step, Write)
            self.carry_out(step)


def test_a_start_makes_what_is_missing_and_then_the_node() -> None:
    driver = Driver()
    driver.run()
    assert driver.writes == 1
    assert driver.start_up.image.cluster_id is not None
    assert BrokerId(1) in driver.start_up.image.adopted_by  # others share the metadata
    node = driver.start_up.make_node(ENDPOINTS)
    assert node.broker_id == 1
    assert node.broker_epoch == -1
    assert driver.start_up.directories.all[0].offline_reason is None


def test_a_second_start_has_nothing_to_write() -> None:
    first = Driver()
    first.run()
    first.start_up.directories.abandon()
    second = Driver(files=first.files)
    second.tree = first.tree
    second.run()
    assert second.writes == 0


def test_a_broker_alone_adopts_and_keeps_the_id_of_its_logs() -> None:
    first = Driver()
    first.run()
    cluster_id = first.start_up.image.cluster_id
    first.start_up.directories.abandon()
    alone = Driver(is_alone=True, files=first.files)
    assert adoption_path(BrokerId(1)) not in {node.path for node in alone.tree.view().nodes}
    alone.run()
    assert alone.start_up.image.cluster_id == cluster_id
    assert BrokerId(1) in alone.start_up.image.adopted_by
    assert alone.writes == 2


@pytest.mark.parametrize("error", [BadVersion("/somewhere"), OutcomeUnknown("lost")])
def test_a_write_that_lost_a_race_is_decided_again(error: StoreError) -> None:
    driver = Driver()
    steps = driver.steps()
    step = next(steps)
    assert isinstance(step, Write)
    driver.carry_out(step)  # by another broker
    step.error = error
    assert next(steps, None) is None
    assert driver.start_up.image.cluster_id is not None


def test_a_store_that_cannot_write_ends_the_start() -> None:
    steps = Driver().steps()
    step = next(steps)
    assert isinstance(step, Write)
    step.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable, match="away"):
        next(steps)


def test_metadata_that_never_stand_still_end_the_start() -> None:
    steps = Driver().steps()
    for _ in range(20):
        step = next(steps)
        assert isinstance(step, Write)
        step.error = BadVersion("/somewhere")
    with pytest.raises(StoreUnavailable, match="keeps changing"):
        next(steps)


def test_a_start_waits_until_its_id_is_free() -> None:
    driver = Driver()
    steps = driver.steps()
    step = next(steps)
    assert isinstance(step, Write)
    driver.carry_out(step)
    driver.register(OTHER)
    wait = next(steps)
    assert isinstance(wait, Wait)
    assert wait.timeout_ms > driver.config.zookeeper_session_timeout_ms
    assert not wait.condition()
    changes = driver.tree.expire_session(SESSION).changes
    assert changes is not None
    driver.start_up.changed(changes)
    assert wait.condition()
    wait.is_met = True
    assert next(steps, None) is None


@pytest.mark.parametrize("is_made_again", [False, True])
def test_i49_a_topic_that_goes_while_a_broker_starts_leaves_no_log_in_the_way(
    is_made_again: bool,
) -> None:
    """F-68: the log belongs to the topic when the broker looks for strays, and not any more when
    its id is free. Left where it is, it kept the broker from ever having the new topic's log."""
    driver = Driver()
    driver.files.make_directory("/data/a")
    old, new = UUID(int=1), UUID(int=2)
    log = Log.create(driver.files, "/data/a/t-0", T0, TopicConfig(), now_ms=1, random=Random(1))
    log.assign_topic_id(old)
    log.close()
    steps = driver.steps()
    step = next(steps)
    assert isinstance(step, Write)
    driver.carry_out(step)
    driver.write(Create(topic_path("t"), TopicNode("t", old, {0: (BrokerId(1),)}).encode()))
    driver.register(OTHER)
    wait = next(steps)
    assert isinstance(wait, Wait)
    assert list(driver.start_up.directories.all[0].logs) == [T0]
    driver.write(Delete(topic_path("t")))
    if is_made_again:
        driver.write(Create(topic_path("t"), TopicNode("t", new, {0: (BrokerId(1),)}).encode()))
    wait.is_met = True
    assert next(steps, None) is None
    driver.start_up.make_node(ENDPOINTS)
    directories = driver.start_up.directories
    assert not directories.all[0].logs
    assert not driver.files.is_directory("/data/a/t-0")
    assert any("is kept as /data/a/t-0" in notice for notice in directories.notices)


def test_an_id_that_stays_in_use_ends_the_start() -> None:
    driver = Driver()
    steps = driver.steps()
    step = next(steps)
    assert isinstance(step, Write)
    driver.carry_out(step)
    driver.register(OTHER)
    assert isinstance(next(steps), Wait)
    with pytest.raises(InvalidSetting, match=r"id 1 is running in this cluster, at .*there"):
        next(steps)


def test_two_processes_do_not_share_a_directory() -> None:
    first = Driver()
    first.run()
    second = Driver(files=first.files)
    second.tree = first.tree
    with pytest.raises(LockHeld):
        second.run()
