"""One question to all brokers at a time, without waiting for those that are known to be slow.

Each broker has a thread and a connection of its own here. A round waits `PATIENCE_S` for those that
were in time before. A broker that was not is silent: it is still asked, but rounds go on without it
until one of its answers has come in time. So a paused broker holds up one round, and not all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import Document
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, InvalidSetting, MalformedFrame, ProtocolError
from strandline.types import BrokerId

PATIENCE_S: Final = 1.5

Question = Callable[[ClusterClient, BrokerId], Document]


class ClusterPoller:
    """See the module; for one thread. `patience_s` in seconds."""

    def __init__(self, settings: ClientSettings, *, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self._settings = settings
        self._pollers: dict[BrokerId, _BrokerPoller] = {}

    def ask(
        self, brokers: Mapping[BrokerId, Address], question: Question
    ) -> dict[BrokerId, Document | ProtocolError]:
        """The answer of every broker, or why there is none."""
        for broker_id, poller in list(self._pollers.items()):
            if brokers.get(broker_id) != poller.address:
                self._pollers.pop(broker_id).close(waits=False)
        for broker_id, address in brokers.items():
            if broker_id not in self._pollers:
                self._pollers[broker_id] = _BrokerPoller(broker_id, address, self._settings)
        asked = {broker_id: self._pollers[broker_id] for broker_id in sorted(brokers)}
        for poller in asked.values():
            poller.ask(question, self.patience_s)
        wait([each.answer for each in asked.values() if not each.is_silent], self.patience_s)
        return {broker_id: poller.result() for broker_id, poller in asked.items()}

    def close(self) -> None:
        """End all threads, when what they wait for has come or failed, and their connections."""
        while self._pollers:
            self._pollers.popitem()[1].close(waits=True)


@dataclass(frozen=True, slots=True)
class _Answer:
    result: Document | ProtocolError
    took_s: float


class _BrokerPoller:
    """Asks one broker, in a thread of its own."""

    def __init__(self, broker_id: BrokerId, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.answer: Future[_Answer] = Future()
        """Of the question that was asked last."""
        self.is_silent = False
        self._broker_id = broker_id
        self._client = ClusterClient((address,), settings)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"poller-{broker_id}")
        self._has_asked = False

    def ask(self, question: Question, patience_s: float) -> None:
        """Ask, unless the broker has not answered the last question yet."""
        if self._has_asked and not self.answer.done():
            return
        if self.is_silent:
            self.is_silent = self.answer.result().took_s > patience_s
        self._has_asked = True
        self.answer = self._thread.submit(self._put, question)

    def result(self) -> Document | ProtocolError:
        """The answer to the last question, if it was in time."""
        self.is_silent |= not self.answer.done()
        if self.is_silent:
            return ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "It does not answer in time.")
        return self.answer.result().result

    def close(self, *, waits: bool) -> None:
        """End the thread and the connection, at the latest when the request times out."""
        self._thread.submit(self._client.close)
        self._thread.shutdown(wait=waits)

    def _put(self, question: Question) -> _Answer:
        begun = time.monotonic()
        try:
            result: Document | ProtocolError = question(self._client, self._broker_id)
        except ProtocolError as error:
            result = error
        except InvalidSetting as error:  # a certificate or a secret is not where it was
            result = ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error))
        except MalformedFrame as error:
            result = ProtocolError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"Its answer cannot be read: {error}"
            )
        return _Answer(result, time.monotonic() - begun)
