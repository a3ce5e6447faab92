"""The requests of one connection without a socket: order, limits, deadlines, one outcome each."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.channel import Channel, Request, RequestFailed, Unsendable
from strandline.errors import ErrorCode, MalformedFrame
from strandline.protocol.apis import ApiKey, api_of
from strandline.protocol.framing import peek, response_frame
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

VERSION = 3


def listing(deadline: int = 100) -> Request:
    return Request(api_of(ApiKey.LIST_GROUPS), VERSION, ListGroupsRequest(), deadline)


def answer(
    correlation_id: int,
    message: object | None = None,
    key: ApiKey = ApiKey.LIST_GROUPS,
    version: int = VERSION,
) -> memoryview:
    chunks: list[Any] = response_frame(
        api_of(key), version, correlation_id, message or ListGroupsResponse()
    )
    return memoryview(b"".join(chunks))[4:]


def sent(channel: Channel[Request]) -> list[int]:
    """Correlation ids of the requests that may be written now."""
    ids = []
    while (chunks := channel.next_frame()) is not None:
        ids.append(peek(b"".join(chunks)[4:])[2])
    return ids


def test_requests_go_out_in_order_up_to_the_limit_and_answers_make_room() -> None:
    channel: Channel[Request] = Channel("me", 2)
    requests = [listing() for _ in range(3)]
    for request in requests:
        channel.ask(request)
    assert sent(channel) == [1, 2]
    assert (channel.in_flight, channel.queued) == (2, 1)
    found, message = channel.received(answer(1))
    assert found is requests[0]
    assert isinstance(message, ListGroupsResponse)
    assert sent(channel) == [3]
    assert [channel.received(answer(n))[0] for n in (2, 3)] == requests[1:]
    assert (channel.in_flight, channel.queued) == (0, 0)


def test_a_request_without_an_answer_is_done_with_once_it_is_sent() -> None:
    channel: Channel[Request] = Channel("me", 1)
    request = listing()
    request.is_answered = False
    channel.ask(request)
    channel.ask(listing())
    assert sent(channel) == [1, 2]
    channel.received(answer(2))


def test_a_message_that_its_version_cannot_say_is_not_sent_and_waits_no_more() -> None:
    channel: Channel[Request] = Channel("me", 2)
    message = ListGroupsRequest(states_filter=["Stable"])  # since version 4
    unsendable = Request(api_of(ApiKey.LIST_GROUPS), VERSION, message, 100)
    channel.ask(unsendable)
    with pytest.raises(Unsendable) as raised:
        channel.next_frame()
    assert (raised.value.request, raised.value.code) == (unsendable, ErrorCode.UNSUPPORTED_VERSION)
    assert (channel.in_flight, channel.queued) == (0, 0)
    request = listing()
    channel.ask(request)
    (correlation_id,) = sent(channel)
    assert channel.received(answer(correlation_id))[0] is request


@pytest.mark.parametrize("frame", [answer(2), b"", b"\0\0\0\1", answer(1)[:-1]])
def test_what_is_not_the_oldest_request_s_answer_leaves_every_request_waiting(frame: Any) -> None:
    channel: Channel[Request] = Channel("me", 5)
    channel.ask(listing())
    channel.ask(listing())
    sent(channel)
    with pytest.raises(MalformedFrame):
        channel.received(memoryview(frame))
    assert channel.in_flight == 2


def test_an_answer_to_no_request_is_none() -> None:
    channel: Channel[Request] = Channel("me", 5)
    channel.ask(listing())  # not sent
    with pytest.raises(MalformedFrame, match="to no request"):
        channel.received(answer(1))


def test_the_end_says_of_each_request_whether_it_was_sent() -> None:
    channel: Channel[Request] = Channel("me", 1)
    requests = [listing(), listing()]
    for request in requests:
        channel.ask(request)
    sent(channel)
    assert channel.end("gone") == [
        (requests[0], RequestFailed("gone", was_sent=True)),
        (requests[1], RequestFailed("gone", was_sent=False)),
    ]
    assert channel.end("gone") == []
    channel.ask(listing())
    assert sent(channel) == [2]  # opened again, it goes on counting


def test_deadlines_of_what_is_sent_and_of_what_waits() -> None:
    channel: Channel[Request] = Channel("me", 1)
    assert channel.first_due() is None
    first, second, third = listing(50), listing(30), listing(40)
    for request in (first, second, third):
        channel.ask(request)
    sent(channel)
    assert channel.first_due() is second
    assert channel.withdraw_overdue(29) == []
    assert channel.withdraw_overdue(30) == [second]
    assert channel.first_due() is third
    assert channel.overdue(49) is None
    assert channel.overdue(50) is first
    assert [request for request, _ in channel.end("late")] == [first, third]


def test_a_broker_that_does_not_know_the_version_of_the_question_answers_in_the_oldest() -> None:
    channel: Channel[Request] = Channel("me", 1)
    channel.ask(Request(api_of(ApiKey.API_VERSIONS), 4, ApiVersionsRequest(), 100))
    sent(channel)
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    _, message = channel.received(answer(1, refused, ApiKey.API_VERSIONS, 0))
    assert message == refused
