"""Replication step by step between real brokers: what goes over their sockets is let through one
fetch at a time.

A follower's links to its leader are frozen, as by a network that drops everything, except while the
test lets a request through. Its answer is taken off the socket, and held until the test hands it
to the follower (`returns`), or forgets it together with the follower. Followers ask without waiting
at the leader (`IMPATIENT`), so that every fetch of a scenario is one exchange. Nothing is timed:
every step ends when what it brings has been seen.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from strandline.broker.links import Link, Links
from strandline.broker.running import Broker
from strandline.node.effects import Ask
from strandline.node.replica import Replica
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from strandline.replication.leader import Leader
from strandline.testing import Cluster
from strandline.types import BrokerId, Instant
from tests.broker.harness import Wire
from tests.node.messages import batch, produce, produced

T = TypeVar("T")
PATIENCE_S: Final = 100.0
TOPIC: Final = "t"
PATIENT: Final = {"replica.lag.time.max.ms": 120_000, "auto.leader.rebalance.enable": False}
"""A follower in slow motion is not one that has fallen behind."""
IMPATIENT: Final = {**PATIENT, "replica.fetch.wait.max.ms": 0}


class Written:
    """A produce request that was sent, and its answer as soon as there is one."""

    def __init__(self, port: int, value: bytes, acks: int) -> None:
        self._wire = Wire(port, timeout_s=PATIENCE_S)
        self._wire.send((produce(batch(value), TOPIC, acks=acks, timeout_ms=60_000), 9))
        self._code: int | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was answered by now, and well."""
        if self._code is None:
            answers = select.poll()  # `select` itself takes no descriptor above 1023
            answers.register(self._wire.socket, select.POLLIN)
            if not answers.poll(0):
                return False
        return self.code == 0

    @property
    def code(self) -> int:
        """What it is answered; waits for that."""
        if self._code is None:
            self._code = produced(self._wire.receive()).error_code
            self._wire.close()
        return self._code

    def close(self) -> None:
        self._wire.close()


class _Gate:
    """The way of one follower's requests to its leader, and of the answers back."""

    def __init__(self, links: Links, leader: BrokerId) -> None:
        self.links = links
        self._leader = leader
        self._under_way = 0
        self._ask: Callable[[Ask], None] = links.ask
        self._receive: Callable[[Link, memoryview, Instant], None] = links.receive
        self._held: list[tuple[Link, bytes]] = []
        self._has_arrived = asyncio.Event()
        links.ask = self._count  # type: ignore[method-assign]
        links.receive = self._hold  # type: ignore[method-assign]

    def _count(self, effect: Ask) -> None:
        link = self.links._links.get(effect.link)
        self._under_way += link is not None and link.broker_id == self._leader
        self._ask(effect)

    def _hold(self, link: Link, frame: memoryview, now: Instant) -> None:
        if link.broker_id != self._leader:
            self._receive(link, frame, now)
            return
        self._held.append((link, bytes(frame)))
        # One that was under way before the gate was there has not been counted. More than one are
        # under way if a follower registered while it dialled: it has said everything twice.
        self._under_way = max(0, self._under_way - 1)
        if not self._under_way:
            self.links.block({self._leader})
            self._has_arrived.set()

    def lets_through(self) -> None:
        """Let the follower's request through."""
        assert not self._held, "the last answer has not returned"
        self._has_arrived.clear()
        self.links.unblock({self._leader})

    @property
    def has_answer(self) -> bool:
        return self._has_arrived.is_set()

    async def is_held(self) -> None:
        """Wait for the answer."""
        async with asyncio.timeout(PATIENCE_S):
            await self._has_arrived.wait()

    async def arrives(self) -> None:
        """Let the follower's request through, and hold what it is answered."""
        self.lets_through()
        await self.is_held()

    async def returns(self) -> None:
        """Hand the answer to the follower, whose next request is held."""
        assert self.has_answer, "there is no answer"
        held, self._held = self._held, []
        for link, frame in held:
            self._receive(link, memoryview(bytearray(frame)), self.links.begin())
        self.links.end_soon()

    async def open(self) -> None:
        """Let everything through from now on."""
        del self.links.ask, self.links.receive
        if self._held:
            await self.returns()
        self.links.unblock({self._leader})


