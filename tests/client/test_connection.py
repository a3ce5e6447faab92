"""One connection against scripted bytes: order, damage, silence, and old brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from strandline.client.clock import SystemClock
from strandline.client.connection import Connection
from strandline.client.settings import Address, ClientSettings
from strandline.client.stream import PlainStream
from strandline.errors import ErrorCode, MalformedFrame, ProtocolError
from strandline.protocol.apis import ApiKey, api_of
from strandline.protocol.framing import response_frame
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from strandline.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

SETTINGS = ClientSettings(request_timeout_ms=60_000, response_bytes_max=10_000)
SERVED = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=4),
        ApiVersion(api_key=ApiKey.LIST_GROUPS, max_version=3),
        ApiVersion(api_key=ApiKey.METADATA, min_version=90, max_version=99),
    ]
)


class Scripted:
    """The far end of a connection: what it writes is written before it is read."""

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        self.connection = Connection(PlainStream(near), Address("test", 1), SETTINGS, SystemClock())

    def answer(self, key: ApiKey, version: int, correlation_id: int, message: object) -> None:
        chunks = response_frame(api_of(key), version, correlation_id, message)
        self.far.sendall(b"".join(chunks))  # type: ignore[arg-type]  # no ranges of files here

    def negotiate(self) -> None:
        self.answer(ApiKey.API_VERSIONS, 4, 1, SERVED)
        self.connection._negotiate()

    def groups(self, correlation_id: int) -> None:
        self.answer(ApiKey.LIST_GROUPS, 3, correlation_id, ListGroupsResponse())


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.connection.close()
    made.far.close()


def test_the_newest_common_version_is_spoken(scripted: Scripted) -> None:
    scripted.negotiate()
    assert scripted.connection.version_for(ApiKey.LIST_GROUPS) == 3
    assert scripted.connection.version_for(ApiKey.LIST_GROUPS, 2) == 2
    assert not scripted.connection.serves(ApiKey.METADATA)
    with pytest.raises(ProtocolError, match="serves Metadata in versions 90-99") as refused:
        scripted.connection.version_for(ApiKey.METADATA)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ProtocolError, match="serves Fetch not at all"):
        scripted.connection.version_for(ApiKey.FETCH)


def test_what_the_agreed_version_cannot_say_is_refused_and_costs_no_other_request(
    scripted: Scripted,
) -> None:
    scripted.negotiate()
    asked = ListGroupsRequest(states_filter=["Stable"])  # since version 4
    with pytest.raises(ProtocolError, match="states_filter") as refused:
        scripted.connection.call(ApiKey.LIST_GROUPS, ListGroupsResponse, asked)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    scripted.groups(3)
    scripted.connection.call(ApiKey.LIST_GROUPS, ListGroupsResponse, ListGroupsRequest())


def test_an_old_broker_is_asked_again_in_its_version(scripted: Scripted) -> None:
    refused = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=2)],
    )
    scripted.answer(ApiKey.API_VERSIONS, 0, 1, refused)
    scripted.answer(ApiKey.API_VERSIONS, 2, 2, SERVED)
    scripted.connection._negotiate()
    sent = scripted.far.recv(1000)
    second = sent[4 + int.from_bytes(sent[:4], "big") :]
    assert second[4:8] == bytes((0, ApiKey.API_VERSIONS, 0, 2))


def test_answers_belong_to_requests_in_order(scripted: Scripted) -> None:
    scripted.negotiate()
    sent = [scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest()) for _ in range(3)]
    for correlation_id in (2, 3, 4):
        scripted.groups(correlation_id)
    scripted.connection.result(sent[2], ListGroupsResponse)
    assert [each.is_done for each in sent] == [True, True, True]
    assert scripted.connection.in_flight == 0


def test_an_answer_that_comes_in_pieces_is_whole_at_the_end(scripted: Scripted) -> None:
    scripted.negotiate()
    pending = scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    frame = b"".join(
        response_frame(api_of(ApiKey.LIST_GROUPS), 3, 2, ListGroupsResponse())  # type: ignore[arg-type]
    )
    for byte in frame:
        assert not pending.is_done
        scripted.far.sendall(bytes((byte,)))
        scripted.connection.take_arrived()
    assert pending.is_done


def test_silence_ends_the_connection(scripted: Scripted) -> None:
    scripted.negotiate()
    waiting = scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    with pytest.raises(ProtocolError, match="did not answer ListGroups within 20 ms") as failed:
        scripted.connection.call(
            ApiKey.LIST_GROUPS, ListGroupsResponse, ListGroupsRequest(), timeout_ms=20
        )
    assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert not failed.value.definite
    assert scripted.connection.closed
    assert waiting.error is not None
    with pytest.raises(ProtocolError, match="is closed"):
        scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest())


def test_a_broker_that_hangs_up_fails_what_waits(scripted: Scripted) -> None:
    scripted.negotiate()
    pending = scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    scripted.far.close()
    with pytest.raises(ProtocolError, match=r"closed the connection|reset") as failed:
        scripted.connection.result(pending, ListGroupsResponse)
    assert failed.value.code is ErrorCode.NETWORK_EXCEPTION


def test_a_broker_that_hangs_up_before_its_first_answer_may_want_tls(scripted: Scripted) -> None:
    scripted.far.shutdown(socket.SHUT_WR)
    with pytest.raises(ProtocolError, match="Does the port speak TLS") as refused:
        scripted.connection._negotiate()
    assert refused.value.code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize(
    "damage",
    [
        b"\x7f\xff\xff\xff",  # a frame of 2 GiB
        b"\xff\xff\xff\xff",  # a negative size
        b"\x00\x00\x00\x01\x00",  # too small for a header
        b"\x00\x00\x00\x04\x00\x00\x00\x09",  # the answer to another request
        b"\x00\x00\x00\x05\x00\x00\x00\x02\x00",  # a header without a body
    ],
)
def test_damage_ends_the_connection(scripted: Scripted, damage: bytes) -> None:
    scripted.negotiate()
    pending = scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    scripted.far.sendall(damage)
    with pytest.raises(MalformedFrame):
        scripted.connection.result(pending, ListGroupsResponse)
    assert scripted.connection.closed


def test_no_process_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = Address(*taken.getsockname())
        with pytest.raises(ProtocolError, match=f"Cannot connect to {address}"):
            Connection.open(address, SETTINGS)


def test_the_end_of_a_connection_is_noticed_before_it_is_used_again(scripted: Scripted) -> None:
    scripted.negotiate()
    scripted.connection.notice_end()
    assert not scripted.connection.closed
    scripted.far.close()
    scripted.connection.notice_end()
    assert scripted.connection.closed


def test_a_request_that_is_interrupted_while_it_is_written_ends_the_connection(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it may have gone out: what comes behind it would be taken for its rest."""
    scripted.negotiate()

    def interrupted(data: bytes, timeout_s: float) -> None:
        del data, timeout_s
        raise KeyboardInterrupt

    monkeypatch.setattr(scripted.connection._stream, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scripted.connection.send(ApiKey.LIST_GROUPS, ListGroupsRequest())
    assert scripted.connection.closed
    assert scripted.connection.in_flight == 0


def test_a_call_whose_time_is_short_is_waited_for_by_the_next_one(scripted: Scripted) -> None:
    """What was asked stays asked, and an answer that is wanted no more is dropped."""
    scripted.negotiate()
    connection = scripted.connection
    connection.left_ms = lambda: 0
    for asked in (ListGroupsRequest(), ListGroupsRequest(), ListGroupsRequest(states_filter=[])):
        with pytest.raises(ProtocolError, match="has not answered ListGroups yet") as late:
            connection.call(ApiKey.LIST_GROUPS, ListGroupsResponse, asked, highest=3)
        assert (late.value.code, late.value.retriable) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert connection.in_flight == 1, "it is asked once"
    scripted.groups(2)
    call = (ApiKey.LIST_GROUPS, ListGroupsResponse, ListGroupsRequest())
    assert connection.call(*call, highest=3) == ListGroupsResponse()
    connection.left_ms = lambda: None
    scripted.groups(3)
    assert connection.call(*call, highest=3) == ListGroupsResponse()
    assert not connection.closed
