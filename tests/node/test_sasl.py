"""The gate in front of requests: mechanisms, what is refused, sessions that end, and time."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from strandline.client.security import scram
from strandline.errors import ErrorCode, InvalidSetting
from strandline.node.authentication.first_users import first_users, parse_first_user
from strandline.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from strandline.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.current import current
from tests.node.messages import batch, fetch, produce
from tests.node.world import Client, World

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = (
    "listeners=PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"listener.name.sasl.plain.sasl.jaas.config={PLAIN} "
    'user_alice="alice-secret" user_b="b-secret";',
    "listener.name.sasl.plain.connections.max.reauth.ms=60000",
    "connection.failed.authentication.delay.ms=100",
)
DELAY_MS, TIMEOUT_MS = 100, 10_000
SCRAM = "SCRAM-SHA-512"


@pytest.fixture
def world() -> Iterator[World]:
    made = World(*SETTINGS)
    yield made
    made.check()


def connect(world: World) -> Client:
    client = Client(world)
    client.connection = world.node.open_connection("test-host", "SASL", now=world.now)
    world.clients[client.connection.id] = client
    return client


def _ignore(chunks: object) -> None:
    """Answers are thrown away."""


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


def handshake(client: Client, mechanism: str = "PLAIN") -> None:
    answer = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert answer.error_code == 0
    assert set(answer.mechanisms) == {"PLAIN", "SCRAM-SHA-256", SCRAM}


def authenticate(client: Client, data: bytes) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = client.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
    return answer


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def log_in(client: Client) -> SaslAuthenticateResponse:
    handshake(client)
    answer = authenticate(client, plain("alice", "alice-secret"))
    assert answer.error_code == 0, answer.error_message
    return answer


def add_user(world: World, text: str) -> None:
    operations = first_users(world.node.metadata.image, [parse_first_user(text, Random(1))])
    if operations:
        changes = world.tree.multi(operations).changes
        assert changes is not None
        world.node.metadata_changed(changes, world.now)


def refused(world: World, client: Client, data: bytes) -> SaslAuthenticateResponse:
    """The answer to a message that is refused: late, and the connection ends with it."""
    client.send(SaslAuthenticateRequest(auth_bytes=data), 2)
    world.turn()
    before = len(client.answers)
    world.advance(DELAY_MS - 1)
    assert len(client.answers) == before
    assert not client.connection.wants_input, "guesses are not read faster than that"
    world.advance(1)
    assert client.closed is not None
    answer: SaslAuthenticateResponse = client.answers[-1]
    return answer


# -- PLAIN ---------------------------------------------------------------------------------------


def test_a_client_that_authenticates_is_served_under_its_name(world: World) -> None:
    client = connect(world)
    assert client.connection.in_flight_max == 1
    assert client.ask(versions(), 3).error_code == 0
    log_in(client)
    assert client.ask(MetadataRequest(topics=None), 12).cluster_id
    assert str(client.connection.principal) == "User:alice"
    assert client.connection.in_flight_max > 1
    assert client.connection.fast_path is None, "nothing is in the way of its requests"


@pytest.mark.parametrize(
    "data",
    [
        plain("alice", "wrong"),
        plain("nobody", "alice-secret"),
        plain("alice", "b-secret"),
        plain("alice", ""),
        b"root\0alice\0alice-secret",
        b"\0alice",
        b"",
        b"\0\xff\0alice-secret",
        b"\0alice\0alice-secret\0more",
        b"\0" + b"a" * 5000 + b"\0x",
    ],
)
def test_what_is_no_name_with_its_password_is_refused_late(
    world: World, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    caplog.set_level(logging.INFO)
    client = connect(world)
    handshake(client)
    answer = refused(world, client, data)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Failed authentication of test-host on the listener SASL with PLAIN" in caplog.text
    assert "secret" not in caplog.text
    (failed,) = [each for each in world.node.authentication.attempts if each.failed]
    assert failed[:2] == ("SASL", "PLAIN")


# -- What comes before ---------------------------------------------------------------------------


def test_nothing_else_is_served_before_authentication(world: World) -> None:
    for message, version in (
        (MetadataRequest(topics=None), 12),
        (AlterUserScramCredentialsRequest(), 0),
        (SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret")), 2),
    ):
        client = connect(world)
        client.send(message, version)
        world.turn()
        assert client.closed is not None
        assert "before authentication" in client.closed
        assert not client.answers


def test_a_body_that_is_none_is_not_even_parsed(world: World) -> None:
    """A produce request of which only the header can be read."""
    client = connect(world)
    client.send_frame(b"\x00\x00\x00\x09\x00\x00\x00\x01" + b"\xff" * 100)
    world.turn()
    assert client.closed is not None
    assert client.closed == "Produce came before authentication."


def test_frames_that_are_broken_end_their_own_connection_at_most(world: World) -> None:
    """Before authentication and after; another client is served all the while, and no bug of the
    node shows (`World.check`)."""
    random, honest = Random(19), connect(world)
    log_in(honest)
    messages = [
        (versions(), 3),
        (SaslHandshakeRequest(mechanism=SCRAM), 1),
        (SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2),
        (MetadataRequest(topics=None), 12),
        (DescribeUserScramCredentialsRequest(users=[UserName(name="alice")]), 0),
        (fetch(("orders", 0, 0)), 11),
        (produce(batch(b"x" * 50)), 9),
    ]
    closed = 0
    for number in range(1_500):
        client = connect(world)
        if number % 2:
            log_in(client)
        client.take = _ignore  # type: ignore[method-assign]  # it reads no answers
        frame, _, _ = client.frame(*random.choice(messages))
        for _ in range(random.randint(1, 4)):
            frame[random.randrange(4, len(frame))] = random.randrange(256)
        if random.random() < 0.3:
            del frame[random.randrange(8, len(frame)) :]
        client.send_frame(frame)
        world.turn()
        closed += client.closed is not None
        if client.closed is None:
            client.close()
        del world.clients[client.connection.id]
    assert closed > 300
    assert honest.ask(MetadataRequest(topics=None), 12).cluster_id
    left = [each for each in world.node.connections._connections if each.listener == "SASL"]
    assert left == [honest.connection]


def test_a_change_of_acls_opens_no_gate() -> None:
    """It makes connections forget what their fast paths were allowed; a gate is in that place."""
    world = World(
        *SETTINGS, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    )
    authority = world.node.authority
    assert authority is not None
    ended = connect(world)
    log_in(ended)
    world.advance(60_000)
    new = connect(world)
    for client in (new, ended):
        assert client.connection.gate is not None
        client.connection.forget_fast_path()
        assert client.connection.fast_path is client.connection.gate
        client.connection.fast_path = None  # as a mistake of ours would leave it
        client.send(MetadataRequest(topics=None), 12)
        world.turn()
        assert client.closed is not None
    assert new.closed == "Metadata came before authentication."
    assert not new.answers


def test_in_the_middle_only_the_next_step_is_served(world: World) -> None:
    for message, version in (
        (versions(), 3),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (MetadataRequest(topics=None), 12),
    ):
        client = connect(world)
        handshake(client)
        client.send(message, version)
        world.turn()
        assert client.closed is not None
        assert "in the middle of an authentication" in client.closed


def test_a_mechanism_that_is_not_served_is_refused_with_those_that_are(world: World) -> None:
    client = connect(world)
    client.send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    world.turn()
    world.advance(DELAY_MS)
    assert client.answers[-1].error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.answers[-1].mechanisms == ["PLAIN", "SCRAM-SHA-256", SCRAM]
    assert client.closed is not None


def test_time_and_requests_before_authentication_are_bounded(world: World) -> None:
    late = connect(world)
    handshake(late)
    world.advance(TIMEOUT_MS - 1)
    assert current(late.closed) is None
    world.advance(1)
    assert late.closed == "it did not authenticate in time"
    chatty = connect(world)
    assert chatty.connection.frame_bytes_max == 524_288
    for _ in range(16):
        chatty.ask(versions(), 3)
    chatty.send(versions(), 3)
    world.turn()
    assert chatty.closed is not None
    assert "too many requests" in chatty.closed


def test_a_client_that_is_through_is_not_closed_by_its_time(world: World) -> None:
    client = connect(world)
    log_in(client)
    world.advance(TIMEOUT_MS)
    assert client.closed is None
    gone = connect(world)
    world.node.close_connection(gone.connection)
    del world.clients[gone.connection.id]
    world.advance(TIMEOUT_MS)


def test_without_sasl_a_handshake_is_out_of_place(world: World) -> None:
    client = world.connect()
    answer = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    again = client.ask(SaslAuthenticateRequest(auth_bytes=b""), 2)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


# -- Sessions that end (KIP-368) -----------------------------------------------------------------


def test_a_session_ends_unless_the_client_authenticates_again(world: World) -> None:
    client = connect(world)
    assert log_in(client).session_lifetime_ms == 60_000
    world.advance(50_000)
    log_in(client)
    world.advance(59_999)
    assert client.ask(MetadataRequest(topics=None), 12).cluster_id, "it began anew"
    world.advance(1)
    client.send(MetadataRequest(topics=None), 12)
    world.turn()
    assert client.closed == "Metadata came after the end of its session."


def test_after_the_end_of_its_session_a_client_may_still_authenticate(world: World) -> None:
    client = connect(world)
    log_in(client)
    world.advance(60_000)
    log_in(client)
    assert client.ask(MetadataRequest(topics=None), 12).cluster_id


def test_a_client_cannot_become_another(world: World) -> None:
    client = connect(world)
    log_in(client)
    handshake(client)
    answer = refused(world, client, plain("b", "b-secret"))
    assert answer.error_message == "Cannot change principals during re-authentication"


def test_a_client_authenticates_again_by_the_same_mechanism(world: World) -> None:
    client = connect(world)
    log_in(client)
    client.send(SaslHandshakeRequest(mechanism=SCRAM), 1)
    world.turn()
    world.advance(DELAY_MS)
    assert client.answers[-1].error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.closed is not None


def test_a_session_without_end_is_not_renewed(world: World) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    client = connect(world)
    assert scram_login(client, "bob", "bob-secret").session_lifetime_ms == 0
    answer = client.ask(SaslHandshakeRequest(mechanism=SCRAM), 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


# -- SCRAM ---------------------------------------------------------------------------------------


def scram_first(client: Client, user: str, mechanism: str = SCRAM) -> scram.ServerFirst:
    handshake(client, mechanism)
    answer = authenticate(client, scram.client_first(scram.client_first_bare(user, "nonce")))
    assert answer.error_code == 0
    return scram.parse_server_first(bytes(answer.auth_bytes), "nonce")


def proof(user: str, password: str, server: scram.ServerFirst, mechanism: str = SCRAM) -> bytes:
    salted = scram.salted_password(mechanism, password, server.salt, server.iterations)
    return scram.client_final(mechanism, salted, scram.client_first_bare(user, "nonce"), server)


def scram_login(
    client: Client, user: str, password: str, mechanism: str = SCRAM
) -> SaslAuthenticateResponse:
    server = scram_first(client, user, mechanism)
    answer = authenticate(client, proof(user, password, server, mechanism))
    assert answer.error_code == 0, answer.error_message
    salted = scram.salted_password(mechanism, password, server.salt, server.iterations)
    bare = scram.client_first_bare(user, "nonce")
    scram.verify_server_final(mechanism, salted, bare, server, bytes(answer.auth_bytes))
    return answer


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", SCRAM])
@pytest.mark.parametrize("name", ["bob", "a,b=c", "žofie/ü"])
def test_both_sides_of_scram_prove_that_they_know_the_password(
    world: World, mechanism: str, name: str
) -> None:
    salted = scram.salted_password(mechanism, "secret", b"salt", 4096)
    number = {"SCRAM-SHA-256": 1, SCRAM: 2}[mechanism]
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=number, iterations=4096, salt=b"salt", salted_password=salted
    )
    admin = world.connect()
    altered = admin.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    assert [(each.user, each.error_code) for each in altered.results] == [(name, 0)]
    scram_login(connect(world), name, "secret", mechanism)


def test_a_user_that_there_is_not_cannot_be_told_from_a_wrong_password(world: World) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    said = []
    for user in ("bob", "nobody", "nobody"):
        client = connect(world)
        server = scram_first(client, user)
        said.append((server.salt, server.iterations))
        answer = refused(world, client, proof(user, "wrong", server))
        assert answer.error_message is not None
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in answer.error_message
        assert len(server.salt) == 20
    assert said[1] == said[2], "the same salt each time, as of a user that there is"
    assert said[0][1] == said[1][1]


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=bob",
        b"n,,n=bob,r=",
        b"n,,n=bo",
        b"y,,n=bob,r=nonce",
        b"p=tls-unique,,n=bob,r=nonce",
        b"n,,n=bob,r=non,ce=",
        b"n,a=root,n=bob,r=nonce",
        b"\xff\xfe",
        b"n,,n=bob,r=" + b"r" * 10_000,
    ],
)
def test_a_first_message_that_is_none_is_refused(world: World, first: bytes) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    client = connect(world)
    handshake(client, SCRAM)
    if first == b"n,,n=bob,r=non,ce=":
        assert authenticate(client, first).error_code == 0, "an extension is left alone"
        return
    assert refused(world, client, first).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("cut", ["", "half", "nonce", "binding", "proof", "long"])
def test_a_final_message_that_is_none_is_refused(world: World, cut: str) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    client = connect(world)
    server = scram_first(client, "bob")
    right = proof("bob", "bob-secret", server)
    wrong = {
        "": b"",
        "half": right[: len(right) // 2],
        "nonce": right.replace(server.nonce.encode(), b"nonce"),
        "binding": right.replace(b"c=biws", b"c=" + base64.b64encode(b"y,,")),
        "proof": right[:-8] + b"AAAAAA==",
        "long": right.replace(b",p=", b",p=" + b"AAAA"),
    }[cut]
    assert wrong != right
    assert refused(world, client, wrong).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_old_librdkafka_is_let_in(world: World) -> None:
    """Before 2.6.1 it writes its own part of the nonce twice, and proves that."""
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    client = connect(world)
    server = scram_first(client, "bob")
    salted = scram.salted_password(SCRAM, "bob-secret", server.salt, server.iterations)
    bare = scram.client_first_bare("bob", "nonce")
    twice = scram.client_final(SCRAM, salted, bare, replace(server, nonce="nonce" + server.nonce))
    assert twice.count(b"nonce") == 2
    assert authenticate(client, twice).error_code == 0


def test_a_proof_of_another_exchange_is_worth_nothing(world: World) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    first, second = connect(world), connect(world)
    heard = proof("bob", "bob-secret", scram_first(first, "bob"))
    scram_first(second, "bob")
    assert refused(world, second, heard).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# -- Users ---------------------------------------------------------------------------------------


def test_credentials_are_described_changed_and_taken_away_in_kafkas_words(world: World) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret,iterations=8192]")
    admin = world.connect()
    everyone = admin.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [
        (each.user, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in everyone.results
    ] == [("bob", [(2, 8192)])]
    asked = [UserName(name=name) for name in ("nobody", "bob", "bob")]
    described = admin.ask(DescribeUserScramCredentialsRequest(users=asked), 0)
    assert [(each.user, each.error_code) for each in described.results] == [
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
    ]

    def upsert(name: str, mechanism: int, iterations: int) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
        )

    altered = admin.ask(
        AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name="bob", mechanism=1),
                ScramCredentialDeletion(name="twice", mechanism=1),
            ],
            upsertions=[
                upsert("twice", 1, 4096),
                upsert("", 1, 4096),
                upsert("few", 1, 4095),
                upsert("many", 2, 16385),
                upsert("strange", 3, 4096),
                upsert("new", 1, 4096),
                upsert("..", 1, 4096),
            ],
        ),
        0,
    )
    assert {each.user: each.error_code for each in altered.results} == {
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "new": 0,
        "..": 0,
    }
    deletion = ScramCredentialDeletion(name="bob", mechanism=2)
    assert admin.ask(AlterUserScramCredentialsRequest(deletions=[deletion]), 0).results
    left = admin.ask(DescribeUserScramCredentialsRequest(users=[]), 0)
    assert [each.user for each in left.results] == ["..", "new"]


def test_a_first_user_that_is_there_stays_as_it_is(world: World) -> None:
    add_user(world, f"{SCRAM}=[name=bob,password=bob-secret]")
    add_user(world, f"{SCRAM}=[name=bob,password=other]")
    add_user(world, "SCRAM-SHA-256=[name=bob,password=third]")
    scram_login(connect(world), "bob", "bob-secret")
    scram_login(connect(world), "bob", "third", "SCRAM-SHA-256")


@pytest.mark.parametrize(
    "text",
    [
        "PLAIN=[name=bob,password=hidden]",
        "SCRAM-SHA-512=[name=bob]",
        "SCRAM-SHA-512=[password=hidden]",
        "SCRAM-SHA-512=name=bob,password=hidden",
        "SCRAM-SHA-512=[name=bob,password=hidden,iterations=1]",
        "SCRAM-SHA-512=[name=bob,password=hidden,salt=x]",
    ],
)
def test_a_first_user_that_cannot_be_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidSetting, match="--add-scram") as refused_user:
        parse_first_user(text, Random(1))
    assert "hidden" not in str(refused_user.value)


# -- Settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ((), "sasl.enabled.mechanisms is not set for the listener SASL"),
        (("sasl.enabled.mechanisms=GSSAPI",), "has GSSAPI"),
        (("sasl.enabled.mechanisms=OAUTHBEARER",), "OAUTHBEARER"),
        (
            ("sasl.enabled.mechanisms=PLAIN", "listener.name.sasl.plain.sasl.jaas.config=nothing"),
            "listener.name.sasl.plain.sasl.jaas.config is LOGIN-MODULE required",
        ),
        (
            (
                "sasl.enabled.mechanisms=PLAIN",
                f"listener.name.sasl.sasl.jaas.config={PLAIN} user_alice=a;",
            ),
            "PLAIN, and listener.name.sasl.plain.sasl.jaas.config is not set",
        ),
        (
            (
                "sasl.enabled.mechanisms=PLAIN",
                f"listener.name.sasl.plain.sasl.jaas.config={PLAIN} username=a password=b;",
            ),
            "listener.name.sasl.plain.sasl.jaas.config names no user",
        ),
        (
            (
                "sasl.enabled.mechanisms=SCRAM-SHA-256",
                "listener.name.sasl.sasl.server.callback.handler.class=com.example.Users",
            ),
            "is com.example.Users, a Java class",
        ),
    ],
)
def test_sasl_that_cannot_be_is_refused_by_name(settings: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidSetting) as refused_settings:
        World(*SETTINGS[:2], *settings)
    assert told in str(refused_settings.value)
