"""`strandline.ShareConsumer`: records of topics that the members of a share group work through."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Final, Literal, Self, TypeAlias

from strandline.client.api.one_thread import one_thread
from strandline.client.api.refusals import Use
from strandline.client.api.settings import sharing_of
from strandline.client.arguments import several
from strandline.client.cluster import ClusterClient
from strandline.client.refusal import refusal
from strandline.client.share_group.acknowledgements import (
    ACK_TYPES,
    Acknowledged,
    ShareRecord,
)
from strandline.client.share_thread import ShareThread
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.types import TopicPartition

AcknowledgeType: TypeAlias = Literal["accept", "release", "reject", "renew"]
"""What became of a record."""
OnAcknowledged: TypeAlias = Callable[[TopicPartition, Sequence[int], ProtocolError | None], object]
"""Told the partition, the offsets that were acknowledged, and why that does not count, if so."""

CLOSE_MS: Final = 30_000


def ack_type(name: str) -> AckType:
    """What a program says of a record. Raises `ProtocolError` (INVALID_REQUEST)."""
    found = ACK_TYPES.get(name)
    if found is None:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"A record is acknowledged by {', '.join(ACK_TYPES)}, not by '{name}'.",
        )
    return found


def tell_outcomes(outcomes: Iterable[Acknowledged], told: OnAcknowledged | None) -> None:
    """Tell the program what came of what it said."""
    if told is None:
        return
    for at, offsets, code in outcomes:
        told(at, offsets, refusal(code, None, f"partition {at}") if code else None)


@one_thread
class ShareConsumer:
    """Takes records of topics like from a queue, as a member of a share group (KIP-932).

        settings = {
            "bootstrap.servers": "localhost:9092",
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
        with strandline.ShareConsumer(settings) as consumer:
            consumer.subscribe(["work"])
            for record in consumer.poll(timeout_ms=1000):
                consumer.acknowledge(record, "accept" if record.value else "reject")
            consumer.commit()

    - `settings`: by Kafka's names (see [clients](clients.md)); `bootstrap.servers` and `group.id`
      are needed.
    - `on_acknowledged`: called with a partition, offsets, and None or a `ProtocolError`, within
      `poll`, `commit`, `commit_soon` and `close`, when a broker has said whether acknowledgements
      count.

    Each record goes to one member of the group, whatever client that is, and is locked for it; it
    is given to a member again unless it is accepted or rejected before the lock ends. With
    `share.acknowledgement.mode=implicit` (the default) the next `poll` or commit accepts what the
    last `poll` returned; with `explicit` the program acknowledges each record before the next
    `poll`. What was acquired and not acknowledged is given back by `close`. It belongs to one
    thread, and has another one for heartbeats. Connects to nothing yet. Raises `InvalidSetting` for
    an unknown setting or value. A context manager that closes it.
    """

    def __init__(
        self, settings: Mapping[str, object], *, on_acknowledged: OnAcknowledged | None = None
    ) -> None:
        sharing = sharing_of(settings)
        self._cluster = ClusterClient(sharing.connecting.bootstrap, sharing.connecting.client)
        self._settings = sharing.member
        self._on_acknowledged = on_acknowledged
        self._thread: ShareThread | None = None
        self._use = Use("share consumer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def _member(self) -> ShareThread:
        self._use.check_open()
        if self._thread is None:
            self._thread = ShareThread(self._cluster, self._settings)
            # A consumer that is dropped and not closed gives its records to others.
            weakref.finalize(self, self._thread.abandon).atexit = False
        return self._thread

    def subscribe(self, topics: Iterable[str]) -> None:
        """Take records of these topics, and no others. `poll` does the rest.

        No topics: leave the group. Patterns are not part of the protocol. Raises `TypeError` for
        one name that is not in a list.
        """
        self._member.subscribe(several(topics, "Topics"))

    def poll(self, timeout_ms: int = 500) -> list[ShareRecord]:
        """The records that come first within the time, at most `max.poll.records`; none if none
        come.

        What was said of the records of the last call goes to the brokers first. Records whose locks
        were renewed are returned once more, before others. Errors that a retry may mend are
        retried. Raises `ProtocolError`: INVALID_REQUEST without a subscription, or in explicit mode
        if a record of the last call was not acknowledged; UNSUPPORTED_VERSION if the brokers do not
        serve share groups; GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, ...; and
        `CorruptRecords`, a `StrandlineError`, for bytes that are not records, which are given back
        to the group. `TypeError` for a time that is no whole number.
        """
        member = self._member
        self._tell(member)
        return member.poll(index(timeout_ms))

    def acknowledge(self, record: ShareRecord, how: AcknowledgeType = "accept") -> None:
        """Say what became of a record of the last `poll`; the next `poll` or commit sends it.

        - `accept`: it is done. `release`: it is to be given to a member again, with a higher
          `delivery_count`. `reject`: it cannot be done, and is not given again. `renew`: the work
          goes on, and the lock is to begin anew; `poll` returns the record once more.

        Raises `ProtocolError`: INVALID_REQUEST in implicit mode, INVALID_RECORD_STATE if the last
        `poll` did not return the record, or it was acknowledged and sent before.
        """
        at = TopicPartition(record.topic, record.partition)
        self._member.acknowledge(at, record.offset, ack_type(how))

    def commit(
        self, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Send what was said of records, and wait until the brokers have stored it.

        Returns by partition None, or why it does not count: INVALID_RECORD_STATE if the lock has
        ended, NOT_LEADER_OR_FOLLOWER or NETWORK_EXCEPTION if the leader is another one now or the
        connection to it was lost (these records are given to a member again, unless the leader had
        stored it before), REQUEST_TIMED_OUT if nothing was heard in time. Errors that a retry may
        mend are retried for `timeout_ms`, by default `default.api.timeout.ms`.
        """
        member = self._member
        if timeout_ms is None:
            timeout_ms = self._settings.operation_timeout_ms
        try:
            return member.commit(timeout_ms)
        finally:
            self._tell(member)

    def commit_soon(self) -> None:
        """Send what was said of records, and do not wait; `on_acknowledged` is told later."""
        member = self._member
        self._tell(member)
        member.commit_soon()

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """For how long a record is locked, in milliseconds; None before the first answer."""
        return None if self._thread is None else self._thread.lock_ms

    def close(self, *, timeout_ms: int = CLOSE_MS) -> None:
        """Send what was said of records, give back all others, leave the group, and close all
        connections; after `timeout_ms` without waiting any longer for answers."""
        self._use.is_closed = True
        thread, self._thread = self._thread, None
        try:
            if thread is not None and not self._use.is_inherited:
                thread.close(timeout_ms)
                self._tell(thread)
        finally:
            self._cluster.close()

    def _tell(self, member: ShareThread) -> None:
        tell_outcomes(member.take_outcomes(), self._on_acknowledged)
