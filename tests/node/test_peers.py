"""Links to other brokers: when they are dialled, and which results the callers get."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from strandline.client.channel import RequestFailed
from strandline.cluster.controller import register_broker
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes, Create, SessionId
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import BrokerNode, Endpoint
from strandline.cluster.znodes.registrations import REGISTRATIONS
from strandline.config.load import load_broker_config
from strandline.node.effects import Ask, Dial, HangUp
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.peer_link import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    DIAL_TIMEOUT_MS,
    IN_FLIGHT_MAX,
    QUEUED_MAX,
)
from strandline.node.peers import Peers
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_request_header, response_frame
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from strandline.types import BrokerId, Instant
from tests.node.world import joined

OTHER = BrokerId(2)
VERSION = 9


class Rig:
    """Peers without a driver: the effects are looked at, the answers are made by hand."""

    def __init__(self, *settings: str) -> None:
        self.tree = NodeTree()
        skeleton = ("/brokers", "/brokers/ids", "/brokers/seqid", "/strandline", REGISTRATIONS)
        self.tree.multi([Create(path) for path in skeleton])
        self.sessions: dict[BrokerId, SessionId] = {}
        self.outbox = Outbox()
        self.timers = Timers()
        self.metadata = Metadata(ClusterImage.from_view(self.tree.view()), self.outbox)
        config = load_broker_config(None, ["node.id=1", *settings]).config
        self.peers = Peers(self.metadata, Settings(config), self.outbox, self.timers)
        self.now_ms = 1000
        self.answers: list[object] = []

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def register(self, *endpoints: Endpoint, broker_id: BrokerId = OTHER) -> None:
        """A broker comes, or comes again."""
        node = BrokerNode(broker_id, endpoints or (Endpoint("PLAINTEXT", "other", 9092),))
        if broker_id in self.sessions:
            self._changed(self.tree.expire_session(self.sessions[broker_id]).changes)
        session = self.sessions[broker_id] = SessionId(self.tree.zxid + 1)
        operations = register_broker(self.metadata.image, node)
        self._changed(self.tree.multi(operations, session).changes)

    def _changed(self, changes: Changes | None) -> None:
        if changes is not None:
            delta = self.metadata.advance(changes)
            image = self.metadata.image
            self.peers.brokers_changed(image, delta.brokers_changed, self.now)

    def ask(self, *, timeout_ms: int = 60_000, channel: str = "control") -> None:
        request = ListOffsetsRequest(replica_id=1)
        self.peers.ask(
            OTHER,
            request,
            VERSION,
            lambda answer, _: self.answers.append(answer),
            self.now,
            timeout_ms=timeout_ms,
            channel=channel,
        )

    def turn(self) -> list[object]:
        self.timers.run_due(self.now)
        return list(self.outbox.take())

    def dialled(self) -> Dial:
        """The one thing that is wanted is a dial."""
        (effect,) = self.turn()
        assert isinstance(effect, Dial)
        return effect

    def asked(self) -> list[int]:
        """Correlation ids of the requests that go out now."""
        ids = []
        for effect in self.turn():
            assert isinstance(effect, Ask)
            frame = b"".join(effect.chunks)
            header, _ = parse_request_header(memoryview(frame)[4:])
            ids.append(header.correlation_id)
        return ids

    def opened(self) -> int:
        """Dial and open."""
        dial = self.dialled()
        self.peers.link_opened(dial.link, self.now)
        return dial.link

    def answer(self, link: int, correlation_id: int, message: object | None = None) -> None:
        frame = _frame(ApiKey.LIST_OFFSETS, correlation_id, message or ListOffsetsResponse())
        self.peers.link_received(link, frame, self.now)

    def failure(self) -> RequestFailed:
        """The one answer is a failure."""
        (answer,) = self.answers
        assert isinstance(answer, RequestFailed)
        self.answers.clear()
        return answer

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


def _frame(api: ApiKey, correlation_id: int, message: object, version: int = VERSION) -> memoryview:
    chunks = response_frame(KNOWN[api], version, correlation_id, message)
    return memoryview(bytearray(joined(chunks)))[4:]


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.register()
    return rig


def test_a_request_dials_and_is_sent_when_the_link_is_open(rig: Rig) -> None:
    rig.ask()
    dial = rig.dialled()
    assert (dial.broker_id, dial.host, dial.port) == (OTHER, "other", 9092)
    rig.peers.link_opened(dial.link, rig.now)
    (correlation_id,) = rig.asked()
    rig.answer(dial.link, correlation_id)
    assert rig.answers == [ListOffsetsResponse()]
    rig.ask()
    assert len(rig.asked()) == 1  # over the same link


def test_channels_have_links_of_their_own(rig: Rig) -> None:
    rig.ask(channel="control")
    rig.ask(channel="fetch-0")
    first, second = rig.turn()
    assert isinstance(first, Dial)
    assert isinstance(second, Dial)
    assert first.link != second.link


def test_answers_come_in_order_and_no_more_than_the_limit_are_in_flight(rig: Rig) -> None:
    for _ in range(IN_FLIGHT_MAX + 2):
        rig.ask()
    link = rig.opened()
    ids = rig.asked()
    assert len(ids) == IN_FLIGHT_MAX
    rig.answer(link, ids[0])
    (next_id,) = rig.asked()
    for correlation_id in (*ids[1:], next_id):
        rig.answer(link, correlation_id)
    rig.answer(link, *rig.asked())
    assert rig.answers == [ListOffsetsResponse()] * (IN_FLIGHT_MAX + 2)


def test_too_many_waiting_requests_are_refused_in_a_later_turn(rig: Rig) -> None:
    for _ in range(QUEUED_MAX + 1):
        rig.ask()
    assert not rig.answers
    rig.turn()
    assert "too many" in rig.failure().reason


def test_a_broker_that_is_not_registered_cannot_be_asked() -> None:
    rig = Rig()
    rig.ask()
    assert not rig.answers  # never inside the call
    assert rig.turn() == []
    assert rig.failure() == RequestFailed("broker 2 is not registered", was_sent=False)


def test_answers_that_do_not_fit_end_the_link(rig: Rig) -> None:
    rig.ask()
    link = rig.opened()
    (correlation_id,) = rig.asked()
    rig.answer(link, correlation_id + 1)
    assert rig.failure() == RequestFailed("Request 2 was answered where 1 was next.", was_sent=True)
    assert rig.turn() == [HangUp(link)]
    rig.answer(link, correlation_id)
    assert not rig.answers  # the link is over


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\1", b"\0\0\0\1\0\0\0\0\0\7"])
def test_answers_that_cannot_be_read_end_the_link(rig: Rig, frame: bytes) -> None:
    rig.ask()
    link = rig.opened()
    assert rig.asked() == [1]
    rig.peers.link_received(link, memoryview(bytearray(frame)), rig.now)
    assert rig.failure().was_sent
    assert rig.turn() == [HangUp(link)]


def test_an_answer_without_a_request_ends_the_link(rig: Rig) -> None:
    rig.ask()
    link = rig.opened()
    rig.answer(link, *rig.asked())
    rig.answer(link, 2)
    assert rig.turn() == [HangUp(link)]


def test_a_request_that_is_not_answered_in_time_ends_the_link(rig: Rig) -> None:
    rig.ask(timeout_ms=500)
    link = rig.opened()
    assert rig.asked() == [1]
    rig.wait(499)
    assert rig.turn() == []
    rig.wait(1)
    assert rig.turn() == [HangUp(link)]
    assert rig.failure() == RequestFailed("it did not answer in time", was_sent=True)


def test_a_dial_that_takes_too_long_is_given_up(rig: Rig) -> None:
    rig.ask()
    link = rig.dialled().link
    rig.wait(DIAL_TIMEOUT_MS)
    assert rig.turn() == [HangUp(link)]
    assert rig.failure() == RequestFailed("it could not be reached in time", was_sent=False)


def test_a_dial_outlives_the_timeout_of_the_request_that_waits_for_it(rig: Rig) -> None:
    """With a pause between dials as long as the patience, no dial would ever have the time."""
    rig.ask(timeout_ms=100_000)
    rig.peers.link_closed(rig.dialled().link, "refused", rig.now)
    for _ in range(10):
        rig.answers.clear()
        rig.ask(timeout_ms=100_000)
        rig.wait(BACKOFF_MS_MAX)
        rig.peers.link_closed(rig.dialled().link, "refused", rig.now)
    rig.answers.clear()
    rig.wait(10)
    rig.ask(timeout_ms=BACKOFF_MS_MAX)
    rig.wait(BACKOFF_MS_MAX - 10)
    link = rig.dialled().link
    rig.wait(10)
    assert rig.turn() == []
    assert rig.failure() == RequestFailed("it could not be asked in time", was_sent=False)
    rig.wait(10)
    rig.ask(timeout_ms=BACKOFF_MS_MAX)
    assert rig.turn() == []
    rig.peers.link_opened(link, rig.now)
    rig.answer(link, *rig.asked())
    assert isinstance(rig.answers[0], ListOffsetsResponse)


def test_what_waits_for_its_turn_too_long_does_not_end_the_link(rig: Rig) -> None:
    for _ in range(IN_FLIGHT_MAX):
        rig.ask()
    link = rig.opened()
    asked = rig.asked()
    rig.ask(timeout_ms=500)
    rig.wait(500)
    assert rig.turn() == []
    assert rig.failure() == RequestFailed("it could not be asked in time", was_sent=False)
    for correlation_id in asked:
        rig.answer(link, correlation_id)
    assert len(rig.answers) == IN_FLIGHT_MAX


def test_an_answer_in_time_stops_the_clock(rig: Rig) -> None:
    rig.ask(timeout_ms=500)
    link = rig.opened()
    rig.answer(link, *rig.asked())
    rig.wait(100_000)
    assert rig.turn() == []
    rig.ask(timeout_ms=500)
    assert rig.asked() == [2]
    assert rig.timers.next_deadline_ms() == rig.now_ms + 500


def test_the_end_of_a_link_fails_what_was_asked_and_tells_whether_it_was_sent(rig: Rig) -> None:
    for _ in range(IN_FLIGHT_MAX + 1):
        rig.ask()
    link = rig.opened()
    assert len(rig.asked()) == IN_FLIGHT_MAX
    rig.peers.link_closed(link, "gone", rig.now)
    expected = [RequestFailed("gone", was_sent=True)] * IN_FLIGHT_MAX
    assert rig.answers == [*expected, RequestFailed("gone", was_sent=False)]
    assert rig.turn() == []  # no caller wants anything any more


def test_dials_that_fail_are_repeated_after_growing_pauses(rig: Rig) -> None:
    pauses = []
    for _ in range(8):
        rig.ask()
        failed_ms = rig.now_ms
        while not (effects := rig.turn()):
            rig.now_ms = rig.timers.next_deadline_ms() or 0
        (dial,) = effects
        assert isinstance(dial, Dial)
        pauses.append(rig.now_ms - failed_ms)
        rig.peers.link_closed(dial.link, "refused", rig.now)
    assert pauses[:4] == [0, BACKOFF_MS_MIN, 2 * BACKOFF_MS_MIN, 4 * BACKOFF_MS_MIN]
    assert pauses[-1] == BACKOFF_MS_MAX


def test_an_answer_ends_the_growing_of_pauses(rig: Rig) -> None:
    for _ in range(5):
        rig.ask()
        rig.wait(BACKOFF_MS_MAX)
        rig.peers.link_closed(rig.dialled().link, "refused", rig.now)
    rig.ask()
    rig.wait(BACKOFF_MS_MAX)
    link = rig.opened()
    rig.answer(link, *rig.asked())
    rig.peers.link_closed(link, "gone", rig.now)
    rig.ask()
    assert rig.turn() == []
    rig.wait(BACKOFF_MS_MIN)
    assert rig.dialled()


def test_a_broker_that_registers_anew_is_dialled_anew(rig: Rig) -> None:
    rig.ask()
    link = rig.opened()
    assert rig.asked() == [1]
    rig.register(Endpoint("PLAINTEXT", "elsewhere", 9093))
    # It was gone in between, and is forgotten with all pauses.
    assert rig.failure().was_sent
    assert rig.turn() == [HangUp(link)]
    rig.ask()
    assert rig.dialled().host == "elsewhere"


def test_a_registration_that_replaces_another_moves_the_link(rig: Rig) -> None:
    rig.ask()
    link = rig.opened()
    assert rig.asked() == [1]
    image = rig.metadata.image
    rig.register()  # the new image, of which the peers are told at once
    rig.turn()
    rig.answers.clear()
    rig.ask()
    former = rig.dialled()
    assert former.link != link
    rig.peers.brokers_changed(image, [OTHER], rig.now)
    assert rig.failure().reason == "it has registered anew"
    rig.ask()
    effects = rig.turn()
    assert effects[0] == HangUp(former.link)
    assert isinstance(effects[1], Dial)  # without a pause


def test_a_change_that_does_not_concern_the_address_changes_nothing(rig: Rig) -> None:
    rig.ask()
    rig.opened()
    rig.register(broker_id=BrokerId(3))
    rig.peers.brokers_changed(rig.metadata.image, [], rig.now)
    assert not rig.answers


def test_the_listener_for_brokers_can_be_chosen() -> None:
    rig = Rig(
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "listeners=INSIDE://:1,OUTSIDE://:2",
        "inter.broker.listener.name=INSIDE",
    )
    rig.register(Endpoint("OUTSIDE", "outside", 1), Endpoint("INSIDE", "inside", 2))
    rig.ask()
    assert rig.dialled().host == "inside"


def test_without_a_choice_the_first_listener_without_security_is_used() -> None:
    rig = Rig()
    rig.register(Endpoint("SAFE", "safe", 1, "SSL"), Endpoint("PLAIN", "plain", 2))
    rig.ask()
    assert rig.dialled().host == "plain"


def test_hanging_up_calls_no_owner(rig: Rig) -> None:
    rig.ask()
    link = rig.opened()
    rig.asked()
    rig.peers.hang_up(OTHER)
    assert rig.turn() == [HangUp(link)]
    rig.wait(100_000)
    assert rig.turn() == []
    assert not rig.answers


def test_records_in_an_answer_are_views_of_the_frame(rig: Rig) -> None:
    found: list[bytes] = []

    def answered(answer: object, now: Instant) -> None:
        del now
        assert isinstance(answer, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        frame[:] = b"!" * len(frame)
        found.append(bytes(records))

    rig.peers.ask(OTHER, FetchRequest(), 17, answered, rig.now, timeout_ms=1000)
    link = rig.opened()
    (correlation_id,) = rig.asked()
    partition = PartitionData(records=b"records")
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    frame = _frame(ApiKey.FETCH, correlation_id, answer, 17)
    rig.peers.link_received(link, frame, rig.now)
    assert found == [b"!" * 7]


def test_a_bug_in_one_caller_does_not_reach_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(answer: object, now: Instant) -> None:
        raise KeyError("a bug of ours")

    rig.peers.ask(OTHER, ListOffsetsRequest(), VERSION, bug, rig.now, timeout_ms=1000)
    rig.ask()
    link = rig.opened()
    first, second = rig.asked()
    with caplog.at_level(logging.ERROR):
        rig.answer(link, first)
    assert "could not be handled" in caplog.text
    rig.answer(link, second)
    assert rig.answers == [ListOffsetsResponse()]


def test_a_caller_may_ask_again_at_once_in_the_callback_of_a_failure(rig: Rig) -> None:
    def again(answer: object, now: Instant) -> None:
        del now
        assert isinstance(answer, RequestFailed)
        rig.ask()

    _ask(rig, again)
    rig.peers.link_closed(rig.dialled().link, "refused", rig.now)
    assert rig.turn() == []
    rig.wait(BACKOFF_MS_MIN)
    assert rig.dialled()


def _ask(rig: Rig, answered: Callable[[object, Instant], None]) -> None:
    rig.peers.ask(OTHER, ListOffsetsRequest(), VERSION, answered, rig.now, timeout_ms=60_000)
