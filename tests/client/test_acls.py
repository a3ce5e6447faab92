"""ACLs by the shipped clients and by the command line, of a broker that has an authorizer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import strandline
from strandline.cli.main import cli

ORDERS = strandline.Acl("User:alice", "Read", "Topic", "orders")
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with strandline.Cluster(brokers=1, settings=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def run(bootstrap: str) -> Iterator[Run]:
    def acls(*arguments: str, code: int = 0) -> str:
        ended = CliRunner().invoke(cli, ["--bootstrap", bootstrap, "acls", *arguments])
        assert (2 if ended.exit_code == 2 else int(ended.exception is not None)) == code, ended
        return ended.output if code != 1 else str(ended.exception or ended.output)

    yield acls
    with strandline.Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.delete_acls(admin.list_acls())


def test_an_admin_creates_lists_and_deletes_acls(bootstrap: str, run: Run) -> None:
    prefixed = strandline.Acl("User:*", "all", "group", "g-", "prefixed", "10.0.0.1", "deny")
    with strandline.Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_acls([ORDERS, prefixed, ORDERS])
        listed = admin.list_acls()
        assert listed == [
            ORDERS,
            strandline.Acl("User:*", "All", "Group", "g-", "Prefixed", "10.0.0.1", "Deny"),
        ]
        assert admin.delete_acls([ORDERS, ORDERS]) == [ORDERS]
        assert admin.delete_acls([ORDERS]) == []
        with pytest.raises(strandline.ProtocolError, match="'alice' is not of the form User:name"):
            admin.create_acls([strandline.Acl("alice", "Read", "Topic", "orders")])
        with pytest.raises(ValueError, match="'Reed' is not one of"):
            admin.create_acls([strandline.Acl("User:a", "Reed", "Topic", "orders")])


def test_an_admin_on_an_event_loop(bootstrap: str, run: Run) -> None:
    async def steps() -> None:
        async with strandline.AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
            await admin.create_acls([ORDERS])
            assert await admin.list_acls() == [ORDERS]
            assert await admin.delete_acls([ORDERS]) == [ORDERS]

    asyncio.run(steps())


def test_the_command_line_adds_lists_and_removes(run: Run) -> None:
    assert run("list") == "There are no such ACLs.\n"
    added = run(
        *("add", "--allow-principal", "User:alice", "--allow-host", "10.0.0.1"),
        *("--operation", "read", "--operation", "DescribeConfigs", "--topic", "orders"),
    )
    assert added == "Added 2 ACLs.\n"
    run(
        "add",
        "--deny-principal",
        "User:bob",
        "--topic",
        "or",
        "--resource-pattern-type",
        "prefixed",
    )
    lines = run("list", "--topic", "orders", "--resource-pattern-type", "match").splitlines()
    assert [line.split() for line in lines] == [
        ["RESOURCE", "PATTERN", "NAME", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"],
        ["Topic", "prefixed", "or", "User:bob", "*", "All", "deny"],
        ["Topic", "literal", "orders", "User:alice", "10.0.0.1", "DescribeConfigs", "allow"],
        ["Topic", "literal", "orders", "User:alice", "10.0.0.1", "Read", "allow"],
    ]
    assert len(json.loads(run("list", "--principal", "User:alice", "--json"))) == 2
    assert run(
        *("remove", "--allow-principal", "User:alice", "--allow-host", "10.0.0.1"),
        *("--operation", "Read", "--topic", "orders"),
    ) == ("Removed 1 ACL.\n")
    assert run("remove", "--topic", "orders", "--yes") == "Removed 1 ACL.\n"
    [left] = json.loads(run("list", "--json"))
    assert (left["principal"], left["permission"], left["pattern"]) == (
        "User:bob",
        "Deny",
        "Prefixed",
    )


def test_roles_stand_for_what_they_need(run: Run) -> None:
    who = ("--allow-principal", "User:p")
    run("add", *who, "--producer", "--topic", "t", "--transactional-id", "x", "--idempotent")
    run("add", *who, "--consumer", "--topic", "t", "--group", "g")
    found = {
        (each["resource_type"], each["resource"], each["operation"])
        for each in json.loads(run("list", "--json"))
    }
    assert found == {
        ("Topic", "t", "Write"),
        ("Topic", "t", "Describe"),
        ("Topic", "t", "Create"),
        ("Topic", "t", "Read"),
        ("TransactionalId", "x", "Write"),
        ("TransactionalId", "x", "Describe"),
        ("Cluster", "kafka-cluster", "IdempotentWrite"),
        ("Group", "g", "Read"),
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("add --topic t", "Say who"),
        ("add --allow-principal User:a", "Name a resource"),
        ("add --allow-principal User:a --topic t --operation Reed", "'Reed' is not one of"),
        ("add --deny-host h --allow-principal User:a --topic t", "--deny-host is of"),
        ("add --allow-principal User:a --consumer --topic t", "--consumer needs --topic and"),
        ("add --allow-principal User:a --producer", "--producer needs --topic"),
        ("add --allow-principal User:a --idempotent --topic t", "--idempotent is of --producer"),
        ("add --allow-principal User:a --producer --topic t --operation Read", "leave them out"),
        ("add --deny-principal User:a --producer --topic t", "they go with --allow-principal"),
        (
            "add --allow-principal User:a --group g --operation Write",
            "no operation Write on the resource type Group: it has All, Read, Describe, Delete",
        ),
        ("add --allow-principal User:a --cluster --operation Read", "no operation Read on"),
        ("add --deny-principal User:a --deny-host localhost --topic t", "It is one IP address"),
        ("add --deny-principal User:a --deny-host 10.0.0.0/8 --topic t", "matches no client"),
        ("add --allow-principal User:a --topic or*", "prefixed and the name 'or'"),
        (
            "add --allow-principal User:a --topic * --resource-pattern-type prefixed",
            "the pattern type literal",
        ),
        ("add --allow-principal User:a --topic a/b", "characters other than ASCII letters"),
        ("remove", "Name a resource"),
    ],
)
def test_options_that_do_not_fit(run: Run, arguments: str, sentence: str) -> None:
    assert sentence in " ".join(run(*arguments.split(), code=2).split())


def test_refusals_are_told(run: Run) -> None:
    said = run("add", "--allow-principal", "alice", "--topic", "t", code=1)
    assert "The principal 'alice' is not of the form User:name." in said


def test_the_commands_of_the_page(run: Run) -> None:
    page = (Path(__file__).parents[2] / "docs" / "authorization.md").read_text("utf-8")
    commands = re.findall(r"^    strandline acls (.*)$", page, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        said = run(*command.split())
    assert said == "Removed 1 ACL.\n"
