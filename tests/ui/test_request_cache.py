"""Questions that many pages ask are asked of the brokers once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.testing import Cluster
from strandline.ui.questions import why
from strandline.ui.request_cache import ASKED_MAX, SPACING_S, RequestCache, Values

pytestmark = pytest.mark.xdist_group("ui")


class Question:
    """One that takes until it is released, and counts."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.released = threading.Event()

    def __call__(self, cluster: ClusterClient, values: Values) -> int:
        del cluster
        self.asked.append(dict(values))
        assert self.released.wait(60)
        return len(self.asked)


@pytest.fixture
def cache(cluster: Cluster) -> RequestCache:
    return RequestCache(cluster.bootstrap_servers, ClientSettings())


def test_what_many_want_to_know_is_asked_once(cache: RequestCache) -> None:
    question = Question()

    async def pages() -> list[int]:
        waiting = [asyncio.create_task(cache.ask(question, {"topic": "a"})) for _ in range(20)]
        gone = asyncio.create_task(cache.ask(question, {"topic": "a"}))
        await asyncio.sleep(0)
        gone.cancel()
        question.released.set()
        return [await each for each in waiting]

    assert asyncio.run(pages()) == [1] * 20
    assert question.asked == [{"topic": "a"}]


def test_different_questions_begin_one_after_the_other(cache: RequestCache) -> None:
    question = Question()
    question.released.set()

    async def pages() -> float:
        begun = asyncio.get_running_loop().time()
        wanted: list[Mapping[str, str]] = [{"topic": str(number)} for number in range(5)]
        await asyncio.gather(*(cache.ask(question, each) for each in wanted))
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(pages()) >= 4 * SPACING_S  # so long at least, on any machine
    assert len(question.asked) == 5


def test_a_refusal_is_for_all_who_asked(cache: RequestCache) -> None:
    async def pages() -> list[object]:
        wrong = {"topic": "orders", "partition": "1"}
        asked = [cache.ask(refusing, wrong) for _ in range(3)]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    found = asyncio.run(pages())
    assert [str(each) for each in found] == ["INVALID_REQUEST: No."] * 3


def test_too_many_questions_are_refused(cache: RequestCache) -> None:
    question = Question()

    async def pages() -> list[object]:
        wanted = [{"topic": str(number)} for number in range(ASKED_MAX + 1)]
        waiting = [asyncio.create_task(cache.ask(question, each)) for each in wanted]
        found, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        question.released.set()
        for each in waiting:
            each.cancel()
        return [str(each.exception()) for each in found]

    (refused,) = asyncio.run(pages())
    assert str(refused).startswith("THROTTLING_QUOTA_EXCEEDED: Pages ask 100 different questions")


def refusing(cluster: ClusterClient, values: Values) -> None:
    del cluster, values
    raise ProtocolError(ErrorCode.INVALID_REQUEST, "No.")


def test_connections_are_kept_for_the_next_question(cache: RequestCache, cluster: Cluster) -> None:
    clients: list[ClusterClient] = []

    def noted(client: ClusterClient, values: Values) -> object:
        clients.append(client)
        return why(client, values)

    async def pages() -> None:
        for topic in ("a", "b"):
            told = await cache.ask(noted, {"topic": topic})
            assert sorted(told["brokers"]) == ["1", "2", "3"]
        cache.close()

    asyncio.run(pages())
    assert clients[0] is clients[1]
    assert len(clients) == 2
