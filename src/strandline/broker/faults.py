"""Faults on a running local cluster, for people who want to see what follows from them.

    pause, resume        as SIGSTOP and SIGCONT do
    kill                 as SIGKILL does; `restart` starts it again
    partition, heal      the brokers named are an island, without the others and the metadata
    slow-disk            a broker that appends records stands still for so long
    expire-session       the metadata store takes the broker for dead, though it lives

Everything but the words is `LocalCluster`'s; `strandline.testing` does the same to its clusters.
This file must not know who asks, or over what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from strandline.broker.local_cluster import LocalCluster
from strandline.broker.running import Broker
from strandline.broker.slow_disk import SlowDisk
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId

DELAY_MS_MAX: Final = 60_000

Life: TypeAlias = Literal["running", "paused", "restarting", "down"]


class Faults:
    """See the module. Methods belong to the cluster's event loop."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._slow: dict[BrokerId, SlowDisk] = {}
        self._islands: list[frozenset[BrokerId]] = []
        """Who is cut off, with whom. No broker is on two of them; who is on none has metadata."""
        self._restarting: set[BrokerId] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._is_closed = False
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

    async def close(self) -> None:
        """Heal everything and begin no start any more: the brokers are about to be shut down.

        One that is cut off or held up could not shut down cleanly, and one that was killed may
        have to wait long before it starts.
        """
        self._is_closed = True
        for start in self._starts:
            start.cancel()
        await self._heal((), 0)

    def states(self) -> list[dict[str, object]]:
        """How every broker is, in the order of their ids.

        {"id": 1, "life": "running", "is_cut_off": false, "slow_ms": null}
        """
        return [
            {
                "id": each,
                "life": self._life(each),
                "is_cut_off": self._cluster.is_cut_off(each),
                "slow_ms": self._slow[each].delay_ms if each in self._slow else None,
            }
            for each in sorted(self._cluster.broker_ids)
        ]

    def _life(self, broker_id: BrokerId) -> Life:
        if broker_id in self._restarting:
            return "restarting"
        broker = self._cluster.brokers.get(broker_id)
        if broker is None:
            return "down"
        return "paused" if broker.is_paused else "running"

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
        for each in brokers:
            if each in self._restarting:
                raise _refusal(f"Broker {each} is being restarted already.")
            if self._cluster.is_cut_off(each):
                raise _refusal(
                    f"Broker {each} is cut off from the metadata, without which it cannot start: "
                    "'heal' it first."
                )
        self._restarting.update(brokers)
        try:
            running = [each for each in brokers if each in self._cluster.brokers]
            self._end_slow_disks(running)  # a broker that is held up cannot shut down
            await self._cluster.stop_brokers(running)
            await self._start(brokers)
        finally:
            self._restarting.difference_update(brokers)
        return f"Started {_names(brokers)}."

    async def _start(self, brokers: Sequence[BrokerId]) -> None:
        start = asyncio.create_task(self._cluster.start_brokers(brokers))
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)
        if self._is_closed:
            start.cancel()
        await asyncio.wait([start])
        if start.cancelled():
            raise _refusal(f"The cluster is stopping: {_names(brokers)} did not start.")
        start.result()

    async def _partition(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        if len(brokers) == len(self._cluster.broker_ids):
            raise _refusal("A partition needs brokers on both sides.")
        self._leave_islands(brokers)
        self._islands.append(frozenset(brokers))
        self._cut()
        return f"Cut {_names(brokers)} off from the others and from the metadata."

    async def _heal(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        del delay_ms
        for each in brokers:
            if each not in self._slow and not self._cluster.is_cut_off(each):
                raise _refusal(f"Broker {each} is not cut off, and its disk is not slow.")
        healed = brokers or self._cluster.broker_ids
        self._leave_islands(healed)
        self._cut()
        self._end_slow_disks(healed)
        if not brokers:
            return "All brokers reach each other and the metadata, and no disk is slow."
        return f"Nothing cuts {_names(brokers)} off any more, and no disk there is slow."

    def _end_slow_disks(self, brokers: Sequence[BrokerId]) -> None:
        for each in brokers:
            slow = self._slow.pop(each, None)
            if slow is not None:
                slow.end()

    def _leave_islands(self, brokers: Sequence[BrokerId]) -> None:
        rest = (island.difference(brokers) for island in self._islands)
        self._islands = [island for island in rest if island]

    def _cut(self) -> None:
        without_metadata = frozenset[BrokerId]().union(*self._islands)
        mainland = [each for each in self._cluster.broker_ids if each not in without_metadata]
        self._cluster.partition([*self._islands, mainland], without_metadata)

    async def _slow_disk(self, brokers: Sequence[BrokerId], delay_ms: int) -> str:
        if not 0 < delay_ms <= DELAY_MS_MAX:
            raise _refusal(f"A disk can be slow by 1 to {DELAY_MS_MAX} ms, not by {delay_ms}.")
        for each in self._running(brokers):
            self._end_slow_disks([each.broker_id])
            self._slow[each.broker_id] = SlowDisk(each, delay_ms)
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


def _names(brokers: Sequence[BrokerId]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


def _refusal(sentence: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, sentence)
