"""The refusals that this node has answered with: which, about what, since when, how often.

They are read off the answers at the end of each turn, so no handler has to tell. Of each kind and
subject there is one entry; entries are bounded, and those longest ago go first. Of each code the
log gets one sentence a minute at most. Knows no cause: the rules do.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.errors import ErrorCode
from strandline.node.answer_errors import AnswerError, errors_in
from strandline.node.metadata import Metadata
from strandline.node.outbox import AnsweredRequest, Origin, Refused
from strandline.node.replicas import Replicas
from strandline.protocol.apis import ApiKey
from strandline.types import NO_TOPIC_ID, Instant, TopicPartition

log = logging.getLogger(__name__)

ENTRIES_MAX: Final = 1000
CHARACTERS_MAX: Final = 1000
"""Of each text in an entry: clients may make up names of 32 KiB."""
LOG_INTERVAL_MS: Final = 60_000
STEPS: Final = frozenset({ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED})
"""Steps of the protocol that look like errors, and refuse nothing."""
_QUESTIONS: Final = frozenset(
    {
        (ApiKey.DESCRIBE_GROUPS, ErrorCode.GROUP_ID_NOT_FOUND),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, ErrorCode.GROUP_ID_NOT_FOUND),
        (ApiKey.SHARE_GROUP_DESCRIBE, ErrorCode.GROUP_ID_NOT_FOUND),
    }
)
"""By these administrators find out of which protocol a group is: no member is refused."""
_QUIET: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Told to clients in the normal course of things, which ask again: not for the log."""
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
"""Kinds of keys in FindCoordinator: one request has keys of one kind."""


class About(NamedTuple):
    """What a refusal is about; empty where it is about a request as a whole."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None

    def __str__(self) -> str:
        if self.topic is not None and self.partition is not None:
            return f"{self.topic}-{self.partition}"
        if self.topic is not None:
            return f"topic {self.topic}"
        if self.transactional_id is not None:
            return f"transactional id {self.transactional_id}"
        return "the request" if self.group is None else f"group {self.group}"

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition, if it is about one."""
        if self.topic is None or self.partition is None:
            return None
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class Refusal:
    """One kind of refusal about one thing. The client, the sentence, and what says how things stood
    then, are of the newest one."""

    code: ErrorCode
    api: str
    about: About
    first: Instant
    last: Instant
    client_id: str
    client_host: str
    message: str | None
    metadata_version: int
    """The last transaction of the metadata store that this broker knew."""
    log_end_offset: int | None
    """Where the log of the partition ended on this broker; None if there was none to be used."""
    count: int = 1


class Refusals:
    """See the module."""

    def __init__(
        self, metadata: Metadata, replicas: Replicas, explain: Callable[[Refusal], str]
    ) -> None:
        """`explain` says why, in a sentence for the log."""
        self._metadata = metadata
        self._replicas = replicas
        self._explain = explain
        self._entries: OrderedDict[tuple[ErrorCode, str, About], Refusal] = OrderedDict()
        self._logged_ms: dict[ErrorCode, int] = {}
        """When each code was last told in the log, in monotonic milliseconds."""
        self._unlogged: Counter[ErrorCode] = Counter()
        self.counts: Counter[tuple[str, ErrorCode]] = Counter()
        """Refusals by API and code, since the start."""

    def __iter__(self) -> Iterator[Refusal]:
        """Those longest ago first."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def note_refused(self, refused: Sequence[Refused], now: Instant) -> None:
        """Note what was refused in answers that are encoded by hand."""
        for code, api, about, origin, message in refused:
            self._note(code, api, About(*about), origin, message, now)

    def note_answers(
        self, answered: Sequence[tuple[AnsweredRequest, object]], now: Instant
    ) -> None:
        """Note what the response messages of a turn refuse."""
        for request, response in answered:
            if response is None:
                continue
            for error in errors_in(response):
                is_question = (request.api_key, error.code) in _QUESTIONS
                if error.code not in STEPS and not is_question:
                    about = self._about(error, request)
                    origin = Origin(request.client_id, request.connection)
                    self._note(error.code, request.api_key.name, about, origin, error.message, now)

    def _about(self, error: AnswerError, request: AnsweredRequest) -> About:
        topic = error.topic
        if topic is None and error.topic_id != NO_TOPIC_ID:
            names = self._metadata.image.topic_names
            topic = names.get(error.topic_id, str(error.topic_id))
        if topic is not None:
            return About(topic, error.partition)
        if request.api_key is ApiKey.FIND_COORDINATOR:
            return _about_key(request.body.key_type, error.group or request.body.key)
        return About(group=error.group or getattr(request.body, "group_id", None))

    def _note(
        self,
        code: ErrorCode,
        api: str,
        about: About,
        origin: Origin,
        message: str | None,
        now: Instant,
    ) -> None:
        self.counts[api, code] += 1
        about = About(_cut(about.topic), about.partition, *map(_cut, about[2:]))
        key = (code, api, about)
        known = self._entries.get(key)
        client_id, client_host = _cut(origin.client_id) or "", origin.connection.client_host
        message = _cut(message)
        version, end = self._metadata.image.zxid, self._log_end_offset(about)
        if known is None:
            if len(self._entries) >= ENTRIES_MAX:
                self._entries.popitem(last=False)
            known = self._entries[key] = Refusal(
                code, api, about, now, now, client_id, client_host, message, version, end
            )
        else:
            self._entries.move_to_end(key)
            known.last = now
            known.count += 1
            known.client_id, known.client_host = client_id, client_host
            known.message = message or known.message
            known.metadata_version, known.log_end_offset = version, end
        if code not in _QUIET:
            self._log(known, now)

    def _log_end_offset(self, about: About) -> int | None:
        at = about.topic_partition
        replica = None if at is None else self._replicas.find(at)
        if replica is None or replica.log.failure is not None:
            return None
        return replica.log.log_end_offset

    def _log(self, refusal: Refusal, now: Instant) -> None:
        logged_ms = self._logged_ms.get(refusal.code)
        if logged_ms is not None and now.monotonic_ms - logged_ms < LOG_INTERVAL_MS:
            self._unlogged[refusal.code] += 1
            return
        self._logged_ms[refusal.code] = now.monotonic_ms
        more = self._unlogged.pop(refusal.code, 0)
        log.info(
            "%s of %s about %s was refused with %s%s: %s",
            refusal.api,
            refusal.client_id or refusal.client_host,
            refusal.about,
            refusal.code.name,
            f", {more} others since the last message" if more else "",
            self._explain(refusal),
        )


def _about_key(key_type: int, key: str) -> About:
    """What FindCoordinator was asked for, if it has a name of its own."""
    if key_type == _GROUP_KEY:
        return About(group=key or None)
    return About(transactional_id=(key or None) if key_type == _TRANSACTION_KEY else None)


def _cut(text: str | None) -> str | None:
    """What is remembered of a text."""
    if text is None or len(text) <= CHARACTERS_MAX:
        return text
    return f"{text[:CHARACTERS_MAX]}..."
