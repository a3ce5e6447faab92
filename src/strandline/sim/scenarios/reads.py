"""The consumers of a scenario: one fetch from a broker, and what a client makes of the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.client.fetching import (
    FetchFrom,
    FetchSettings,
    Isolation,
    fetch_request,
    records_of,
)
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchResponse
from strandline.sim.scenarios.replica import PARTITION, Replica, text_of
from strandline.sim.scenarios.words import gather
from strandline.sim.scenarios.writes import ScriptClient
from strandline.types import NO_EPOCH, NO_TOPIC_ID, Offset

_VERSION: Final = 11


def consume(
    replica: Replica, offset: int, *, is_committed: bool, say: Callable[[str], None]
) -> None:
    """Read from a broker what a consumer may see from `offset` on; `say` is told what that is."""
    name = replica.name
    if not replica.is_running or replica.is_paused:
        say(f"{name} does not answer the consumer")
        return
    isolation = Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED
    settings = FetchSettings(isolation=isolation)
    asked = FetchFrom(PARTITION, NO_TOPIC_ID, Offset(offset), NO_EPOCH)

    def answered(answer: object) -> None:
        if not isinstance(answer, FetchResponse):
            say(f"the connection of the consumer to {name} broke")
            return
        data = answer.responses[0].partitions[0]
        if data.error_code:
            say(f"the consumer is refused: {ErrorCode(data.error_code).name}")
            return
        found = records_of(asked, data, settings)
        values = gather([text_of(record) for record in found.records])
        read = " ".join(values) if values else "nothing"
        end = "last stable offset" if is_committed else "high watermark"
        say(f"a consumer reads {read} from {offset} on; the {end} is {found.end_offset}")

    request = fetch_request([asked], settings, max_wait_ms=0)
    ScriptClient(replica.machine, answered).send(ApiKey.FETCH, _VERSION, request)
