"""Whole crews on real nodes: everything works together, and the verdict is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.sim.clients import ADMIN_VERBS, Workload, make_operation
from strandline.sim.clients.admin import AdminOperation
from strandline.sim.history.operations import Acknowledged, Deleted, Polled, Sent, StartSeen
from strandline.sim.history.report import LOSS_KINDS, AnomalyKind
from strandline.sim.plan import Action, ClientSpec, Options
from strandline.sim.scenarios.script import BadScript
from strandline.sim.world import World
from strandline.types import BrokerId, TopicPartition
from tests.sim.clients_stage import Stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def client(line: str) -> ClientSpec:
    kind, name, *options = line.split()
    return ClientSpec(kind, name, dict(option.split("=", 1) for option in options))


def action(line: str) -> Action:
    verb, *rest = line.split()
    words = tuple(word for word in rest if "=" not in word)
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    return Action(0, verb, words, options)


WORK = tuple(
    client(line)
    for line in (
        "producer p1 topic=t partition=0,1 idempotent=yes in-flight=5 every=50ms versions=drawn",
        "producer p2 topic=t partition=0 acks=all in-flight=2 every=80ms by=id",
        "producer p3 topic=t partition=1 acks=1 in-flight=3 every=80ms versions=drawn",
        "producer p4 topic=t partition=1 acks=0 every=100ms",
        "consumer c1 topic=t partition=0,1 rack=b",
        "consumer c2 topic=t partition=0,1 from=latest isolation=committed sessions=no by=name",
        "group m1 group=g topic=t session=2s rebalance=1s commit-every=200ms",
        "group m2 group=g topic=t session=2s rebalance=1s stay=2s away=500ms versions=drawn",
        "group m3 group=g topic=t session=2s rebalance=1s stay=3s goes=vanish static=yes",
        "ends e1 topic=t partition=0,1 every=200ms",
        "garbage x1 topic=t every=300ms",
    )
)


class Run:
    """A world with a workload, from a topic of two partitions to the verdict."""

    def __init__(self, *specs: ClientSpec, seed: int = 1) -> None:
        self.world = World(
            Options(
                seed=seed,
                brokers=3,
                racks=("a", "b", "c"),
                settings={
                    "min.insync.replicas": "2",
                    "group.min.session.timeout.ms": "100",
                    "group.initial.rebalance.delay.ms": "100",
                    "replica.selector.class": (
                        "org.apache.kafka.common.replica.RackAwareReplicaSelector"
                    ),
                },
            )
        )
        self.world.start_all()
        assert self.world.run_until(self.world.is_settled)
        self.workload = Workload(self.world, specs)
        assert self.do("create-topic t assignment=1:2:3,2:3:1") == "done"
        assert self.world.run_until(self.world.is_settled)

    def do(self, line: str) -> str:
        """Carry an operation out; its outcome."""
        operation = self.workload.perform(action(line))
        assert operation is not None
        assert self.world.run_until(lambda: operation.is_done)
        return operation.outcome

    def work(self, ms: int) -> None:
        self.workload.start()
        self.world.run_for(ms)

    def end(self, *partitions: TopicPartition) -> None:
        """Heal, finish, and read everything."""
        for machine in self.world.machines.values():
            machine.resume()
            machine.start()
        assert self.world.run_until(self.world.is_settled)
        self.workload.finish()
        assert self.world.run_until(lambda: self.workload.is_done)
        self.workload.read_everything(partitions)
        assert self.world.run_until(lambda: self.workload.is_done)
        assert self.workload.outstanding == 0


@pytest.fixture
def run() -> Iterator[Run]:
    stage = Run(*WORK)
    yield stage
    stage.world.close()


def test_a_good_cluster_is_found_good(run: Run) -> None:
    run.work(5_000)
    run.end(T0, T1)
    report = run.workload.report()
    assert report.anomalies == (), str(report)
    assert run.workload.findings == []
    assert run.workload.last_overdue_us == 0
    assert report.acknowledged > 200
    assert report.read > 200
    counters = run.workload.counters
    for name in (
        "preferred replica",
        "end seen",
        "commit acknowledged",
        "leads group",
        "member of a generation",
        "garbage answered",
        "garbage hung up on",
    ):
        assert counters[name] > 0, name
    assert {event.consumer for event in run.world.history if isinstance(event, Polled)} >= {
        "c1",
        "c2",
        "last0",
        "last1",
    }


def test_faults_within_tolerance_cost_nothing(run: Run) -> None:
    run.work(1_000)
    for number, ms in ((1, 500), (2, 1500), (3, 100)):
        machine = run.world.machines[BrokerId(number)]
        machine.kill()
        run.world.run_for(ms)
        machine.start()
        assert run.world.run_until(run.world.is_settled)
        machine.pause()
        run.world.run_for(ms)
        machine.resume()
        assert run.world.run_until(run.world.is_settled)
    run.end(T0, T1)
    assert run.workload.report().anomalies == ()
    assert run.workload.findings == []
    assert run.workload.counters["batch sent again"] > 0


def test_the_same_seed_gives_the_same_history() -> None:
    histories = []
    for _ in range(2):
        stage = Run(*WORK, seed=7)
        stage.work(1_500)
        stage.end(T0, T1)
        histories.append((stage.world.history, stage.workload.counters, stage.world.trace_hash))
        stage.world.close()
    assert histories[0] == histories[1]


def test_a_lost_record_is_found_and_may_be_allowed(run: Run) -> None:
    run.work(1_000)
    run.end(T0, T1)
    history = run.world.history
    told = [event for event in history if isinstance(event, Acknowledged)]
    strong = next(event for event in told if repr(event.value).startswith("b'p1-"))
    weak = next(event for event in told if repr(event.value).startswith("b'p3-"))
    for victim in (strong, weak):
        for index, event in enumerate(history):
            if isinstance(event, Polled):
                kept = [record for record in event.records if record[1] != victim.value]
                history[index] = event._replace(records=kept)
    found = {anomaly.kind for anomaly in run.workload.report().anomalies}
    assert AnomalyKind.LOST in found
    lost = [
        anomaly.sentence
        for anomaly in run.workload.report().anomalies
        if anomaly.kind is AnomalyKind.LOST
    ]
    assert [repr(strong.value) in sentence for sentence in lost] == [True]
    allowed = {anomaly.kind for anomaly in run.workload.report().beyond(LOSS_KINDS)}
    assert AnomalyKind.LOST not in allowed


def test_clients_do_not_hang_on_a_broker_that_is_gone_for_long(run: Run) -> None:
    run.work(500)
    run.world.machines[BrokerId(1)].pause()
    run.world.run_for(8_000)
    run.workload.finish()
    assert run.world.run_until(lambda: all(client.is_done for client in run.workload.clients))
    assert run.workload.outstanding == 0
    assert run.workload.last_overdue_us > 0


# -- operations ----------------------------------------------------------------------------------


@pytest.fixture
def quiet() -> Iterator[Run]:
    stage = Run(client("producer p1 topic=t partition=0,1 idempotent=yes every=20ms by=id"))
    yield stage
    stage.world.close()


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("create-topic t", "refused TOPIC_ALREADY_EXISTS"),
        ("create-topic u partitions=2 replication=2 min.insync.replicas=1", "done"),
        ("create-topic u replication=4", "refused INVALID_REPLICATION_FACTOR"),
        ("delete-topic u", "refused UNKNOWN_TOPIC_OR_PARTITION"),
        ("add-partitions t total=4", "done"),
        ("add-partitions t total=1", "refused INVALID_PARTITIONS"),
        ("alter-config t min.insync.replicas=1 retention.ms=-", "done"),
        ("alter-config t min.insync.replicas=-3", "refused INVALID_CONFIG"),
        ("reassign t-0 3,2", "done"),
        ("reassign t-0 9", "refused INVALID_REPLICA_ASSIGNMENT"),
        ("cancel-reassign t-0", "refused NO_REASSIGNMENT_IN_PROGRESS"),
        ("elect preferred t-0", "refused ELECTION_NOT_NEEDED"),
        ("elect unclean t-1", "refused ELECTION_NOT_NEEDED"),
        ("delete-records t-0 offset=5000", "refused OFFSET_OUT_OF_RANGE"),
        ("describe t", "done"),
        ("describe", "done"),
        ("describe u", "refused UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_operations_come_to_an_end(quiet: Run, line: str, outcome: str) -> None:
    assert quiet.do(line) == outcome
    assert f"{line.split()[0]} {outcome}" in quiet.workload.counters


def test_what_is_asked_is_done(quiet: Run) -> None:
    topic = quiet.world.image.topics["t"]
    assert quiet.do("alter-config t min.insync.replicas=1") == "done"
    assert quiet.do("reassign t-1 3,1,2") == "done"
    assert quiet.do("add-partitions t total=3") == "done"
    assert quiet.world.run_until(quiet.world.is_settled)
    quiet.world.run_for(500)
    assert quiet.do("elect preferred t-1") in ("done", "refused ELECTION_NOT_NEEDED")
    image = quiet.world.image
    state = image.partition(T1)
    assert state is not None
    assert (state.leader, list(state.replicas)) == (3, [3, 1, 2])
    assert len(image.topics["t"].partitions) == 3
    assert quiet.do("recreate-topic t partitions=2 replication=3") == "done"
    again = quiet.world.image.topics["t"]
    assert again.node.topic_id != topic.node.topic_id
    assert quiet.do("delete-topic t") == "done"


def test_deleted_records_are_remembered(quiet: Run) -> None:
    told: list[tuple[TopicPartition, int]] = []
    quiet.workload = Workload(
        quiet.world,
        [spec.spec for spec in quiet.workload.clients],
        on_deleted=lambda at, _, offset: told.append((at, offset)),
    )
    quiet.work(1_000)
    assert quiet.do("delete-records t-0 fraction=50") == "done"
    assert quiet.do("delete-records t-1 high-watermark") == "done"
    quiet.end(T0, T1)
    assert [at for at, _ in told] == [T0, T1]
    assert told == quiet.workload.deleted
    assert all(offset > 0 for _, offset in told)
    deleted = [event.offset for event in quiet.world.history if isinstance(event, Deleted)]
    assert deleted == [offset for _, offset in told]
    seen = {event.offset for event in quiet.world.history if isinstance(event, StartSeen)}
    assert seen >= set(deleted)
    assert quiet.workload.report().anomalies == ()


def test_clients_live_through_a_topic_that_is_made_anew(quiet: Run) -> None:
    readers = [
        client("consumer c1 topic=t partition=0,1 by=id"),
        client("group m1 group=g topic=t by=id session=2s rebalance=500ms"),
        client("ends e1 topic=t partition=0,1 every=100ms"),
    ]
    specs = [spec.spec for spec in quiet.workload.clients]
    quiet.workload = Workload(quiet.world, [*specs, *readers])
    quiet.work(1_000)
    assert quiet.do("recreate-topic t partitions=2 replication=3 min.insync.replicas=2") == "done"
    quiet.world.run_for(3_000)
    quiet.end(T0, T1)
    assert quiet.workload.report().anomalies == ()
    assert quiet.workload.findings == []
    places = {event.partition for event in quiet.world.history if isinstance(event, Sent)}
    assert len(places) == 4, "two partitions, twice"
    assert quiet.workload.counters["position in a new topic"] > 0


def test_an_operation_that_no_broker_can_carry_out_expires(quiet: Run) -> None:
    for machine in quiet.world.machines.values():
        machine.pause()
    assert quiet.do("create-topic u within=3s") == "expired"
    assert quiet.workload.outstanding == 0


def test_lines_that_are_no_operations_are_refused() -> None:
    stage = Stage()
    assert Workload(stage, []).perform(Action(0, "kill", ("1",))) is None
    assert "reassign" in ADMIN_VERBS
    for line in (
        "create-topic",
        "reassign t 1,2",
        "reassign t-0 one",
        "reassign t-0",
        "elect anybody t-0",
        "delete-records",
    ):
        with pytest.raises(BadScript):
            begin(make_operation(stage, "a", action(line)))


def begin(operation: AdminOperation) -> None:
    operation.start()
