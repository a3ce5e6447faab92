"""Rules about a partition's replicas: who is in sync, what is committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import ErrorCode
from strandline.node.replica import Replica
from strandline.node.status.history import Kind
from strandline.node.why.refusals import Refusal
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.node.why.words import brokers, follower, refused
from strandline.protocol.apis import ApiKey
from strandline.replication.in_sync import Committed
from strandline.replication.leader import Leader


def led(scene: Scene) -> Iterator[tuple[Replica, Leader]]:
    """The partitions in question that this node leads."""
    for replica in scene.hosted():
        if replica.leader is not None:
            yield replica, replica.leader


def too_few_in_sync(scene: Scene) -> Iterator[Finding]:
    """Fewer in-sync replicas than acks=all needs."""
    for replica, leader in led(scene):
        if leader.has_min_in_sync:
            continue
        at = replica.topic_partition
        members = sorted(leader.in_sync.members)
        missing = [each for each in leader.replicas if each not in leader.in_sync.members]
        last = scene.last(Kind.IN_SYNC, at)
        evidence = [
            f"in sync are {brokers(members)} of {brokers(leader.replicas)}; acks=all needs "
            f"{leader.effective_min_in_sync} (min.insync.replicas)"
        ]
        if leader.has_eligible and len(members) >= min(leader.min_in_sync, len(leader.replicas)):
            evidence.append(
                f"min.insync.replicas is {leader.min_in_sync} here and greater at the controller, "
                "by which others are complete and may lead: nothing is committed without them"
            )
        evidence += [follower(replica, leader.progress[each], scene.now) for each in missing]
        evidence += refused(scene, at, TOO_FEW_IN_SYNC.codes)
        yield Finding(
            str(at),
            f"only {len(members)} of {leader.effective_min_in_sync} replicas that acks=all needs "
            f"are in sync{'' if last is None else f': {last.reason}'}",
            None if last is None else last.wall_ms,
            tuple(evidence),
            f"Bring broker {brokers(missing)} back, or lower min.insync.replicas of the topic.",
        )


def held_back(scene: Scene) -> Iterator[Finding]:
    """Records that are written and not readable: the high watermark waits for a follower."""
    for replica, leader in led(scene):
        log = replica.log
        if log.high_watermark >= log.log_end_offset or replica.is_end_unknown:
            continue
        holders = [
            each
            for each in leader.progress.values()
            if each.log_end_offset <= log.high_watermark and each.is_counted
        ]
        if not holders:
            continue
        since = min(each.last_caught_up_ms for each in holders)
        is_waiting = replica.commits_waiting
        evidence = [
            f"offsets {log.high_watermark} to {log.log_end_offset - 1} are written here and not "
            f"committed"
        ]
        evidence += [follower(replica, each, scene.now) for each in holders]
        if is_waiting:
            evidence.append(f"{is_waiting} produces with acks=all wait for it")
        if not isinstance(leader.in_sync, Committed):
            change = type(leader.in_sync).__name__.lower()
            evidence.append(
                f"a change of the in-sync set to {brokers(sorted(leader.in_sync.proposed))} is "
                f"{change} and not decided yet: both sets must have the records"
            )
        yield Finding(
            str(replica.topic_partition),
            f"the high watermark stays at {log.high_watermark} until broker "
            f"{brokers(sorted(each.broker_id for each in holders))} has fetched further",
            scene.wall_ms(since) if since >= 0 else None,
            tuple(evidence),
        )


def unsure(scene: Scene) -> Iterator[Finding]:
    """A new leader that does not know yet how much is committed (KIP-207)."""
    for replica, leader in led(scene):
        if not replica.is_end_unknown:
            continue
        last = scene.last(Kind.LEADER, replica.topic_partition)
        waited_for = [each for each in leader.progress.values() if each.is_counted]
        yield Finding(
            str(replica.topic_partition),
            f"broker {leader.broker_id} leads in epoch {leader.leader_epoch} since offset "
            f"{leader.start_offset}, but knows only up to {replica.log.high_watermark} that "
            "records are committed",
            None if last is None else last.wall_ms,
            (
                *(follower(replica, each, scene.now) for each in waited_for),
                *refused(scene, replica.topic_partition, UNSURE.codes),
            ),
        )


def out_of_sync(scene: Scene) -> Iterator[Finding]:
    """Replicas that are not in sync, with the reason why they left."""
    for replica, leader in led(scene):
        missing = [each for each in leader.replicas if each not in leader.in_sync.members]
        if not missing:
            continue
        last = scene.last(Kind.IN_SYNC, replica.topic_partition)
        yield Finding(
            str(replica.topic_partition),
            f"broker {brokers(missing)} is not in sync"
            + ("" if last is None or not last.reason else f": {last.reason}"),
            None if last is None else last.wall_ms,
            tuple(follower(replica, leader.progress[each], scene.now) for each in missing),
        )


def timed_out(scene: Scene) -> Iterator[Finding]:
    """Requests of which the outcome was not known in time."""
    for refusal in scene.refusals(ErrorCode.REQUEST_TIMED_OUT):
        at, end = refusal.about.topic_partition, refusal.log_end_offset
        replica = None if at is None else scene.node.replicas.find(at)
        is_over = (
            refusal.api == ApiKey.PRODUCE.name
            and replica is not None
            and end is not None
            and replica.log.high_watermark >= end
        )
        yield Finding(
            str(refusal.about),
            _what_took_too_long(refusal, is_committed=is_over),
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
            is_over=is_over,
        )


def _what_took_too_long(refusal: Refusal, *, is_committed: bool) -> str:
    if refusal.api == ApiKey.PRODUCE.name:
        return "the in-sync replicas did not have the records before the client's timeout; " + (
            f"everything below offset {refusal.log_end_offset} is committed by now"
            if is_committed
            else "they are in the leader's log all the same, and may be committed later"
        )
    if refusal.api == ApiKey.DELETE_RECORDS.name:
        return (
            "not every replica had deleted the records before the client's timeout; the leader "
            "has, and the others follow it"
        )
    return refusal.message or (
        f"{refusal.api} took longer than the client allowed; what it asked for may have been done"
    )


TOO_FEW_IN_SYNC: Final = Rule(
    "too-few-in-sync",
    "A produce with acks=all is refused: too few replicas are in sync",
    Scope.PARTITION,
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    "The in-sync set is smaller than min.insync.replicas. With NOT_ENOUGH_REPLICAS nothing was "
    "written; with NOT_ENOUGH_REPLICAS_AFTER_APPEND the set shrank after the leader had written "
    "the records, which may be committed later.",
    "Bring the missing brokers back. To lower min.insync.replicas of the topic lets producers go "
    "on at once, and gives up what only replicas outside of the in-sync set have.",
    ("min.insync.replicas", "replica.lag.time.max.ms"),
    too_few_in_sync,
)
HELD_BACK: Final = Rule(
    "held-back",
    "Records are written, but consumers cannot read them: the high watermark stands still",
    Scope.PARTITION,
    (),
    "Consumers see what every in-sync replica has. A replica that stops to fetch holds the high "
    "watermark back until it catches up, or has been behind for replica.lag.time.max.ms and leaves "
    "the in-sync set.",
    "Look at the brokers named: whether they live, reach the leader, and their disks keep up. "
    "Without help it ends after replica.lag.time.max.ms.",
    ("replica.lag.time.max.ms", "replica.fetch.wait.max.ms"),
    held_back,
)
UNSURE: Final = Rule(
    "new-leader-unsure",
    "A new leader does not tell where its log ends",
    Scope.PARTITION,
    (ErrorCode.OFFSET_NOT_AVAILABLE,),
    "Until the in-sync replicas have fetched from a new leader, it cannot know that what its "
    "predecessor had committed is all there is (KIP-207). It answers lookups of the end with "
    "OFFSET_NOT_AVAILABLE, and old clients with LEADER_NOT_AVAILABLE.",
    "It ends with the next fetch of every in-sync follower. If one is away, it ends when that one "
    "leaves the in-sync set.",
    ("replica.lag.time.max.ms",),
    unsure,
)
OUT_OF_SYNC: Final = Rule(
    "out-of-sync",
    "A replica is not in sync",
    Scope.PARTITION,
    (),
    "A follower leaves the in-sync set when its broker is gone or is about to stop, or when it has "
    "not had the leader's whole log for replica.lag.time.max.ms. It comes back when it has "
    "everything up to the high watermark, and to the start of the leader epoch.",
    "Bring the broker back, or find out why it fetches too slowly: network, disk, or "
    "num.replica.fetchers.",
    ("replica.lag.time.max.ms", "num.replica.fetchers", "replica.fetch.max.bytes"),
    out_of_sync,
)
TIMED_OUT: Final = Rule(
    "timed-out",
    "A request is answered with a timeout: a produce with acks=all, for the most part",
    Scope.PARTITION,
    (ErrorCode.REQUEST_TIMED_OUT,),
    "What was asked for has begun and was not done on every replica in time. Of a produce the "
    "leader has the records, and the in-sync replicas did not fetch them before the producer's "
    "request.timeout.ms; of DeleteRecords the leader has moved its log start offset.",
    "See what holds the high watermark back. An idempotent producer may send the records again "
    "without writing them twice; DeleteRecords may be sent again, too.",
    ("replica.lag.time.max.ms",),
    timed_out,
)
RULES: Final = (TOO_FEW_IN_SYNC, HELD_BACK, UNSURE, OUT_OF_SYNC, TIMED_OUT)
