"""Members of a share group on one node: they join, and fetch and acknowledge by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from strandline.types import ANONYMOUS, Principal
from tests.node.world import World

GROUP = "g"
_GROUP_RESOURCE = 32
_BEATS = 5


class Told(NamedTuple):
    """What an answer says of one partition."""

    code: ErrorCode
    acknowledged: ErrorCode
    acquired: list[tuple[int, int, int]]


Ack = tuple[int, int, int]
"""First and last offset, and what became of these records."""


class ShareMember:
    """One member on a connection of its own."""

    def __init__(self, world: World, name: str, principal: Principal = ANONYMOUS) -> None:
        self.world = world
        self.member_id = name * 22
        self.client = world.connect(principal)
        self.epoch = 0

    def request(
        self,
        *topics: str | UUID,
        acks: Sequence[Ack] = (),
        max_wait_ms: int = 0,
        max_records: int = 500,
        is_renew_ack: bool = False,
    ) -> ShareFetchRequest:
        """A fetch of the session's next epoch. The acknowledgements are of the first topic."""
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=0 if is_renew_ack else 1,
            max_bytes=0 if is_renew_ack else 1 << 20,
            max_records=0 if is_renew_ack else max_records,
            batch_size=500,
            share_acquire_mode=1,
            is_renew_ack=is_renew_ack,
            topics=[
                FetchTopic(
                    topic_id=topic_id_of(self.world, topic),
                    partitions=[
                        FetchPartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in (acks if not number else ())
                            ],
                        )
                    ],
                )
                for number, topic in enumerate(topics)
            ],
        )
        self.epoch += 1
        return request

    def send(self, *topics: str | UUID, **more: Any) -> None:
        """Send a fetch, and let happen what happens at once."""
        self.client.send(self.request(*topics, **more), 2)
        self.world.turn()

    @property
    def waits(self) -> bool:
        """Whether a fetch has not been answered."""
        return bool(self.client.asked)

    @property
    def answer(self) -> ShareFetchResponse:
        """The last answer."""
        answer: ShareFetchResponse = self.client.answers[-1]
        return answer

    def told(self) -> dict[UUID, Told]:
        """What the last answer says, by topic."""
        assert not self.waits
        assert self.answer.error_code == ErrorCode.NONE, self.answer
        return {
            topic.topic_id: Told(
                ErrorCode(each.error_code),
                ErrorCode(each.acknowledge_error_code),
                [(a.first_offset, a.last_offset, a.delivery_count) for a in each.acquired_records],
            )
            for topic in self.answer.responses
            for each in topic.partitions
        }

    def acquire(self, topic: str = "orders", **more: Any) -> list[tuple[int, int, int]]:
        """The records of a fetch that is answered at once, or is asked again until its share
        partition is loaded."""
        for _ in range(10):
            self.send(topic, **more)
            told = self.told().get(topic_id_of(self.world, topic))
            if told is not None:
                assert told.code is ErrorCode.NONE
                return told.acquired
            self.world.advance(10)
        return []


def topic_id_of(world: World, topic: str | UUID) -> UUID:
    """The id of a topic by its name."""
    return topic if isinstance(topic, UUID) else world.node.metadata.image.topics[topic].topic_id


def form_group(world: World, *topics: str, principal: Principal = ANONYMOUS) -> None:
    """Make the group, which begins with the earliest records, and states of these topics."""
    root = world.connect(principal)
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=GROUP, configs=[config]
    )
    root.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    root.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
    world.advance(1000)
    epoch = 0
    for _ in range(_BEATS):
        answer = root.ask(
            ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id="first",
                member_epoch=epoch,
                subscribed_topic_names=list(topics) if epoch == 0 else None,
            ),
            1,
        )
        assert answer.error_code == ErrorCode.NONE, answer
        epoch = answer.member_epoch
        world.advance(1000)
    assigned = root.ask(
        ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="first",
            member_epoch=epoch,
            subscribed_topic_names=list(topics),
        ),
        1,
    ).assignment
    assert len(assigned.topic_partitions) == len(topics), assigned


def empty_group(world: World, principal: Principal = ANONYMOUS) -> None:
    """The member with which the group was formed leaves."""
    leave = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="first", member_epoch=-1)
    answer = world.connect(principal).ask(leave, 1)
    assert answer.error_code == ErrorCode.NONE, answer


def states_of(world: World) -> list[tuple[int, int, str, str | None]]:
    """The window of the only share partition: first and last offset, state, and whose it is."""
    [led] = world.node.sharing.leading.all()
    assert led.state is not None
    return [
        (first, last, status.state.name, None if status.held is None else status.held.member_id[0])
        for first, last, status in led.state.runs
    ]


class HeldWrites:
    """Writes of states that wait until a test lets them go."""

    def __init__(self, world: World) -> None:
        self._persister = world.node.sharing.persister
        self._ask = self._persister.ask
        self._held: list[Callable[[], None]] = []
        self._persister.ask = self._hold  # type: ignore[method-assign, assignment]

    def __len__(self) -> int:
        return len(self._held)

    def _hold(self, api: ApiKey, *rest: Any) -> None:
        if api is ApiKey.WRITE_SHARE_GROUP_STATE:
            self._held.append(partial(self._ask, api, *rest))
        else:
            self._ask(api, *rest)

    def release(self) -> None:
        """Let those go that wait, and all that come."""
        self._persister.ask = self._ask  # type: ignore[method-assign]
        held, self._held = self._held, []
        for ask in held:
            ask()
