"""The followers of a scenario: fetches one at a time, and what their answers do, in words.

A fetch goes when the script says so; what it says, what the leader answers and what the follower
makes of it is the business of real nodes. This file says it: from the bytes of the answer, and from
what has become of the follower's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from strandline.errors import ErrorCode
from strandline.protocol.messages.fetch import PartitionData
from strandline.sim.scenarios.links import Exchange, Links
from strandline.sim.scenarios.replica import Replica
from strandline.sim.world import World
from strandline.types import NO_EPOCH, Offset


class Followers:
    """See the module."""

    def __init__(
        self,
        sim: World,
        replicas: Mapping[str, Replica],
        links: Links,
        say: Callable[[str], None],
    ) -> None:
        """`say` is told what happens, in words."""
        self._sim = sim
        self._replicas = replicas
        self._links = links
        self._say = say
        self._parked: dict[str, Exchange] = {}
        self._held: dict[str, Exchange] = {}
        self._ends: dict[str, tuple[int, int]] = {}
        """The log end and the newest leader epoch of each log, as they were last."""

    def ended(self, name: str) -> None:
        """The process of a broker is over."""
        self._parked.pop(name, None)
        self._held.pop(name, None)

    def lost_power(self, name: str, kept: Offset) -> None:
        """Its log ends there now, which is no truncation."""
        self._ends[name] = (kept, NO_EPOCH)

    def fetch(self, replica: Replica, *, mode: str = "", one_batch: bool = False) -> None:
        """One fetch of a follower from the leader that it knows; `mode` says what goes wrong."""
        name = replica.name
        if replica.leader_name is None:
            self._say(f"{name} follows no leader")
            return
        source = self._replicas[replica.leader_name]
        if replica.is_paused or (source.is_paused and source.is_running):
            who = name if replica.is_paused else source.name
            self._say(f"{who} is paused: nothing is fetched")
            return
        if mode == "lose-request" or not source.is_running or source.is_cut or replica.is_cut:
            self._say("the request is lost")
            return
        exchange = self._ask(replica, source, parks=mode == "park", one_batch=one_batch)
        if exchange is None:
            self._say(f"{name} does not fetch")
        elif mode == "park" and not exchange.is_answered:
            self._parked[name] = exchange
            offset = replica.log.log_end_offset
            self._say(f"{source.name} parks the fetch at {offset}")
        else:
            self._answered(replica, source, exchange, mode)

    def _ask(
        self, replica: Replica, source: Replica, *, parks: bool, one_batch: bool
    ) -> Exchange | None:
        """Let the follower's fetch reach the leader; None if it does not send one."""
        ids = (replica.broker_id, source.broker_id)
        settings = replica.machine.node.settings
        before = settings.broker
        if one_batch:
            settings.broker = replace(before, replica_fetch_max_bytes=1)
        if not parks:
            self._links.renew(*ids)
        found = self._links.waiting(*ids)
        if parks and found is not None and not found[1].max_wait_ms:
            # The first one of a session does not wait; it makes the session.
            self._links.answer(self._links.ask(found[0]))
            found = self._links.waiting(*ids)
        settings.broker = before
        return None if found is None else self._links.ask(found[0])

    def _answered(
        self, replica: Replica, source: Replica, exchange: Exchange, mode: str = ""
    ) -> None:
        data = _data_of(exchange)
        offset = replica.log.log_end_offset
        if data is not None:
            self._say(f"{source.name} answers {replica.name}@{offset}: {_answer_in_words(data)}")
        if mode == "lose-reply":
            self._links.renew(replica.broker_id, source.broker_id)
            self._say("the reply is lost")
        elif mode == "hold-reply":
            self._held[replica.name] = exchange
        else:
            if mode == "damage-reply":
                self._sim.network.flip(source.broker_id, replica.broker_id)
            self._deliver(replica, exchange)

    def _deliver(self, replica: Replica, exchange: Exchange) -> None:
        data = _data_of(exchange)
        epoch, before = replica.leader_epoch, replica.log.log_end_offset
        asked = exchange.request.topics[0].partitions[0] if exchange.request.topics else None
        base = replica.base_offset()
        self._links.answer(exchange)
        self.say_truncation(replica)
        end = replica.log.log_end_offset
        if asked is not None and asked.current_leader_epoch != epoch:
            self._say(f"{replica.name} ignores the answer")
        elif data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if end > before:
                self._say(f"{replica.name} drops everything and starts at {end}")
        elif data is not None and data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._say(f"{replica.name} waits for newer metadata")
        elif data is not None and data.error_code:
            self._say(f"{replica.name} backs off")
        elif data is not None and data.records and end == before:
            self._say(f"{replica.name} finds damaged records, and backs off")
        elif replica.base_offset() < base:
            self._say(f"{replica.name} starts over at {replica.base_offset()}")

    def deliver(self, name: str) -> None:
        """A reply that was held back arrives."""
        self._deliver(self._replicas[name], self._held.pop(name))

    def has_held(self, name: str) -> bool:
        """Whether `deliver` has something to deliver."""
        return name in self._held and self._held[name].is_answered

    def has_parked(self, name: str) -> bool:
        """Whether `expire_parked` has something to answer."""
        return name in self._parked

    def expire_parked(self, name: str) -> None:
        """A parked fetch has waited long enough, and is answered with what there is."""
        exchange = self._parked.pop(name)
        self._sim.run_until(lambda: exchange.is_answered)
        self._answer_late(name, exchange)

    def answer_parked(self) -> None:
        for name, exchange in list(self._parked.items()):
            if exchange.is_answered:
                del self._parked[name]
                self._answer_late(name, exchange)

    def _answer_late(self, name: str, exchange: Exchange) -> None:
        replica = self._replicas[name]
        if replica.leader_name is not None:
            self._answered(replica, self._replicas[replica.leader_name], exchange)

    def say_truncation(self, replica: Replica) -> None:
        """Tell if its log is shorter than it was, or knows fewer leader epochs."""
        if not replica.has_log:
            return
        end, epoch = replica.log.log_end_offset, replica.log.leader_epochs.latest
        former_end, former_epoch = self._ends.get(replica.name, (0, NO_EPOCH))
        if end < former_end or (end == former_end and epoch < former_epoch):
            self._say(f"{replica.name} truncates to {end}")
        self._ends[replica.name] = (end, epoch)


def _data_of(exchange: Exchange) -> PartitionData | None:
    """What the answer says of the partition; None if it has nothing new of it."""
    topics = exchange.answer.responses
    return topics[0].partitions[0] if topics and topics[0].partitions else None


def _answer_in_words(data: PartitionData) -> str:
    if data.error_code:
        return ErrorCode(data.error_code).name
    if data.diverging_epoch is not None:
        end = data.diverging_epoch
        return f"the logs diverge, epoch {end.epoch} ends at {end.end_offset}"
    what = "records" if data.records else "nothing"
    return f"{what}, high watermark {data.high_watermark}"
