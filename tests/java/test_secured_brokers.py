"""Kafka's own clients and tools at our brokers, by TLS, client certificates and SASL.

The tools of one virtual machine write, read and administrate with `--command-config` files. Java's
TLS, and its way to write names of certificates, are the reference for ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.testing import Cluster
from tests.java.processes import Outcome, ToolServer, Workshop
from tests.java.tables import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOKENS, TOPICS, table

SESSION_MS = 2000


def configured(directory: Path, cluster: Cluster, user: str, **more: str) -> Path:
    """A file for `--command-config`."""
    settings = {**cluster.java_client_config(user), **more}
    settings.pop("bootstrap.servers")
    path = directory / f"{user}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def write_and_read(tools: ToolServer, cluster: Cluster, config: Path, topic: str) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    written = tools.run(CONSOLE_PRODUCER, *at, "--command-config", config, stdin="one\ntwo\n")
    assert written.status == 0, written
    read = tools.run(
        CONSOLE_CONSUMER,
        *at,
        *("--command-config", config, "--from-beginning", "--max-messages", "2"),
        *("--timeout-ms", "60000", "--command-property", f"group.id={topic}"),
    )
    assert read.out.splitlines() == ["one", "two"], read


@pytest.fixture(scope="module")
def scram() -> Iterator[Cluster]:
    users = {"alice": "alice-secret", "admin": "admin-secret"}
    settings = {"connections.max.reauth.ms": SESSION_MS, "delegation.token.secret.key": "planted"}
    with Cluster(brokers=2, security="SASL_SSL", users=users, settings=settings) as cluster:
        yield cluster


def test_java_comes_in_by_scram_and_tls(
    workshop: Workshop, tools: ToolServer, scram: Cluster
) -> None:
    scram.create_topic("scram", replication_factor=2, min_insync_replicas=2)
    config = configured(workshop.directory, scram, "alice")
    write_and_read(tools, scram, config, "scram")


def test_kafka_configs_changes_users_of_scram(
    workshop: Workshop, tools: ToolServer, scram: Cluster
) -> None:
    config = configured(workshop.directory, scram, "admin")
    at = ("--bootstrap-server", scram.bootstrap_servers, "--command-config", config)
    user = ("--entity-type", "users", "--entity-name", "carol")
    added = tools.run(
        CONFIGS,
        *at,
        *user,
        *("--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=carol-secret]"),
    )
    assert added.status == 0, added
    described = tools.run(CONFIGS, *at, *user, "--describe")
    assert "SCRAM-SHA-512=iterations=8192" in described.out, described
    as_carol = config.with_name("carol.properties")
    as_carol.write_text(
        config.read_text().replace("admin-secret", "carol-secret").replace('"admin"', '"carol"')
    )
    scram.create_topic("of-carol", replication_factor=1)
    write_and_read(tools, scram, as_carol, "of-carol")
    removed = tools.run(CONFIGS, *at, *user, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert removed.status == 0, removed
    refused = tools.run(TOPICS, *at[:2], "--command-config", as_carol, "--list")
    assert refused.status != 0
    assert "invalid credentials" in refused.err + refused.out


def test_java_makes_a_token_comes_in_by_it_and_ends_it(
    workshop: Workshop, tools: ToolServer, scram: Cluster
) -> None:
    alice, admin = (configured(workshop.directory, scram, user) for user in ("alice", "admin"))

    def tokens(config: Path, *arguments: str) -> Outcome:
        at = ("--bootstrap-server", scram.bootstrap_servers, "--command-config", config)
        return tools.run(TOKENS, *at, *arguments)

    created = tokens(
        alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:admin"
    )
    assert created.status == 0, created
    (told,) = table(created.out)
    token, secret = told["TOKENID"], told["HMAC"]
    assert (told["OWNER"], told["REQUESTER"], told["RENEWERS"]) == (
        "User:alice",
        "User:alice",
        "[User:admin]",
    )
    by_token = workshop.directory / "token.properties"
    by_token.write_text(
        alice.read_text()
        .replace('username="alice"', f'username="{token}" tokenauth="true"')
        .replace("alice-secret", secret)
    )
    scram.create_topic("of-token", replication_factor=1)
    write_and_read(tools, scram, by_token, "of-token")
    refused = tokens(by_token, "--create", "--max-life-time-period", "-1")
    assert "DelegationTokenDisabledException" not in refused.err
    assert "UnsupportedByAuthenticationException" in refused.err, refused
    renewed = tokens(admin, "--renew", "--renew-time-period", "3600000", "--hmac", secret)
    assert "Completed renew operation" in renewed.out, renewed
    described = tokens(admin, "--describe", "--owner-principal", "User:alice")
    assert [each["TOKENID"] for each in table(described.out)] == [token]
    expired = tokens(alice, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert "Completed expire operation" in expired.out, expired
    again = tokens(alice, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    assert "DelegationTokenNotFoundException" in again.err, again
    gone = tools.run(
        TOPICS,
        *("--bootstrap-server", scram.bootstrap_servers, "--command-config", by_token, "--list"),
    )
    assert "invalid credentials" in gone.err + gone.out


def test_java_comes_in_by_its_certificate(workshop: Workshop, tools: ToolServer) -> None:
    with Cluster(brokers=1, security="SSL", users={"dora": ""}) as cluster:
        cluster.create_topic("certificate")
        write_and_read(
            tools, cluster, configured(workshop.directory, cluster, "dora"), "certificate"
        )


def test_java_comes_in_by_plain(workshop: Workshop, tools: ToolServer) -> None:
    with Cluster(brokers=1, security="SASL_PLAINTEXT", sasl_mechanism="PLAIN") as cluster:
        cluster.create_topic("plain")
        write_and_read(tools, cluster, configured(workshop.directory, cluster, "test"), "plain")
