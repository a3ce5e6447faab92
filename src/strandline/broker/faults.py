"""Faults on a running local cluster, for people who want to see what follows from them.

    pause, resume        as SIGSTOP and SIGCONT do
    kill                 as SIGKILL does; `restart` starts it again
    partition, heal      the brokers named on one side, all others and the metadata on the other
    slow-disk            whoever writes records does nothing else for so long
    expire-session       the metadata store takes the broker for dead, though it lives

Everything but the words is `LocalCluster`'s; `strandline.testing` does the same to its clusters.
This file must not know who asks, or over what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from strandline.broker.local_cluster import LocalCluster
from strandline.broker.running import Broker
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

DELAY_MS_MAX: Final = 60_000


class Faults:
    """See the module. Methods belong to the cluster's event loop."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._slow: dict[BrokerId, SlowDisk] = {}
        self._verbs: Mapping[str, Callable[[Sequence[BrokerId], int], Awaitable[str]]] = {
            "pause": self._pause,
            "resume": self._resume,
            "kill": self._kill,
            "restart": self._restart,
            "partition": self._partition,
            "heal": self._heal,
            "slow-disk": self._slow_disk,
            "expire-session": self._expire,
        }

    async def carry_out(self, verb: str, brokers: Sequence[int], delay_ms: int) -> str:
        """Do it, and say what was done. Raises `ProtocolError` for what cannot be done."""
        found = self._verbs.get(verb)
        if found is None:
            raise _refusal(f"There is no fault '{verb}'; there are {', '.join(self._verbs)}.")
        unknown = sorted(set(brokers) - set(self._cluster.broker_ids))
        if unknown:
            known = ", ".join(map(str, self._cluster.broker_ids))
            raise _refusal(f"There is no broker {unknown[0]}; the brokers are {known}.")
        if not brokers and verb != "heal":
            raise _refusal(f"Say which brokers '{verb}' is for.")
        return await found([BrokerId(each) for each in dict.fromkeys(brokers)], delay_ms)

    async def _pause(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        running = self._running(brokers)
        for each in running:
            if each.is_paused:
                raise _refusal(f"Broker {each.broker_id} is paused already.")
        for each in running:
            each.pause()
        return f"Paused {_names(brokers)}."

    async def _resume(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        running = self._running(brokers)
        for each in running:
            if not each.is_paused:
                raise _refusal(f"Broker {each.broker_id} is not paused.")
        for each in running:
            each.resume()
        return f"Resumed {_names(brokers)}."

    async def _kill(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        self._running(brokers)
        for each in brokers:
            self._slow.pop(each, None)
            self._cluster.kill(each)
        return f"Killed {_names(brokers)}; 'restart' starts again what was killed."

    async def _restart(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        running = [each for each in brokers if each in self._cluster.brokers]
        for each in running:
            self._slow.pop(each, None)
        await self._cluster.stop_brokers(running)
        await self._cluster.start_brokers(brokers)
        return f"Started {_names(brokers)}."

    async def _partition(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        others = [each for each in self._cluster.broker_ids if each not in brokers]
        if not others:
            raise _refusal("A partition needs brokers on both sides.")
        self._cluster.partition([brokers, others], brokers)
        return f"Cut {_names(brokers)} off from the others and from the metadata."

    async def _heal(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        if brokers:
            raise _refusal("'heal' is for all brokers: name none.")
        self._cluster.heal()
        for each in self._slow.values():
            each.end()
        self._slow.clear()
        return "All brokers reach each other and the metadata, and no disk is slow."

    async def _slow_disk(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        if not 0 < delay_ms <= DELAY_MS_MAX:
            raise _refusal(f"A disk can be slow by 1 to {DELAY_MS_MAX} ms, not by {delay_ms}.")
        for each in self._running(brokers):
            former = self._slow.pop(each.broker_id, None)
            if former is not None:
                former.end()
            self._slow[each.broker_id] = SlowDisk(each, delay_ms / 1000)
        return f"Writing records takes {_names(brokers)} {delay_ms} ms more, until 'heal'."

    async def _expire(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        for each in self._running(brokers):
            each.expire_session()
        return f"The metadata sessions of {_names(brokers)} have ended."

    def _running(self, brokers: Sequence[BrokerId]) -> list[Broker]:
        down = [each for each in brokers if each not in self._cluster.brokers]
        if down:
            raise _refusal(f"Broker {down[0]} is not running.")
        return [self._cluster.brokers[each] for each in brokers]


class SlowDisk:
    """Holds a broker up after each turn in which it wrote records, as a slow write would.

    It is the whole broker that waits, since it writes in its one thread. Its session lives on.
    """

    def __init__(self, broker: Broker, delay_s: float) -> None:
        self._broker = broker
        self._delay_s = delay_s
        self._written = self._bytes_written()
        self._handle: asyncio.TimerHandle | None = None
        broker.after_turns(self._look)

    def end(self) -> None:
        """The disk is quick again."""
        self._broker.after_turns(None)
        if self._handle is not None:
            self._handle.cancel()
            self._go_on()

    def _look(self) -> None:
        written = self._bytes_written()
        if written == self._written or self._handle is not None or self._broker.is_paused:
            return
        self._written = written
        self._broker.hold()
        self._handle = asyncio.get_running_loop().call_later(self._delay_s, self._go_on)

    def _go_on(self) -> None:
        self._handle = None
        if not self._broker.is_paused and not self._broker.has_ended:
            self._broker.let_go()

    def _bytes_written(self) -> int:
        replicas = self._broker.node.replicas
        return sum(each.traffic.bytes_in + each.traffic.replication_in for each in replicas)


def _names(brokers: Sequence[BrokerId]) -> str:
    return f"broker {', '.join(map(str, brokers))}"


def _refusal(sentence: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, sentence)
