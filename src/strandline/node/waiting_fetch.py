"""A fetch that reads until it has enough or its time is up: what it found, and what it answers.

`handlers.fetch` makes one of each request that it cannot answer at once. This file knows how
partitions are read one after the other within the limits of a request (KIP-74), and what of it is
told. It must not know sessions' caches, nor versions of requests but those of answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError, StorageError
from strandline.node.client_quotas import ClientQuotas
from strandline.node.fetch_answer import (
    FetchAnswer,
    PartitionAnswer,
    encode_fetch_answer,
    set_throttle,
    size_of,
)
from strandline.node.fetch_reading import ConsumerReader, Reader
from strandline.node.fetch_sessions import FetchContext, Fetched, FetchKey
from strandline.node.follower_sessions import Followed
from strandline.node.leader_hints import MISDIRECTED, LeaderHints
from strandline.node.outbox import Origin, Refused
from strandline.node.purgatory import TOLD_MAX, Wait, Watched
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.types import NO_EPOCH, Instant, TopicPartition

log = logging.getLogger(__name__)

_HINTS_SINCE: Final = 16
_TOPIC_IDS_SINCE: Final = 13

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Permits = Callable[[str], bool]
"""Whether the client may read a topic. It is asked at each reading: while a fetch waits, ACLs may
change."""

_Read = tuple[Fetched, Replica | None, PartitionAnswer]
"""What was wanted of a partition, the replica that was read, what it answers."""


class WaitingFetch:
    """One fetch that reads until it has enough or its time is up.

    It is to have at least `bytes_min`, and gets at most `bytes_max` and the first batch.
    """

    __slots__ = (
        "_context",
        "_denied",
        "_is_fresh",
        "_missing",
        "_permits",
        "_quotas",
        "_reader",
        "_replicas",
        "_request",
        "bytes_max",
        "bytes_min",
        "connection",
    )

    def __init__(
        self,
        request: Request[Any],
        context: FetchContext,
        replicas: Replicas,
        reader: Reader,
        bytes_max: int,
        bytes_min: int,
        permits: Permits | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """`permits`: what the client may read; None: all. `quotas`: it is held to them."""
        self.connection = request.connection
        self._request = request
        self._context = context
        self._replicas = replicas
        self._reader = reader
        self._permits = permits
        self._quotas = quotas
        self.bytes_max = bytes_max
        self.bytes_min = bytes_min
        self._missing: frozenset[FetchKey] = frozenset()
        """What was unknown from the beginning: it is told, and does not keep the others from
        being waited for (a client that goes on asking for a deleted topic would ask in a loop).
        When it is there after all the wait is over: nothing else watches what is written to it."""
        self._denied: frozenset[FetchKey] = frozenset()
        """What the client might not read from the beginning: as with what is unknown."""
        self._is_fresh = False
        """Whether that is known of this very moment, so that the first reading asks for no
        permission again (each question may be a line of the audit log)."""

    def watched(self) -> list[Watched]:
        """What may complete this fetch when it changes."""
        watch = self._context.watch
        if watch is not None:
            return [watch]
        found = [(fetched.key, self._find(fetched)) for fetched in self._context.partitions]
        self._missing = frozenset(key for key, item in found if item in _UNKNOWN)
        if self._permits is not None:
            self._denied = frozenset(key for key, item in found if not self._may_read(key, item))
            self._is_fresh = True
        watched = [
            self._reader.watched(item)
            for key, item in found
            if isinstance(item, Replica) and key not in self._denied
        ]
        if watched and self._missing:
            watched.append(self._replicas.host.arrivals)
        return watched

    def try_complete(self, now: Instant) -> bool:
        """Answer if there is an error to tell or at least the minimum of bytes to send."""
        answers, total, is_urgent = self._read(now)
        if total < self.bytes_min and not is_urgent:
            return False
        self._answer(answers, now)
        return True

    def expire(self, now: Instant) -> None:
        """Answer with what there is."""
        self._answer(self._read(now)[0], now)

    @property
    def awaited(self) -> Iterator[tuple[Fetched, Replica]]:
        """What it waits for of the partitions that are hosted here."""
        for fetched in self._context.awaited:
            replica = self._find(fetched)
            if isinstance(replica, Replica) and fetched.key not in self._denied:
                yield fetched, replica

    @property
    def is_consumer(self) -> bool:
        """Whether a client waits, which is shown what is committed, and no other broker."""
        return isinstance(self._reader, ConsumerReader)

    def check(self) -> None:
        """See `Operation`: there is no error to tell."""
        reader = self._reader
        may_follow = isinstance(reader, ConsumerReader) and reader.may_follow
        for fetched, replica in self.awaited:
            log = replica.log
            problem = None
            if replica.is_retired:
                problem = "is gone"
            elif not replica.is_leading and not may_follow:
                problem = "does not lead any more"
            elif fetched.current_leader_epoch not in (NO_EPOCH, replica.leader_epoch):
                problem = f"is in leader epoch {replica.leader_epoch}"
            elif not log.log_start_offset <= fetched.fetch_offset <= log.log_end_offset:
                problem = f"goes from {log.log_start_offset} to {log.log_end_offset}"
            if problem is not None:
                raise InvariantViolated(
                    f"A fetch of {self.connection.client_host} waits for offset "
                    f"{fetched.fetch_offset} of leader epoch {fetched.current_leader_epoch}, but "
                    f"{replica.topic_partition} {problem}.",
                    invariant="I-40",
                )

    def wait(self) -> Wait:
        """For people."""
        image = self._replicas.host.metadata.image
        names = tuple(
            f"{each.key.topic or image.topic_names.get(each.key.topic_id)}-{each.key.partition}"
            f" from {each.fetch_offset}"
            for each in islice(self._context.partitions, TOLD_MAX)
        )
        return Wait(self._request, names, f"{self.bytes_min} bytes to read")

    def _find(self, fetched: Fetched) -> Replica | ErrorCode:
        if isinstance(fetched, Followed):
            replica = fetched.replica
            if replica is not None and not replica.is_retired:
                return replica
        key = fetched.key
        try:
            if key.topic is not None:
                return self._replicas.hosted(key.topic, key.partition)
            replica = self._replicas.hosted_by_id(key.topic_id, key.partition)
        except ProtocolError as error:
            return self._why_missing(fetched, error.code)
        if fetched.known_as is None:
            fetched.known_as = replica.topic_partition.topic
        return replica

    def _why_missing(self, fetched: Fetched, code: ErrorCode) -> ErrorCode:
        """The code for a partition that is not here, by what its topic was called before."""
        if isinstance(fetched, Followed) or fetched.key.topic is not None:
            return code
        image = self._replicas.host.metadata.image
        if code is not ErrorCode.UNKNOWN_TOPIC_ID:
            fetched.known_as = image.topic_names.get(fetched.key.topic_id)
            return code
        if fetched.known_as is None:
            return code
        if fetched.known_as in image.topics:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _read(self, now: Instant) -> tuple[list[_Read], int, bool]:
        """Read every partition: the answers, their bytes, whether they must not wait."""
        answers: list[_Read] = []
        read = self._reader.read
        budget = self.bytes_max
        total = 0
        is_urgent = False
        is_fresh, self._is_fresh = self._is_fresh, False
        for fetched in self._context.partitions:
            answer = PartitionAnswer(fetched.key.partition)
            found = self._find(fetched)
            replica: Replica | None = None
            may_wait = False
            was_denied = is_denied = False
            if self._permits is not None:
                was_denied = fetched.key in self._denied
                is_denied = was_denied if is_fresh else not self._may_read(fetched.key, found)
            if is_denied:
                answer.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                may_wait = was_denied
            elif isinstance(found, Replica):
                replica = found
                is_urgent = is_urgent or was_denied or fetched.key in self._missing
                try:
                    read(found, fetched, answer, budget, is_first=total == 0, now=now)
                except ProtocolError as error:
                    answer.refuse(error.code)
                except StorageError as error:
                    log.error("Reading %s failed: %s", found.topic_partition, error)
                    found.failed_to_read(error)
                    answer.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                answer.refuse(found)
                may_wait = found in _UNKNOWN and fetched.key in self._missing
            if answer.records is not None:
                total += answer.length
                budget = max(0, budget - answer.length)
            is_urgent = is_urgent or (answer.is_urgent and not may_wait)
            answers.append((fetched, replica, answer))
        return answers, total, is_urgent

    def _may_read(self, key: FetchKey, found: Replica | ErrorCode) -> bool:
        """By the topic's name; an id that is not known has none, and is told as such."""
        if isinstance(found, Replica):
            name = found.topic_partition.topic
        else:
            names = self._replicas.host.metadata.image.topic_names
            known = key.topic if key.topic is not None else names.get(key.topic_id)
            if known is None:
                return True
            name = known
        return self._permits is None or self._permits(name)

    def _answer(self, answers: list[_Read], now: Instant) -> None:
        context = self._context
        by_id = self._request.version >= _TOPIC_IDS_SINCE
        answer = FetchAnswer(session_id=context.session_id)
        misdirected: list[tuple[FetchKey, PartitionAnswer]] = []
        for fetched, replica, partition in answers:
            if partition.error_code is not ErrorCode.NONE:
                self._note_refusal(fetched.key, partition.error_code)
            has_records = partition.records is not None
            if context.must_tell(
                fetched,
                high_watermark=partition.high_watermark,
                log_start_offset=partition.log_start_offset,
                has_records=has_records,
                has_error=partition.is_news,
            ):
                key = fetched.key
                topic = key.topic_id if by_id else (key.topic or "")
                answer.add(topic, partition)
                if has_records and replica is not None:
                    self._reader.answered(replica, partition.length, now)
                elif partition.error_code in MISDIRECTED:
                    misdirected.append((key, partition))
        if misdirected and self._request.version >= _HINTS_SINCE:
            self._add_hints(answer, misdirected)
        request = self._request
        chunks = encode_fetch_answer(request, answer)
        quotas = self._quotas
        if quotas is not None and quotas.is_limited:
            quotas.fetched(request, size_of(chunks), now)
            if request.throttle_ms:
                set_throttle(chunks, request.version, request.throttle_ms)
        request.reply_chunks(chunks)

    def _note_refusal(self, key: FetchKey, code: ErrorCode) -> None:
        topic = key.topic
        if topic is None:
            names = self._replicas.host.metadata.image.topic_names
            topic = names.get(key.topic_id, str(key.topic_id))
        request = self._request
        request.outbox.refuses(
            Refused(
                code,
                request.api_key.name,
                (topic, key.partition, None),
                Origin(request.client_id, request.connection),
                None,
            )
        )

    def _add_hints(
        self, answer: FetchAnswer, misdirected: list[tuple[FetchKey, PartitionAnswer]]
    ) -> None:
        """Tell clients that asked the wrong broker whom to ask (KIP-951)."""
        image = self._replicas.host.metadata.image
        hints = LeaderHints(image, self.connection.listener)
        for key, partition in misdirected:
            name = image.topic_names.get(key.topic_id, "") if key.topic is None else key.topic
            partition.current_leader = hints.of(TopicPartition(name, key.partition))
        answer.leaders = hints.endpoints.values()
