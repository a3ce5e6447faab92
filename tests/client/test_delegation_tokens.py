"""Delegation tokens by the command line, and the shipped client that logs in by one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import strandline
from strandline.cli.main import cli
from strandline.errors import ErrorCode

Run = Callable[..., Any]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[strandline.Cluster]:
    users = {"alice": "alice-secret", "bob": "bob-secret"}
    settings = {"delegation.token.secret.key": "planted-key"}
    with strandline.Cluster(
        brokers=2, security="SASL_PLAINTEXT", users=users, settings=settings
    ) as made:
        yield made


@pytest.fixture
def run(cluster: strandline.Cluster, tmp_path: Path) -> Run:
    def tokens(*arguments: str, user: str = "alice", **changed: str) -> str:
        path = tmp_path / "client.properties"
        settings = cluster.client_config(user) | changed
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        ended = CliRunner().invoke(cli, ["--client-config", str(path), "tokens", *arguments])
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return ended.output

    return tokens


def by_token(cluster: strandline.Cluster, token: dict[str, Any]) -> dict[str, str]:
    return cluster.client_config("alice") | {
        "sasl.username": token["token_id"],
        "sasl.password": token["secret"],
        "sasl.tokenauth": "true",
    }


def test_a_client_works_by_a_token_until_it_is_gone(cluster: strandline.Cluster, run: Run) -> None:
    made = json.loads(run("create", "--renewer", "User:bob", "--json"))
    assert made["owner"] == made["requester"] == "User:alice"
    assert made["renewers"] == ["User:bob"]
    settings = by_token(cluster, made)
    cluster.create_topic("orders", replication_factor=2)
    with strandline.Producer(settings) as producer:
        producer.send("orders", b"one")
    with strandline.Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([strandline.TopicPartition("orders", 0)])
        assert consumer.poll(30_000)[0].value == b"one"
    with pytest.raises(strandline.ProtocolError, match="not by a token") as refused:
        run("create", **{name: settings[name] for name in settings if name.startswith("sasl.")})
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert "expires at" in run("renew", made["secret"], "--for", "PT1H", user="bob")
    (told,) = json.loads(run("list", "--json"))
    assert told["token_id"] == made["token_id"]
    assert "secret" not in told
    assert HOUR_MS - 60_000 < told["expires_ms"] - made["issued_ms"] < HOUR_MS + 60_000
    assert made["secret"] in run("list", "--owner", "User:bob", "--secrets")
    assert made["secret"] not in run("list")
    assert run("expire", made["secret"]) == "The token is gone.\n"
    assert run("list", "--owner", "User:alice") == "There are no such tokens.\n"
    with pytest.raises(strandline.ProtocolError, match="no token with that secret"):
        run("renew", made["secret"])
    with pytest.raises(strandline.ProtocolError, match="invalid credentials"):
        strandline.Producer(settings).send("orders", b"two")


def test_what_the_commands_are_given_is_checked(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "token.secret"
    created = run("create", "--owner", "User:bob", "--max-lifetime", "PT1M").splitlines()
    told = dict(line.split(maxsplit=1) for line in created)
    assert told["owner"] == "User:bob"
    secret.write_text(told["secret"] + "\n")
    with pytest.raises(strandline.ProtocolError, match="Only the owner") as refused:
        run("expire", f"file:{secret}", "--in", "PT30S")
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert "expires at" in run("expire", f"file:{secret}", "--in", "PT30S", user="bob")
    assert "Base64" in run("expire", "what?", user="bob")
    assert "'bob' is not of the form User:name" in run("create", "--owner", "bob")
    assert "ISO 8601 duration" in run("create", "--max-lifetime", "1 day")


def test_tokens_by_the_client(cluster: strandline.Cluster) -> None:
    with strandline.Admin(cluster.client_config("alice")) as admin:
        made = admin.create_token(renewers=["User:bob"], max_lifetime_ms=2 * HOUR_MS)
        assert (made.owner, made.renewers) == ("User:alice", ("User:bob",))
        assert made.lives_until_ms - made.issued_ms == 2 * HOUR_MS
        assert made.secret not in repr(made)
        assert made in admin.list_tokens(["User:alice"])
        assert admin.list_tokens([]) == []
        with pytest.raises(ValueError, match="Base64"):
            admin.renew_token("no secret")

    async def as_bob() -> None:
        async with strandline.AsyncAdmin(cluster.client_config("bob")) as admin:
            until_ms = await admin.renew_token(made.secret, HOUR_MS)
            known = {each.token_id: each for each in await admin.list_tokens(["User:bob"])}
            assert known[made.token_id].expires_ms == until_ms
            own = await admin.create_token()
            assert await admin.expire_token(own.secret) <= own.expires_ms
            await admin.expire_token(made.secret)
            gone = {made.token_id, own.token_id}
            assert gone.isdisjoint(each.token_id for each in await admin.list_tokens())

    asyncio.run(as_bob())
