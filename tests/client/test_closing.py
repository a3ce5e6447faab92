"""Clients that are closed: what still counts while they are, and what is refused afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import strandline
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread
from tests.client.test_aio import read as read_async
from tests.client.test_aio import run
from tests.client.test_api import read, settings, write

PATIENCE_MS = PATIENCE_S * 1000


def stored(broker: BrokerThread, group: str) -> dict[TopicPartition, int]:
    with strandline.Admin(settings(broker)) as admin:
        return dict(admin.group_offsets(group))


# -- What a listener does in `close` -------------------------------------------------------------


def test_what_is_given_up_in_close_can_still_be_committed(broker: BrokerThread, name: str) -> None:
    write(broker, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest", enable_auto_commit="false")
    positions: list[int] = []
    with strandline.Consumer(mine) as consumer:

        def revoked(partitions: Sequence[TopicPartition]) -> None:
            positions.extend(consumer.position(each) for each in partitions)
            consumer.commit()
            consumer.commit({first: 3})

        consumer.subscribe([name], on_revoked=revoked)
        read(consumer, 10)
    assert positions == [5, 5]
    assert stored(broker, name) == {first: 3, second: 5}


def test_what_is_given_up_in_close_can_still_be_committed_on_an_event_loop(
    broker: BrokerThread, name: str
) -> None:
    write(broker, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest", enable_auto_commit="false")

    async def work() -> None:
        async with strandline.AsyncConsumer(mine) as consumer:

            async def revoked(partitions: Sequence[TopicPartition]) -> None:
                assert [consumer.position(each) for each in partitions] == [5, 5]
                await consumer.commit()
                await consumer.commit({first: 3})

            await consumer.subscribe([name], on_revoked=revoked)
            await read_async(consumer, 10)

    run(work())
    assert stored(broker, name) == {first: 3, second: 5}