class Steps:
    """The topic `t` on all brokers but the controller, whom nothing slows down.

    `replicas` are its brokers, the first of which leads at the beginning, with followers in slow
    motion.
    """

    def __init__(self, cluster: Cluster, **configs: Any) -> None:
        self.cluster = cluster
        self.controller = cluster.wait_for_controller()
        self.replicas = sorted({each.broker_id for each in cluster.brokers} - {self.controller})
        self.leader = self.replicas[0]
        self._gates: dict[int, _Gate] = {}
        self._written: list[Written] = []
        cluster.create_topic(TOPIC, assignment={0: self.replicas}, **configs)
        cluster.wait_until_in_sync(TOPIC)
        for follower in self.replicas[1:]:
            self.hold(follower)

    def close(self) -> None:
        for each in self._written:
            each.close()

    # -- fetches -----------------------------------------------------------------------------

    def hold(self, follower: int) -> None:
        """From now on this follower fetches from the leader only when the test says so."""

        async def hold() -> None:
            gate = self._gates[follower] = _Gate(self._links(follower), BrokerId(self.leader))
            await gate.is_held()
            await gate.returns()

        self.cluster.run(hold())

    def follow_slowly(self, follower: int) -> None:
        """The follower was cut off from the leader: let it fetch again, when the test says so."""

        async def follow() -> None:
            links = self._links(follower)
            await self.cluster.control.heal()
            links.block({BrokerId(self.leader)})
            self._gates[follower] = _Gate(links, BrokerId(self.leader))

        self.cluster.run(follow())

    def fetch(self, follower: int) -> None:
        """One whole fetch of a follower."""
        self.arrives(follower)
        self.returns(follower)

    def arrives(self, follower: int) -> None:
        """The follower's request reaches the leader, which answers it."""
        self.cluster.run(self._gates[follower].arrives())

    def waits(self, follower: int) -> None:
        """The follower's request reaches the leader, which need not answer it at once."""
        self._in_thread(self._gates[follower].lets_through)

    def is_answered(self, follower: int) -> bool:
        """Whether the answer has arrived at the follower's side."""
        return self._in_thread(lambda: self._gates[follower].has_answer)

    def wait_for_answer(self, follower: int) -> None:
        """Wait for the leader's answer to what `waits` let through."""
        self.cluster.run(self._gates[follower].is_held())

    def returns(self, follower: int) -> None:
        """The answer reaches the follower, which has its next request ready."""
        self.cluster.run(self._gates[follower].returns())

    def release(self, follower: int) -> None:
        """Let the follower fetch as fast as it likes."""
        self.cluster.run(self._gates.pop(follower).open())

    def forget(self, follower: int) -> None:
        """The follower has died, and with it the answer that was on its way."""
        del self._gates[follower]

    def silence(self, broker_id: int) -> None:
        """Freeze what the broker has to say to the controller."""
        self._in_thread(lambda: self._links(broker_id).block({BrokerId(self.controller)}))

    def unsilence(self, broker_id: int) -> None:
        """Let the broker and the controller speak again."""
        self._in_thread(lambda: self._links(broker_id).unblock({BrokerId(self.controller)}))

    # -- records -----------------------------------------------------------------------------

    def produce(self, value: bytes, *, acks: int = -1) -> Written:
        """Have a client write to the leader, and wait until that has appended it."""
        end, _ = self.at(self.leader)
        address = self.cluster.brokers[self.leader - 1].address
        written = Written(int(address.rpartition(":")[2]), value, acks)
        self._written.append(written)
        self.wait_until(
            self.leader, lambda replica: replica.log.log_end_offset > end, "it is appended"
        )
        return written

    def contents(self, broker_id: int) -> list[bytes]:
        """The values in that broker's log, from its file."""
        data = self._log_file(broker_id).read_bytes()
        return [
            record.value or b""
            for position, _ in iterate_headers(data)
            for record in read_records(data, position)
        ]

    def lose_last_batch(self, broker_id: int) -> None:
        """A power cut took the last batch of a broker that is down: it was not on the disk."""
        path = self._log_file(broker_id)
        starts = [position for position, _ in iterate_headers(path.read_bytes())]
        os.truncate(path, starts[-1])

    def epoch_starts(self, broker_id: int) -> list[int]:
        """Where the leader epochs begin in that broker's log, in their order."""
        entries = self.see(broker_id, lambda replica: replica.log.leader_epochs.entries)
        return [each.start_offset for each in entries]

    def wait_for_checkpoint(self, broker_id: int) -> None:
        """Wait until the broker's high watermark of now is in its file."""
        path = self._directory(broker_id) / "replication-offset-checkpoint"
        line = f"{TOPIC} 0 {self.at(broker_id)[1]}\n"
        self._wait_until(
            lambda: path.exists() and line in path.read_text(), f"{path} has the line {line!r}"
        )

    # -- looking -----------------------------------------------------------------------------

    def at(self, broker_id: int) -> tuple[int, int]:
        """Log end and high watermark."""
        return self.see(
            broker_id, lambda replica: (replica.log.log_end_offset, replica.log.high_watermark)
        )

    @property
    def remote(self) -> dict[int, int]:
        """What the leader knows of its followers' log ends."""
        progress = self.see(self.leader, _leading).progress
        return {each: progress[each].log_end_offset for each in sorted(progress)}

    def row(self) -> tuple[object, ...]:
        """Leader, remote log ends, followers: a line of the specification's tables."""
        followers = [each for each in self.replicas if each != self.leader]
        return (
            self.at(self.leader),
            *(self.remote[each] for each in followers),
            *(self.at(each) for each in followers),
        )

    def wait_for_row(self, *row: object) -> None:
        """For steps of which the last part happens after the test was told."""
        wanted = {self.leader: row[0]}
        followers = [each for each in self.replicas if each != self.leader]
        wanted |= zip(followers, row[1 + len(followers) :], strict=True)
        for broker_id, at in wanted.items():
            self.wait_until(broker_id, partial(_is_at, at), f"{broker_id} is at {at}")
        assert self.row() == row

    def see(self, broker_id: int, question: Callable[[Replica], T]) -> T:
        """Ask the replica of a running broker something, in the brokers' thread."""

        return self._in_thread(lambda: question(self._replica(broker_id)))

    def wait_until(self, broker_id: int, condition: Callable[[Replica], bool], what: str) -> None:
        """Wait until something holds for the replica of a running broker."""
        self._wait_until(lambda: condition(self._replica(broker_id)), what)

    @property
    def in_sync(self) -> set[int]:
        """The in-sync set as the metadata have it."""
        return {*self.cluster.status().partition(TOPIC).in_sync}

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        local = self.cluster.control._local
        came = self.cluster.run(local.wait_until(condition, timeout_s=PATIENCE_S))
        assert came, f"After {PATIENCE_S:g} s it is not so that {what}.\n{self.cluster.status()}"

    # -- inside ------------------------------------------------------------------------------

    def _in_thread(self, act: Callable[[], T]) -> T:
        async def do() -> T:
            return act()

        return self.cluster.run(do())

    def _broker(self, broker_id: int) -> Broker:
        return self.cluster.control._local.brokers[BrokerId(broker_id)]

    def _links(self, broker_id: int) -> Links:
        return self._broker(broker_id)._server.links

    def _replica(self, broker_id: int) -> Replica:
        return self._broker(broker_id).node.replicas.hosted(TOPIC, 0)

    def _directory(self, broker_id: int) -> Path:
        return self.cluster.data_dir / f"broker-{broker_id}"

    def _log_file(self, broker_id: int) -> Path:
        return self._directory(broker_id) / f"{TOPIC}-0" / f"{0:020}.log"


def _leading(replica: Replica) -> Leader:
    assert replica.leader is not None, "it does not lead"
    return replica.leader


def _is_at(at: object, replica: Replica) -> bool:
    return _ends(replica) == at


def _ends(replica: Replica) -> tuple[int, int]:
    return replica.log.log_end_offset, replica.log.high_watermark
