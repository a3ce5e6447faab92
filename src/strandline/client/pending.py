"""A request on a blocking connection that waits for its answer."""

from __future__ import annotations

from strandline.client.channel import Request
from strandline.errors import MalformedFrame, ProtocolError
from strandline.protocol.apis import Api, ApiKey


class Pending(Request):
    """A request that was sent. `Connection.result` gives its answer."""

    __slots__ = ("error", "response", "sent_ms")

    def __init__(
        self, api: Api, version: int, message: object, sent_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(api, version, message, sent_ms + timeout_ms)
        self.sent_ms = sent_ms
        self.response: object | None = None
        self.error: ProtocolError | MalformedFrame | None = None

    @property
    def is_done(self) -> bool:
        """Whether `result` will not wait."""
        return self.response is not None or self.error is not None


class Unfinished:
    """Requests whose answers were not waited for any longer, until the same is asked again."""

    def __init__(self) -> None:
        self.waiting: list[Pending] = []

    def put(self, pending: Pending) -> None:
        """The time was up before its answer came."""
        self.waiting.append(pending)

    def take(self, key: ApiKey, version: int, message: object) -> Pending | None:
        """The one that asks this, if there is one. Answers that came and are not asked for any
        more are dropped."""
        wanted = (key, version, message)
        for each in self.waiting:
            if (each.api.key, each.version, each.message) == wanted:
                self.waiting.remove(each)
                return each
        self.waiting = [each for each in self.waiting if not each.is_done]
        return None
