"""Fetch sessions of followers: which partitions have data to send, maintained by replica callbacks.

A broker follows many partitions over one session, and nearly all of them are quiet at any moment.
Looking at each for every fetch would cost every produce the number of partitions, so a session
subscribes to its replicas instead: `news` has the partitions that a look is worth. A partition is
left out once it has nothing to tell: the follower has all of its log, is in sync, and was told the
offsets. It comes back with the first thing that happens to it, and with a request that names it.

A quiet partition's follower is caught up with each fetch of the session, whether or not the fetch
names it (KIP-227). That is noted when the quiet ends, as of the session's last fetch: until then
the follower was at the end of the log, which counts as caught up at any time (KAFKA-7152).

This file must not know requests or answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from strandline.errors import InvariantViolated
from strandline.node.fetch_sessions import FetchContext, Fetched, FetchKey, Session
from strandline.node.purgatory import Watched
from strandline.node.replica import Replica
from strandline.replication.leader import Leader
from strandline.replication.progress import NEVER_MS
from strandline.types import NO_OFFSET, BrokerId, Instant, Offset


class FollowerIdentity(NamedTuple):
    """A broker that fetches, and the epoch of its registration; -1 if it does not say."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(slots=True, eq=False)
class Followed(Fetched):
    """A partition that a follower fetches. Within a session it listens to its replica.

    `is_news` says whether it is in the session's `news`; `noted_by` is the leadership that knows
    of its last fetch.
    """

    session: FollowerSession | None = None
    replica: Replica | None = None
    noted_by: Leader | None = None
    is_news: bool = True

    def take_over(self, wanted: Fetched) -> None:
        """See `Fetched`."""
        self.ask(
            wanted.fetch_offset,
            wanted.max_bytes,
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )

    def ask(
        self,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> None:
        """Want this from now on.

        The offsets are told again, too: a follower that asks anew while an answer is on its way
        does not take the partition from that one.
        """
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.told_high_watermark = NO_OFFSET

    def on_change(self, *, completes_fetch: bool) -> None:
        """The replica changed; `completes_fetch` if that may complete a parked fetch."""
        session, replica = self.session, self.replica
        if session is None or replica is None:
            return
        if not self.is_news:
            self._note_quiet_time(replica, session)
            session.add_news(self)
        if completes_fetch and session.watch.waiters:
            replica.host.purgatory.changed(session.watch)

    def listen_to(self, replica: Replica) -> None:
        """Be told what happens in this replica, and in no other."""
        if self.replica is not replica and self.session is not None:
            self.stop_listening()
            self.replica = replica
            replica.listeners.append(self)

    def stop_listening(self) -> None:
        """Be told no more."""
        if self.replica is not None:
            self.replica.listeners.remove(self)
            self.replica = None

    def check(self) -> None:
        """Raise `InvariantViolated` if the follower lacks something of its quiet partition."""
        replica = self.replica
        if replica is None or replica.is_retired or not replica.is_leading:
            return
        log = replica.log
        told = (self.fetch_offset, self.told_high_watermark, self.told_log_start_offset)
        if told != (log.log_end_offset, log.high_watermark, log.log_start_offset):
            raise InvariantViolated(
                f"{replica.topic_partition} has end, high watermark and start "
                f"({log.log_end_offset}, {log.high_watermark}, {log.log_start_offset}), but a "
                f"follower was told {told}, and it is not looked at again.",
                invariant="I-42",
            )

    def _note_quiet_time(self, replica: Replica, session: FollowerSession) -> None:
        leader = replica.leader
        if leader is None or leader is not self.noted_by:
            return
        progress = leader.progress.get(session.identity.broker_id)
        if progress is None or progress.log_end_offset != self.fetch_offset:
            return  # it has gone on over another session
        leader.fetched(
            session.identity.broker_id,
            offset=Offset(self.fetch_offset),
            log_start_offset=progress.log_start_offset,
            broker_epoch=progress.broker_epoch,
            log_end_offset=Offset(self.fetch_offset),
            now_ms=session.last_used_ms,
        )


def quiet_until_ms(replica: Replica, leader: Leader, broker_id: BrokerId, now_ms: int) -> int:
    """Until when a follower, of which nothing was noted for a while, is known to have had the
    whole log; `NEVER_MS` if there is no such session. With a fetch that waits, that is now.

    While nothing happens in a partition its fetches are not noted (`FollowerReader._maybe_settle`);
    `Followed.on_change` makes up for that later. This is for people who look meanwhile.
    """
    for listener in replica.listeners:
        if (
            not isinstance(listener, Followed)
            or listener.is_news
            or listener.noted_by is not leader
        ):
            continue
        session = listener.session
        if session is not None and session.identity.broker_id == broker_id:
            return now_ms if session.watch.waiters else session.last_used_ms
    return NEVER_MS


class FollowerSession(Session):
    """One follower's remembered fetch."""

    __slots__ = ("identity", "news", "watch")

    def __init__(
        self, session_id: int, now: Instant, *, uses_topic_ids: bool, identity: FollowerIdentity
    ) -> None:
        super().__init__(session_id, now, uses_topic_ids=uses_topic_ids)
        self.identity = identity
        self.news: dict[Followed, None] = {}
        """What is worth a look, in the order in which it is looked at."""
        self.watch = Watched()
        """Changes when a parked fetch may be completed."""

    @property
    def is_follower(self) -> bool:
        """See `Session`."""
        return True

    def is_superseded_by(self, newcomer: Session) -> bool:
        """See `Session`. A broker fetches each partition over one session, and loses sessions
        with its connections; one that is left behind would listen for ever."""
        return (
            isinstance(newcomer, FollowerSession)
            and newcomer.identity.broker_id == self.identity.broker_id
            and not newcomer.partitions.keys().isdisjoint(self.partitions)
        )

    def begin(self, wanted: Iterable[Fetched]) -> None:
        """See `Session`."""
        super().begin(wanted)
        for fetched in self.partitions.values():
            if isinstance(fetched, Followed):
                fetched.session = self
                self.add_news(fetched)

    def merge(self, changed: Iterable[Fetched], forgotten: Iterable[FetchKey]) -> None:
        """See `Session`. What a request names is worth a look."""
        for wanted in changed:
            known = self.partitions.get(wanted.key)
            if known is None:
                known = self.partitions[wanted.key] = wanted
            else:
                known.take_over(wanted)
            if isinstance(known, Followed):
                known.session = self
                self.name_again(known)
        for key in forgotten:
            self._forget(key)

    def name_again(self, fetched: Followed) -> None:
        """A request has named the partition; its place among the news stays if it has one."""
        if fetched not in self.news:
            self.add_news(fetched)

    def identify(self, follower: FollowerIdentity, *, is_stale: bool) -> None:
        """A request came from this broker. All is to be judged anew if that is another one than
        before, or the broker has meanwhile registered again (KIP-903)."""
        if is_stale or follower != self.identity:
            self.identity = follower
            self.look_at_everything()

    def close(self) -> None:
        """See `Session`."""
        for key in list(self.partitions):
            self._forget(key)

    def check(self) -> None:
        """See `Session`: a partition that is not among the news has nothing to tell."""
        for fetched in self.partitions.values():
            if isinstance(fetched, Followed) and not fetched.is_news:
                fetched.check()

    def look_at_everything(self) -> None:
        """Whatever was known is in doubt."""
        for fetched in self.partitions.values():
            if isinstance(fetched, Followed):
                self.add_news(fetched)

    def add_news(self, fetched: Followed) -> None:
        """Look at the partition, after all others."""
        fetched.is_news = True
        self.news.pop(fetched, None)
        self.news[fetched] = None

    def settle(self, fetched: Followed) -> None:
        """There is nothing to tell about the partition until something happens."""
        fetched.is_news = False
        self.news.pop(fetched, None)

    def move_back(self, fetched: Fetched) -> None:
        """See `Session`."""
        if isinstance(fetched, Followed) and fetched in self.news:
            self.add_news(fetched)

    def context(self, *, incremental: bool) -> FetchContext:
        """See `Session`."""
        return FollowerContext(self, incremental=incremental)

    def _forget(self, key: FetchKey) -> None:
        fetched = self.partitions.pop(key, None)
        if isinstance(fetched, Followed):
            fetched.stop_listening()
            fetched.session = None
            self.news.pop(fetched, None)


class FollowerContext(FetchContext):
    """A fetch within a follower's session: an incremental one looks at the news only."""

    __slots__ = ("followers",)

    def __init__(self, session: FollowerSession, *, incremental: bool) -> None:
        super().__init__([], session=session, incremental=incremental)
        self.followers = session

    @property
    def partitions(self) -> list[Fetched]:
        """See `FetchContext`."""
        if self.incremental:
            return [*self.followers.news]
        return list(self.followers.partitions.values())

    @property
    def awaited(self) -> Iterable[Fetched]:
        """See `FetchContext`: all of the session, whatever was worth a look so far."""
        return self.followers.partitions.values()

    @property
    def watch(self) -> Watched | None:
        """See `FetchContext`."""
        return self.followers.watch
