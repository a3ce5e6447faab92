"""One name where several are wanted: it would be taken for its letters, and a topic of one letter
be deleted, or waited for."""

from __future__ import annotations

import asyncio

import pytest

import strandline
from tests.client.conftest import BrokerThread
from tests.client.test_api import settings

SENTENCE = r"Topics are several names: \['ab'\], not 'ab'\."


def test_one_name_is_no_list_of_names(broker: BrokerThread) -> None:
    with strandline.Admin(settings(broker)) as admin:
        with pytest.raises(TypeError, match=SENTENCE):
            admin.delete_topics("ab")
        with pytest.raises(TypeError, match=SENTENCE):
            admin.delete_share_group_offsets("g", "ab")
    mine = settings(broker, group_id="g")
    with strandline.Consumer(mine) as consumer, pytest.raises(TypeError, match=SENTENCE):
        consumer.subscribe("ab")
    with strandline.ShareConsumer(mine) as member, pytest.raises(TypeError, match=SENTENCE):
        member.subscribe("ab")


def test_one_name_is_no_list_of_names_on_an_event_loop(broker: BrokerThread) -> None:
    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            with pytest.raises(TypeError, match=SENTENCE):
                await admin.delete_topics("ab")
            with pytest.raises(TypeError, match=SENTENCE):
                await admin.delete_share_group_offsets("g", "ab")
        mine = settings(broker, group_id="g")
        async with strandline.AsyncConsumer(mine) as consumer:
            with pytest.raises(TypeError, match=SENTENCE):
                await consumer.subscribe("ab")
        async with strandline.AsyncShareConsumer(mine) as member:
            with pytest.raises(TypeError, match=SENTENCE):
                await member.subscribe("ab")

    asyncio.run(work())
