"""kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records and other admin tools."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from bench.readiness import free_port
from tests.java.processes import Broker, Outcome, ToolServer, Workshop
from tests.java.tables import CONFIGS, CONSOLE_PRODUCER, OFFSETS, TOOLS, TOPICS, fields


class Tools:
    """The tools, told where the broker is."""

    def __init__(self, server: ToolServer, address: str) -> None:
        self._server = server
        self._address = address

    def __call__(self, main: str, *arguments: str | Path, stdin: str = "") -> Outcome:
        where = ("--bootstrap-server", self._address)
        # These read it before the name of the subcommand, others behind it.
        is_first = main.endswith(("FeatureCommand", "MetadataQuorumCommand", "TransactionsCommand"))
        words = [*where, *arguments] if is_first else [*arguments, *where]
        return self._server.run(main, *words, stdin=stdin)

    def topics(self, *arguments: str) -> Outcome:
        return self(TOPICS, *arguments)

    def describe(self, topic: str, *arguments: str) -> list[dict[str, str]]:
        said = self.topics("--describe", "--topic", topic, *arguments).succeeded()
        return [fields(line) for line in said.splitlines() if line.strip()]

    def configs(self, kind: str, name: str | None, *arguments: str) -> Outcome:
        entity = ["--entity-default"] if name is None else ["--entity-name", name]
        return self(CONFIGS, "--entity-type", kind, *entity, *arguments)

    def setting(self, kind: str, name: str, setting: str) -> tuple[str, str]:
        """A setting's value and its first synonym's source ("": none), of `--describe --all`."""
        said = self.configs(kind, name, "--describe", "--all").succeeded()
        for line in said.splitlines():
            found, _, rest = line.strip().partition("=")
            if found == setting:
                synonyms = rest.partition("synonyms={")[2].partition("}")[0]
                return rest.partition(" ")[0], synonyms.partition(":")[0]
        raise AssertionError(f"{setting} is missing in {said}")


@pytest.fixture(scope="module")
def run(tools: ToolServer, broker: Broker) -> Tools:
    return Tools(tools, broker.address)


def test_create_describe_and_delete_a_topic(run: Tools) -> None:
    create = ("--create", "--topic", "made", "--partitions", "3")
    assert "Created topic made." in run.topics(*create, "--config", "retention.ms=7").succeeded()
    assert "already" in run.topics(*create).failed()
    run.topics(*create, "--if-not-exists").succeeded()
    assert "made" in run.topics("--list").succeeded().split()
    head, *partitions = run.describe("made")
    assert (head["PartitionCount"], head["ReplicationFactor"]) == ("3", "1")
    assert head["Configs"] == "retention.ms=7"
    assert [p["Partition"] for p in partitions] == ["0", "1", "2"]
    assert all((p["Leader"], p["Replicas"], p["Isr"]) == ("1", "1", "1") for p in partitions)
    by_id = run.topics("--describe", "--topic-id", head["TopicId"]).succeeded()
    assert fields(by_id.splitlines()[0]) == head
    paged = run.describe("made", "--partition-size-limit-per-response", "1")
    assert paged == [head, *partitions]
    run.topics("--delete", "--topic", "made").succeeded()
    assert "made" not in run.topics("--list").succeeded().split()
    assert "does not exist" in run.topics("--describe", "--topic", "made").failed()
    assert "does not exist" in run.topics("--delete", "--topic", "made").failed()
    run.topics("--delete", "--topic", "made", "--if-exists").succeeded()
    assert "does not exist" in run.topics("--describe", "--topic-id", head["TopicId"]).failed()


def test_a_topic_grows(run: Tools) -> None:
    run.topics("--create", "--topic", "grows", "--replica-assignment", "1,1").succeeded()
    assert len(run.describe("grows")) == 3
    run.topics("--alter", "--topic", "grows", "--partitions", "5").succeeded()
    assert len(run.describe("grows")) == 6
    assert "5 partitions" in run.topics("--alter", "--topic", "grows", "--partitions", "2").failed()
    said = run.topics("--alter", "--topic", "none", "--partitions", "2").failed()
    assert "does not exist" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bad/name",), "bad/name"),
        (("unknown-config", "--config", "bogus=1"), "bogus"),
        (("bad-config", "--config", "retention.ms=soon"), "retention.ms"),
        (("too-many", "--replication-factor", "3"), "3"),
        (("no-broker", "--replica-assignment", "9"), "9"),
        (("too-few", "--partitions", "0"), "0"),
    ],
)
def test_topics_that_cannot_be(run: Tools, arguments: tuple[str, ...], sentence: str) -> None:
    said = run.topics("--create", "--topic", *arguments).failed()
    assert said.count("\n") <= 12, said
    assert sentence in said
    assert arguments[0] not in run.topics("--list").succeeded().split()


def test_filters_of_describe(run: Tools) -> None:
    run.topics("--create", "--topic", "plain").succeeded()
    run.topics("--create", "--topic", "special", "--config", "segment.ms=99999").succeeded()
    for unwell in ("under-replicated", "unavailable", "under-min-isr"):
        assert not run.topics("--describe", f"--{unwell}-partitions").succeeded().strip(), unwell
    least = run.topics("--describe", "--at-min-isr-partitions").succeeded()
    assert {"plain", "special"} <= {fields(line)["Topic"] for line in least.splitlines()}
    changed = run.topics("--describe", "--topics-with-overrides").succeeded()
    assert "special" in changed
    assert "plain" not in changed
    assert "__consumer_offsets" not in run.topics("--list", "--exclude-internal").succeeded()


def test_settings_of_a_topic(run: Tools) -> None:
    run.topics("--create", "--topic", "set", "--config", "segment.bytes=2000000").succeeded()
    change = ("--alter", "--add-config")
    both = "cleanup.policy=[compact,delete],retention.ms=5"
    run.configs("topics", "set", *change, both).succeeded()
    assert run.setting("topics", "set", "cleanup.policy") == (
        "compact,delete",
        "DYNAMIC_TOPIC_CONFIG",
    )
    said = run.configs("topics", "set", "--describe").succeeded()
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5" in said
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in said
    for wrong in ("retention.ms=x", "cleanup.policy=burn", "min.insync.replicas=0"):
        assert wrong.partition("=")[0] in run.configs("topics", "set", *change, wrong).failed()
    assert run.setting("topics", "set", "retention.ms")[0] == "5"
    run.configs("topics", "set", "--alter", "--delete-config", "retention.ms").succeeded()
    assert run.setting("topics", "set", "retention.ms") == ("604800000", "")
    assert "none" in run.configs("topics", "none", *change, "retention.ms=1").failed()


def test_settings_of_brokers_reach_topics_and_go_again(run: Tools) -> None:
    run.topics("--create", "--topic", "follows").succeeded()
    add, delete = ("--alter", "--add-config"), ("--alter", "--delete-config")
    run.configs("brokers", None, *add, "log.retention.ms=111,message.max.bytes=50000").succeeded()
    assert run.setting("topics", "follows", "retention.ms") == (
        "111",
        "DYNAMIC_DEFAULT_BROKER_CONFIG",
    )
    run.configs("brokers", "1", *add, "log.retention.ms=222").succeeded()
    assert run.setting("topics", "follows", "retention.ms") == ("222", "DYNAMIC_BROKER_CONFIG")
    assert run.setting("brokers", "1", "log.retention.ms")[0] == "222"
    default = run.configs("brokers", None, "--describe").succeeded()
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=111" in default
    run.configs("brokers", "1", *delete, "log.retention.ms").succeeded()
    assert run.setting("topics", "follows", "retention.ms")[0] == "111"
    run.configs("brokers", None, *delete, "log.retention.ms,message.max.bytes").succeeded()
    assert run.setting("topics", "follows", "retention.ms") == ("604800000", "")
    assert run.setting("topics", "follows", "max.message.bytes") == ("1048588", "DEFAULT_CONFIG")
    assert "node.id" in run.configs("brokers", "1", *add, "node.id=5").failed()
    assert run.setting("brokers", "1", "node.id")[0] == "1"


def test_a_listener_is_opened_and_closed(run: Tools, tools: ToolServer) -> None:
    alter = ("brokers", "1", "--alter")
    own, second = run.setting("brokers", "1", "listeners")[0], f"127.0.0.1:{free_port()}"
    said = run.configs(*alter, "--add-config", f"advertised.listeners=[{own}]").failed()
    assert "Cannot update these configs dynamically: [advertised.listeners]" in said
    protocols = "listener.security.protocol.map=[PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT]"
    more = f"listeners=[{own},SECOND://{second}],{protocols}"
    run.configs(*alter, "--add-config", more).succeeded()
    rows = Tools(tools, second)(TOOLS + "ClusterTool", "list-endpoints").succeeded().splitlines()
    assert ":".join(rows[1].split()[1:3]) == second
    names = "listeners,listener.security.protocol.map"
    run.configs(*alter, "--delete-config", names).succeeded()
    assert run.setting("brokers", "1", "listeners")[0] == own
    host, _, port = second.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_offsets_and_deletion_of_records(run: Tools, tmp_path: Path) -> None:
    run.topics("--create", "--topic", "counted", "--partitions", "2").succeeded()
    lines = "".join(f"{n}\n" for n in range(20))
    run(CONSOLE_PRODUCER, "--topic", "counted", stdin=lines).succeeded()

    def offsets(*arguments: str) -> dict[str, int]:
        said = run(OFFSETS, "--topic-partitions", "counted", *arguments).succeeded()
        return {line.rpartition(":")[0]: int(line.rpartition(":")[2]) for line in said.split()}

    ends = offsets()
    assert sum(ends.values()) == 20
    assert offsets("--time", "-2") == {"counted:0": 0, "counted:1": 0}
    assert offsets("--time", "earliest-local") == {"counted:0": 0, "counted:1": 0}
    assert offsets("--time", "0") == {name: 0 for name, end in ends.items() if end}
    full = max(ends, key=ends.__getitem__)
    partition = int(full.rpartition(":")[2])
    request = tmp_path / "delete.json"
    what = {"topic": "counted", "partition": partition, "offset": 3}
    request.write_text(json.dumps({"version": 1, "partitions": [what]}))
    said = run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", request).succeeded()
    assert f"partition: counted-{partition}\tlow_watermark: 3" in said
    assert offsets("--time", "earliest")[full] == 3
    assert offsets() == ends
    request.write_text(json.dumps({"version": 1, "partitions": [{**what, "offset": 1000}]}))
    said = run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", request).succeeded()
    assert "OffsetOutOfRangeException" in said
    assert offsets("--time", "earliest")[full] == 3


def test_log_directories(run: Tools, broker: Broker) -> None:
    run.topics("--create", "--topic", "stored").succeeded()
    run(CONSOLE_PRODUCER, "--topic", "stored", stdin="some bytes\n").succeeded()
    said = run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", "stored").succeeded()
    (described,) = json.loads(said.splitlines()[-1])["brokers"]
    (directory,) = described["logDirs"]
    assert (described["broker"], directory["error"]) == (1, None)
    assert directory["logDir"] == str(broker.data)
    (partition,) = directory["partitions"]
    log = broker.data / "stored-0" / f"{0:020}.log"
    assert partition == {
        "partition": "stored-0",
        "size": log.stat().st_size,
        "offsetLag": 0,
        "isFuture": False,
    }


def test_the_cluster(run: Tools, broker: Broker) -> None:
    cluster = TOOLS + "ClusterTool"
    said = run(cluster, "cluster-id").succeeded()
    assert said.split() == ["Cluster", "ID:", broker.report["cluster_id"]]
    rows = run(cluster, "list-endpoints").succeeded().splitlines()
    port = str(broker.report["port"])
    assert rows[1].split() == ["1", "127.0.0.1", port, "null", "unfenced", "broker"]
    said = run(TOOLS + "BrokerApiVersionsCommand").succeeded()
    assert said.count("usable: ") > 25
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert "Fetch(1): 4 to 18 [usable: 18]" in said
    assert "ShareFetch(78): 1 to 2 [usable: 2]" in said


def test_elections_and_moves(run: Tools, tmp_path: Path) -> None:
    run.topics("--create", "--topic", "moved", "--if-not-exists").succeeded()
    elect = TOOLS + "LeaderElectionCommand"
    everything = ("--election-type", "preferred", "--all-topic-partitions")
    run(elect, *everything).succeeded()
    one = ("--election-type", "preferred", "--topic", "moved", "--partition", "0")
    assert "Valid replica already elected" in run(elect, *one).succeeded()
    move = TOOLS + "reassign.ReassignPartitionsCommand"
    assert "No partition reassignments found." in run(move, "--list").succeeded()
    plan = tmp_path / "plan.json"
    partition = {"topic": "moved", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    where = ("--reassignment-json-file", plan)
    assert "Successfully started" in run(move, *where, "--execute").succeeded()
    assert "is completed" in run(move, *where, "--verify").succeeded()


def test_levels_of_features_are_shown_and_changed(run: Tools) -> None:
    features = TOOLS + "FeatureCommand"

    def level() -> str:
        said = run(features, "describe").succeeded()
        (line,) = [line for line in said.splitlines() if "transaction.version" in line]
        return line.partition("FinalizedVersionLevel:")[2].split()[0]

    assert level() == "2"
    change = ("--feature", "transaction.version=1")
    run(features, "downgrade", "--dry-run", *change).succeeded()
    assert "without setting the upgrade type" in run(features, "upgrade", *change).failed()
    assert level() == "2"
    said = run(features, "downgrade", *change).succeeded()
    assert "transaction.version was downgraded to 1." in said
    assert level() == "1"
    run(features, "disable", "--feature", "transaction.version").succeeded()
    assert level() == "0"
    run(features, "upgrade", "--feature", "transaction.version=2").succeeded()
    assert level() == "2"
    refused = run(features, "upgrade", "--feature", "metadata.version=25").failed()
    assert "does not support this feature" in refused


def test_acls_are_written_listed_and_removed(tools: ToolServer, workshop: Workshop) -> None:
    """What Kafka's documentation shows of the tool, against a broker whose anonymous clients are
    super users."""
    secured = workshop.broker(
        None,
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
        "auto.create.topics.enable=false",
    )
    run = Tools(tools, secured.address)

    def acls(*arguments: str) -> str:
        return run(TOOLS + "AclCommand", *arguments).succeeded()

    def listed(*arguments: str) -> set[str]:
        said = acls("--list", *arguments)
        return {line.strip() for line in said.splitlines() if "principal=" in line}

    host = ("--allow-host", "198.51.100.0", "--allow-host", "198.51.100.1")
    who = ("--allow-principal", "User:Bob", "--allow-principal", "User:Alice")
    said = acls("--add", *who, *host, "--operation", "Read", "--operation", "Write", "--topic", "t")
    assert "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)" in said
    assert len(listed("--topic", "t")) == 8
    acls(
        "--add",
        "--deny-principal",
        "User:BadBob",
        "--deny-host",
        "198.51.100.3",
        "--operation",
        "Read",
        "--topic",
        "t",
    )
    bad = "(principal=User:BadBob, host=198.51.100.3, operation=READ, permissionType=DENY)"
    assert bad in listed("--topic", "t")
    acls(
        "--add",
        "--allow-principal",
        "User:Jane",
        "--producer",
        "--topic",
        "p-",
        "--resource-pattern-type",
        "prefixed",
        "--transactional-id",
        "tx",
        "--idempotent",
    )
    acls("--add", "--allow-principal", "User:Jane", "--consumer", "--topic", "t", "--group", "a/b")
    everything = acls("--list")
    assert "ResourcePattern(resourceType=GROUP, name=a/b, patternType=LITERAL)" in everything
    assert (
        "ResourcePattern(resourceType=TRANSACTIONAL_ID, name=tx, patternType=PREFIXED)"
        in everything
    )
    assert (
        "ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)"
        in everything
    )
    jane = "(principal=User:Jane, host=*, operation=WRITE, permissionType=ALLOW)"
    matching = ("--topic", "p-1", "--resource-pattern-type", "match")
    assert jane in listed(*matching)
    assert not listed("--topic", "p-1")
    assert listed("--principal", "User:BadBob") == {bad}
    acls(
        "--remove",
        "--deny-principal",
        "User:BadBob",
        "--deny-host",
        "198.51.100.3",
        "--operation",
        "Read",
        "--topic",
        "t",
        "--force",
    )
    assert bad not in listed("--topic", "t")
    acls("--remove", *matching, "--force")
    assert not listed(*matching)
    acls("--remove", "--topic", "t", "--force")
    assert not listed("--topic", "t")
    refused = run(
        TOOLS + "AclCommand", "--add", "--allow-principal", "Bob", "--topic", "t"
    ).failed()
    assert "Bob" in refused
    assert secured.stop()


def test_quotas_of_users_and_client_ids(run: Tools) -> None:
    """In the words of Kafka 4.3.1, which was asked the same."""
    limits = "producer_byte_rate=1024,request_percentage=12.5,controller_mutation_rate=0.25"
    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    alice, app = (*user, "--entity-name", "alice"), (*client, "--entity-name", "app")
    everyone, every_id = (*user, "--entity-default"), (*client, "--entity-default")
    for entity, said in (
        (alice, "user-principal 'alice'"),
        (app, "client-id 'app'"),
        ((*alice, *app), "user-principal 'alice', client-id 'app'"),
        ((*everyone, *every_id), "the default user-principal, the default client-id"),
    ):
        run(CONFIGS, "--alter", *entity, "--add-config", limits).succeeded()
        told = run(CONFIGS, "--describe", *entity).succeeded()
        assert f"Quota configs for {said} are " in told
        for each in ("producer_byte_rate=1024.0", "request_percentage=12.5", "_rate=0.25"):
            assert each in told
        names = ",".join(each.split("=")[0] for each in limits.split(","))
        run(CONFIGS, "--alter", *entity, "--delete-config", names).succeeded()
        assert "_rate" not in run(CONFIGS, "--describe", *entity).succeeded()
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    run(CONFIGS, "--alter", *address, "--add-config", "connection_creation_rate=5").succeeded()
    told = run(CONFIGS, "--describe", "--entity-type", "ips").succeeded()
    assert "Quota configs for ip '127.0.0.9' are connection_creation_rate=5.0" in told
    run(CONFIGS, "--alter", *address, "--delete-config", "connection_creation_rate").succeeded()
    refused = run(CONFIGS, "--alter", *alice, "--add-config", "producer_byte_rate=1.5").failed()
    assert "producer_byte_rate cannot be a fractional value." in refused


def test_acls_without_an_authorizer(run: Tools) -> None:
    assert "No Authorizer is configured." in run(TOOLS + "AclCommand", "--list").failed()


@pytest.mark.parametrize(
    ("command", "api"),
    [
        ("MetadataQuorumCommand describe --status", "DESCRIBE_QUORUM"),
    ],
)
def test_what_is_not_served_is_refused_by_name(run: Tools, command: str, api: str) -> None:
    run.topics("--create", "--topic", "t", "--if-not-exists").succeeded()
    name, *arguments = command.split()
    main = name if name == CONFIGS else TOOLS + name
    assert f"The node does not support {api}" in run(main, *arguments).failed()
