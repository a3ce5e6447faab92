"""A stage for single clients: virtual time, and brokers that say what the test tells them to.

`Stage` is a world without brokers: connections are to puppets. A test takes the requests that have
come (`next_request`), decoded, and answers them, refuses connections, or ends them. Nothing takes
longer than a millisecond, unless a test says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_request_header, response_frame, split_frames
from strandline.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.protocol.schema import decode_request
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.connection import Peer
from strandline.sim.clients.make import make_client
from strandline.sim.history.lookups import Leadership
from strandline.sim.history.operations import Event
from strandline.sim.plan import ClientSpec, Options
from strandline.sim.schedule import Schedule
from strandline.sim.streams import Streams
from strandline.types import BrokerId, TopicId, TopicPartition

DELAY_US = 500
TOPIC_ID = UUID(int=7)


@dataclass(eq=False)
class StageWire:
    """Both ends of a connection."""

    stage: Stage
    broker_id: BrokerId
    peer: Peer
    is_damaged: bool = False
    is_over: bool = False
    data: bytearray = field(default_factory=bytearray)
    asked: deque[int] = field(default_factory=deque)
    """Correlation ids of the requests that are not answered yet."""
    ready: dict[int, bytes] = field(default_factory=dict)
    """Answers that wait for those before them: a broker answers in order."""

    def send(self, data: bytes) -> None:
        """The client sends."""
        assert not self.is_over
        self.stage.schedule.after(DELAY_US, lambda: self._arrived(data))

    def _arrived(self, data: bytes) -> None:
        self.data += data
        frames, end = split_frames(memoryview(bytes(self.data)))
        del self.data[:end]
        for frame in frames:
            asked = Asked(self, bytes(frame))
            # There is no answer to a produce with acks=0.
            if asked.key is not ApiKey.PRODUCE or asked.body.acks != 0:
                self.asked.append(asked.correlation_id)
            self.stage.requests.append(asked)
        self.stage.serve()

    def close(self) -> None:
        """The client ends it."""
        self.is_over = True

    def answer(self, correlation_id: int, frame: bytes) -> None:
        """The puppet answers a request, as soon as those before it are answered."""
        self.ready[correlation_id] = frame
        while self.asked and self.asked[0] in self.ready:
            self.reply(self.ready.pop(self.asked.popleft()))

    def reply(self, frame: bytes) -> None:
        """The puppet sends a frame, size left out."""
        self.stage.schedule.after(DELAY_US, lambda: self._tell(frame))

    def _tell(self, frame: bytes) -> None:
        if not self.is_over:
            self.peer.received(frame)

    def reset(self) -> None:
        """The puppet ends it."""
        if not self.is_over:
            self.is_over = True
            self.stage.schedule.after(DELAY_US, lambda: self.peer.closed("reset"))


class Asked:
    """A request that a puppet has got."""

    def __init__(self, wire: StageWire, frame: bytes) -> None:
        view = memoryview(frame)
        header, position = parse_request_header(view)
        self.wire = wire
        self.frame = frame
        self.broker_id = wire.broker_id
        self.key = ApiKey(header.api_key)
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.body: Any = decode_request(header.api_key, header.api_version, view, position)

    def answer(self, message: object) -> None:
        """Answer it."""
        api = KNOWN[self.key]
        chunks = response_frame(api, self.version, self.correlation_id, message)
        frame = b"".join(chunks)  # type: ignore[arg-type]  # no ranges of files
        self.wire.answer(self.correlation_id, frame[4:])


class Stage:
    """See the module."""

    def __init__(self, brokers: int = 3, *, profile: str = "strict", seed: int = 1) -> None:
        self.schedule = Schedule()
        self.streams = Streams(seed)
        self.options = Options(seed=seed, brokers=brokers, profile=profile)
        self.history: list[Event] = []
        self.notes: list[str] = []
        self.requests: deque[Asked] = deque()
        self.wires: list[StageWire] = []
        self.down: set[int] = set()
        """Brokers that refuse connections."""
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}
        """(broker, epoch) by (topic, partition); metadata requests are answered with them."""
        self.topic_ids: dict[str, UUID] = {}
        self.epochs_behind = 0
        """How many leaders there were since those that are told, and lead as far as they know."""
        self.controller = 1
        self.compacted: set[str] = set()
        self.clocks_set_ms = 0
        self.ends_at = 0
        """What high watermarks are."""
        self.starts_at = 0
        """Where all logs begin."""

    @property
    def network(self) -> Stage:
        return self

    def wall_ms(self, broker_id: BrokerId) -> int:
        """See `ClientWorld`."""
        del broker_id
        return self.schedule.now_ms

    def leader_epoch(self, at: TopicPartition, topic_id: TopicId | None = None) -> int:
        """See `ClientWorld`."""
        del topic_id  # topics are not made anew here
        return self.leaders[at.topic, at.partition][1] + self.epochs_behind

    def high_watermark(self, broker_id: BrokerId, at: TopicPartition) -> int:
        """See `ClientWorld`."""
        del broker_id, at
        return self.ends_at

    def is_compacted(self, at: TopicPartition) -> bool:
        """See `ClientWorld`."""
        return at.topic in self.compacted

    def log_start(self, at: TopicPartition) -> int:
        """See `ClientWorld`."""
        del at
        return self.starts_at

    def leadership(self, broker_id: BrokerId, at: TopicPartition) -> Leadership | None:
        """See `ClientWorld`."""
        broker, epoch = self.leaders[at.topic, at.partition]
        return (
            Leadership(broker_id, 1, epoch, self.topic_ids[at.topic])
            if broker == broker_id
            else None
        )

    def coordinates(self, broker_id: BrokerId, group: str) -> Leadership | None:
        """See `ClientWorld`."""
        del group
        at = TopicPartition(CONSUMER_OFFSETS, 0)
        return self.leadership(broker_id, at) if (at.topic, 0) in self.leaders else None

    def note(self, text: str) -> None:
        """See `ClientWorld`."""
        self.notes.append(text)

    def dial(self, source: str, target: BrokerId, peer: Peer) -> StageWire:
        """See `ClientNetwork`."""
        del source
        wire = StageWire(self, target, peer)
        self.wires.append(wire)

        def opened() -> None:
            if target in self.down:
                wire.is_over = True
                peer.closed("connection refused")
            elif not wire.is_over:
                peer.opened()

        self.schedule.after(DELAY_US, opened)
        return wire

    # -- what tests say ----------------------------------------------------------------------

    def lead(self, topic: str, number: int, broker: int, epoch: int = 0) -> None:
        """Say who leads a partition."""
        self.leaders[topic, number] = (broker, epoch)
        self.topic_ids.setdefault(topic, TOPIC_ID)

    def make(self, kind: str, name: str = "x", /, **options: str) -> SimClient:
        """A client; underscores in options stand for dashes, a leading one is left out."""
        named = {key.strip("_").replace("_", "-"): value for key, value in options.items()}
        return make_client(self, ClientSpec(kind, name, named))

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        self.schedule.run_until(self.schedule.now_us + milliseconds * 1000)

    def next_request(self, key: ApiKey, within_ms: int = 5_000) -> Asked:
        """The next request, which must be of this kind; time passes until it is there."""
        end_us = self.schedule.now_us + within_ms * 1000
        while not self.requests:
            next_us = self.schedule.next_us
            assert next_us is not None
            assert next_us <= end_us, f"no {key.name} came"
            self.schedule.step()
        asked = self.requests.popleft()
        assert asked.key is key, f"{asked.key.name} came instead of {key.name}: {asked.body}"
        return asked

    def serve(self) -> None:
        """Answer what is always answered: metadata."""
        for asked in [each for each in self.requests if each.key is ApiKey.METADATA]:
            self.requests.remove(asked)
            asked.answer(self.metadata([topic.name for topic in asked.body.topics]))

    def metadata(self, names: Sequence[str]) -> MetadataResponse:
        """What a puppet knows of some topics."""
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number + 1, host=f"broker-{number + 1}", port=9092)
                for number in range(self.options.brokers)
            ],
            controller_id=self.controller,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for (topic, number), (leader, epoch) in self.leaders.items()
            if topic == name
        ]
        if not partitions:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            name=name, topic_id=self.topic_ids[name], partitions=partitions
        )
