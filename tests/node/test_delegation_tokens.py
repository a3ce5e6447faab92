"""Delegation tokens (KIP-48): who gets them, what they let in, and when they end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.client.security.mechanisms import Scram
from strandline.client.security.secret import Secret
from strandline.client.security.settings import Mechanism, Sasl
from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes import TokenNode, token_path
from strandline.errors import ErrorCode, InvalidSetting
from strandline.node.authentication.gate import Gate
from strandline.node.handlers import delegation_tokens as handler
from strandline.protocol.messages import create_delegation_token as creating
from strandline.protocol.messages import describe_delegation_token as describing
from strandline.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from strandline.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest
from strandline.types import ANONYMOUS, USER, Principal
from tests.node.world import WALL_MS, Client, World
from tests.sim.mutants.mutant import SwitchOn, no, nothing, patch, yes

KEY = "planted-key-of-tokens"
SETTINGS = (
    "listeners=PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
    f"delegation.token.secret.key={KEY}",
    "delegation.token.expiry.time.ms=1000",
    "delegation.token.max.lifetime.ms=5000",
    "delegation.token.expiry.check.interval.ms=60000",
)
ALICE, BOB, EVE = (Principal(USER, name) for name in ("alice", "bob", "eve"))


@pytest.fixture
def world() -> Iterator[World]:
    made = World(*SETTINGS)
    yield made
    made.check()


def connect(world: World, principal: Principal = ALICE, protocol: str = "SASL_SSL") -> Client:
    """A client that has authenticated."""
    client = world.connect(principal)
    client.connection.protocol = protocol
    return client


def create(client: Client, owner: str | None = None, **more: Any) -> Any:
    renewers = [
        creating.CreatableRenewers(principal_type=USER, principal_name=name)
        for name in more.pop("renewers", ())
    ]
    request = creating.CreateDelegationTokenRequest(
        owner_principal_type=USER if owner else "",
        owner_principal_name=owner or "",
        renewers=renewers,
        max_lifetime_ms=more.pop("max_lifetime_ms", -1),
    )
    return client.ask(request, more.pop("version", 3))


def describe(client: Client, *owners: Principal, everyone: bool = True) -> Any:
    named = [
        describing.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
        for kind, name in ((each.type, each.name) for each in owners)
    ]
    asked = None if everyone and not owners else named
    return client.ask(describing.DescribeDelegationTokenRequest(owners=asked), 3)


def renew(client: Client, secret: bytes, period_ms: int = -1) -> tuple[int, int]:
    answer = client.ask(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), 2)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(client: Client, secret: bytes, period_ms: int = -1) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
    answer = client.ask(request, 2)
    return answer.error_code, answer.expiry_timestamp_ms


def log_in(world: World, token: Any, mechanism: Mechanism = "SCRAM-SHA-512", **more: Any) -> Any:
    """A client that shows the token, and the last answer to it."""
    client = Client(world)
    client.connection = world.node.open_connection("test-host", "SASL", now=world.now)
    client.connection.protocol = "SASL_PLAINTEXT"
    world.clients[client.connection.id] = client
    return client, log_in_again(world, client, token, mechanism, **more)


def log_in_again(
    world: World,
    client: Client,
    token: Any,
    mechanism: Mechanism = "SCRAM-SHA-512",
    is_token: bool = True,
) -> Any:
    password = base64.b64encode(bytes(token.hmac)).decode()
    sasl = Sasl(
        mechanism=mechanism,
        username=token.token_id,
        password=Secret("sasl.password", password),
        is_delegation_token=is_token,
    )
    exchange = Scram(sasl, password)
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    message: bytes | None = exchange.first()
    while message is not None:
        client.send(SaslAuthenticateRequest(auth_bytes=message), 2)
        world.turn()
        if client.connection.in_flight_max == 0:  # it is refused, later
            world.advance(100)
            return client.answers[-1]
        message = exchange.answer(bytes(client.answers[-1].auth_bytes))
    return client.answers[-1]


# -- Making, renewing, removing -------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_is_made_with_the_times_that_settings_allow(world: World, version: int) -> None:
    now_ms = world.now.wall_ms
    made = create(connect(world), renewers=["bob"], version=version)
    assert made.error_code == 0
    assert (made.principal_type, made.principal_name) == (USER, "alice")
    assert made.issue_timestamp_ms == now_ms
    assert made.expiry_timestamp_ms == now_ms + 1000
    assert made.max_timestamp_ms == now_ms + 5000
    assert bytes(made.hmac) == hmac.digest(KEY.encode(), made.token_id.encode(), hashlib.sha512)
    requester = (made.token_requester_principal_type, made.token_requester_principal_name)
    assert requester == ((USER, "alice") if version == 3 else ("", ""))


def test_a_shorter_life_may_be_asked_for_and_a_longer_one_is_not_given(world: World) -> None:
    client = connect(world)
    now_ms = world.now.wall_ms
    short = create(client, max_lifetime_ms=400)
    assert short.max_timestamp_ms == short.expiry_timestamp_ms == now_ms + 400
    assert create(client, max_lifetime_ms=2**62).max_timestamp_ms == now_ms + 5000


def test_only_owners_and_renewers_change_a_token(world: World) -> None:
    alice, bob, eve = (connect(world, each) for each in (ALICE, BOB, EVE))
    made = create(alice, renewers=["bob"])
    world.advance(500)
    now_ms = world.now.wall_ms
    assert renew(bob, made.hmac) == (0, now_ms + 1000)
    assert renew(alice, made.hmac, 10**15) == (0, now_ms + 1000), "no longer than the setting"
    assert renew(alice, made.hmac, 700) == (0, now_ms + 700)
    assert renew(eve, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(eve, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(bob, made.hmac, 300) == (0, now_ms + 300)
    assert expire(bob, made.hmac, 2**62) == (0, made.max_timestamp_ms), "its longest life"
    for wrong in (b"", b"x", bytes(64), bytes(made.hmac)[:-1], made.token_id.encode()):
        for change in (renew, expire):
            assert change(alice, wrong)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert expire(alice, made.hmac) == (0, now_ms)
    assert renew(alice, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert not world.node.metadata.image.tokens


def test_a_token_that_has_expired_is_not_renewed_and_may_be_removed(world: World) -> None:
    client = connect(world)
    made = create(client)
    world.advance(1001)
    assert renew(client, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(client, made.hmac, 100)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(client, made.hmac)[0] == 0


def test_the_controller_removes_what_has_expired(world: World) -> None:
    client = connect(world)
    made = [create(client) for _ in range(250)]
    world.advance(58_000)
    kept = create(client, max_lifetime_ms=5000)
    renew(client, kept.hmac)
    assert len(world.node.metadata.image.tokens) == 251
    world.advance(2000 - 1000)
    renew(client, kept.hmac)
    world.advance(1000)
    assert set(world.node.metadata.image.tokens) == {kept.token_id}
    assert made[0].token_id != kept.token_id
    assert renew(client, made[0].hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_are_found_again_after_a_restart(world: World) -> None:
    made = create(connect(world))
    world.restart()
    assert renew(connect(world), made.hmac)[0] == 0
    assert log_in(world, made)[1].error_code == 0


# -- Who may ask ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "principal", "is_allowed"),
    [
        ("PLAINTEXT", ANONYMOUS, False),
        ("SSL", ANONYMOUS, False),
        ("SSL", ALICE, True),
        ("SASL_PLAINTEXT", ALICE, True),
        ("SASL_SSL", ALICE, True),
    ],
)
def test_requests_are_taken_from_clients_that_have_shown_who_they_are(
    world: World, protocol: str, principal: Principal, is_allowed: bool
) -> None:
    made = create(connect(world))
    client = connect(world, principal, protocol)
    expected = ErrorCode.NONE if is_allowed else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    answer = create(client)
    assert answer.error_code == expected
    assert bool(answer.token_id) == is_allowed
    assert answer.issue_timestamp_ms == (world.now.wall_ms if is_allowed else -1)
    assert describe(client).error_code == expected
    assert renew(client, made.hmac)[0] == expected
    assert expire(client, made.hmac)[0] == expected


def test_without_a_key_there_are_no_tokens() -> None:
    world = World(*(each for each in SETTINGS if not each.startswith("delegation.token.secret")))
    client = connect(world)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(client).error_code == disabled
    assert describe(client).error_code == disabled
    assert renew(client, b"x")[0] == expire(client, b"x")[0] == disabled
    made = creating.CreateDelegationTokenResponse(token_id="t", hmac=b"x")
    assert log_in(world, made)[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_owners_and_renewers_are_users(world: World) -> None:
    of_group = creating.CreateDelegationTokenRequest(
        owner_principal_type="Group", owner_principal_name="bob"
    )
    assert connect(world).ask(of_group, 3).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    renewer = creating.CreatableRenewers(principal_type="Group", principal_name="g")
    request = creating.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[renewer]
    )
    assert connect(world).ask(request, 3).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_tokens_are_described_by_owners_and_renewers(world: World) -> None:
    alice, bob = connect(world), connect(world, BOB)
    of_alice, of_bob = create(alice, renewers=["eve"]), create(bob)
    for_eve = create(alice, owner="eve")
    assert (for_eve.principal_name, for_eve.token_requester_principal_name) == ("eve", "alice")

    def ids(*owners: Principal, **more: bool) -> set[str]:
        return {each.token_id for each in describe(bob, *owners, **more).tokens}

    assert ids() == {each.token_id for each in (of_alice, of_bob, for_eve)}
    assert ids(BOB) == {of_bob.token_id}
    assert ids(EVE) == {of_alice.token_id, for_eve.token_id}
    assert ids(everyone=False) == set()
    (told,) = describe(bob, ALICE).tokens
    assert told.hmac == of_alice.hmac
    assert [(each.principal_type, each.principal_name) for each in told.renewers] == [(USER, "eve")]
    assert told.expiry_timestamp == of_alice.expiry_timestamp_ms


# -- What a token lets in -------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_lets_its_owner_in_until_it_expires(world: World, mechanism: Mechanism) -> None:
    made = create(connect(world), owner="bob")
    world.advance(400)
    client, answer = log_in(world, made, mechanism)
    assert answer.error_code == 0
    assert answer.session_lifetime_ms == 600
    assert client.connection.principal == BOB
    assert client.ask(MetadataRequest(topics=None), 12).cluster_id
    world.advance(600)
    client.send(MetadataRequest(topics=None), 12)
    world.turn()
    assert client.closed == "Metadata came after the end of its session."


def test_a_token_lets_its_owner_in_and_makes_no_other(world: World) -> None:
    client, _ = log_in(world, create(connect(world)))
    assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_that_was_renewed_lets_its_client_stay(world: World) -> None:
    alice = connect(world)
    made = create(alice)
    client, _ = log_in(world, made)
    world.advance(900)
    renew(alice, made.hmac)
    assert log_in_again(world, client, made).session_lifetime_ms == 1000
    world.advance(900)
    assert client.ask(MetadataRequest(topics=None), 12).cluster_id
    other = create(connect(world, BOB))
    told = log_in_again(world, client, other)
    assert told.error_message == "Cannot change principals during re-authentication"


def test_what_is_no_token_lets_in_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    alice = connect(world)
    made, other, gone = create(alice), create(alice), create(alice)
    expire(alice, gone.hmac)
    mixed = creating.CreateDelegationTokenResponse(token_id=made.token_id, hmac=other.hmac)
    unknown = creating.CreateDelegationTokenResponse(token_id="unknown", hmac=made.hmac)
    world.advance(1)
    for token in (mixed, unknown, gone, made):
        client, answer = log_in(world, token, is_token=token is not made)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials" in answer.error_message
        assert client.closed is not None
    world.advance(1001)
    _, expired = log_in(world, made)
    assert expired.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    for secret in (KEY, *(base64.b64encode(bytes(each.hmac)).decode() for each in (made, other))):
        assert secret not in caplog.text
        assert secret not in repr(world.config)


# -- Where it lies --------------------------------------------------------------------------------


def test_a_token_lies_where_kafka_keeps_it_without_its_secret(world: World) -> None:
    made = create(connect(world, Principal(USER, "CN=a b~c")), renewers=["bob"])
    (stored,) = (each for each in world.tree.view().nodes if each.path == token_path(made.token_id))
    now_ms = made.issue_timestamp_ms
    assert json.loads(stored.data) == {
        "version": 3,
        "owner": "User%3ACN%3Da%20b%7Ec",
        "tokenRequester": "User%3ACN%3Da%20b%7Ec",
        "renewers": ["User%3Abob"],
        "issueTimestamp": now_ms,
        "maxTimestamp": now_ms + 5000,
        "expiryTimestamp": now_ms + 1000,
        "tokenId": made.token_id,
    }
    token = TokenNode.decode(made.token_id, stored.data)
    assert token.owner == Principal(USER, "CN=a b~c")
    assert TokenNode.decode(made.token_id, token.encode()) == token


def test_the_first_versions_knew_no_requester_and_others_are_refused() -> None:
    first = b'{"version":1,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":2,'
    first += b'"expiryTimestamp":2,"tokenId":"t"}'
    assert TokenNode.decode("t", first).requester == Principal(USER, "a")
    for wrong in (
        first.replace(b'"t"', b'"u"'),
        first.replace(b"User%3Aa", b"alice"),
        first.replace(b"[]", b"[1]"),
        first[:-1],
    ):
        with pytest.raises(MalformedNode):
            TokenNode.decode("t", wrong)


def test_the_key_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [each.replace(KEY, "env:KEY_OF_TOKENS") for each in SETTINGS]
    with pytest.raises(InvalidSetting, match=r"delegation\.token\.secret\.key"):
        World(*elsewhere)
    monkeypatch.setenv("KEY_OF_TOKENS", KEY)
    made = create(connect(World(*elsewhere)))
    assert bytes(made.hmac) == hmac.digest(KEY.encode(), made.token_id.encode(), hashlib.sha512)
    assert made.issue_timestamp_ms > WALL_MS


def test_tokens_of_another_need_a_permission_and_a_denial_is_noted() -> None:
    world = World(
        *SETTINGS, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )
    bob, alice = connect(world, BOB), connect(world)
    refused = create(bob, owner="alice")
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert create(alice).error_code == 0, "of one's own it needs none"
    assert describe(bob).tokens == []
    authority = world.node.authority
    assert authority is not None
    (denied,) = authority.audit.denials
    assert denied[2:] == ("CREATE_DELEGATION_TOKEN", 13, 7, "User:alice")


LEFT_OUT: dict[str, tuple[SwitchOn, Callable[[World], None]]] = {
    "ask-owners-and-renewers-only": (
        patch(TokenNode, is_of=yes),
        test_only_owners_and_renewers_change_a_token,
    ),
    "take-requests-of-known-clients": (
        patch(handler, may_ask_for_tokens=yes),
        test_a_token_lets_its_owner_in_and_makes_no_other,
    ),
    "refuse-expired-tokens": (
        patch(TokenNode, has_expired=no),
        test_a_token_that_has_expired_is_not_renewed_and_may_be_removed,
    ),
    "stay-who-one-is": (
        patch(Gate, _check_same=nothing),
        test_a_token_that_was_renewed_lets_its_client_stay,
    ),
}


@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_rule_that_is_left_out_is_missed(rule: str) -> None:
    switch_on, check = LEFT_OUT[rule]
    with switch_on(), pytest.raises(AssertionError):
        check(World(*SETTINGS))
