"""Rules about who leads a partition, and about disks under it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.cluster.image import PartitionImage
from strandline.errors import ErrorCode, StorageError
from strandline.node.logs import Directory
from strandline.node.replica import Replica
from strandline.node.status.history import Kind
from strandline.node.why.refusals import Refusal
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.node.why.words import brokers, refused
from strandline.protocol.apis import ApiKey
from strandline.storage.files import DiskFull
from strandline.types import BrokerId, TopicPartition

_OF_LOGS: Final = frozenset(
    each.name
    for each in (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    )
)
"""Which KAFKA_STORAGE_ERROR speaks of the log of a partition. Of most others it speaks of the
metadata."""
_OF_DIRECTORIES: Final = frozenset(
    each.name for each in (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS)
)
_LATELY_MS: Final = 10_000


def without_leader(scene: Scene) -> Iterator[Finding]:
    """A partition without a leader. Every broker sees it; the controller reports it."""
    for at, state in scene.partitions():
        if state.has_leader and scene.image.is_alive(state.leader):
            continue
        candidates = [*state.in_sync_replicas, *state.elr] or list(state.last_known_elr)
        absent = scene.absent(candidates)
        if state.leader_epoch < 0:
            cause = "the controller has not elected its first leader yet"
        elif state.has_leader:
            cause = f"broker {state.leader}, which leads, is not registered"
        else:
            cause = f"only broker {brokers(candidates)} may lead without loss, and none can"
        evidence = [
            f"replicas {brokers(state.replicas)}, in sync {brokers(state.in_sync_replicas)}, "
            f"eligible {brokers(state.elr)}, registered "
            f"{brokers(sorted(scene.image.brokers))}"
        ]
        if state.last_known_elr and list(state.last_known_elr) != candidates:
            crashed = brokers(state.last_known_elr)
            evidence.append(f"broker {crashed} restarted uncleanly, and may lack records")
        config = scene.node.settings.of_topic(at.topic, scene.image)
        if not config.unclean_leader_election_enable:
            evidence.append("unclean.leader.election.enable is false for the topic")
        evidence += refused(scene, at, WITHOUT_LEADER.codes)
        yield Finding(
            str(at),
            cause,
            _since(scene, at, state),
            tuple(evidence),
            _bring_back(absent, at),
        )


def _since(scene: Scene, at: TopicPartition, state: PartitionImage) -> int | None:
    """Since when there is no leader: since its loss stands in the partition's state, or, if it does
    not yet, since its registration went."""
    event = scene.last(Kind.LEADER, at)
    if state.has_leader:
        gone = (state.leader,)
        events = (e for e in scene.node.telemetry.history if e.kind is Kind.BROKER)
        event = next((e for e in reversed(list(events)) if e.before == gone), None)
    return None if event is None else event.wall_ms


def _bring_back(absent: list[BrokerId], at: TopicPartition) -> str | None:
    if not absent:
        return None
    return (
        f"Start broker {brokers(absent)}. If its data is lost for good: "
        f"`strandline topics elect {at.topic}:{at.partition} --unclean`, which may lose committed "
        "records."
    )


def elsewhere(scene: Scene) -> Iterator[Finding]:
    """Requests that came to a broker that does not lead."""
    for refusal in scene.refusals(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        at = refusal.about.topic_partition
        state = None if at is None else scene.image.partition(at)
        if at is None or state is None:
            continue
        last = scene.last(Kind.LEADER, at)
        replica = scene.node.replicas.find(at)
        yield Finding(
            str(at),
            _leader_is(state, scene),
            None if last is None else last.wall_ms,
            refusal_evidence(refusal, scene.now)
            + (() if last is None else (f"leader epoch {last.leader_epoch}: {last.reason}",)),
            is_over=replica is not None and replica.leader is not None,
        )


def fenced(scene: Scene) -> Iterator[Finding]:
    """Requests made for another leader epoch (KIP-320)."""
    codes = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
    for refusal in scene.refusals(*codes):
        at = refusal.about.topic_partition
        replica = None if at is None else scene.node.replicas.find(at)
        if at is None or replica is None:
            continue
        older = refusal.code is ErrorCode.FENCED_LEADER_EPOCH
        last = scene.last(Kind.LEADER, at)
        yield Finding(
            str(at),
            f"the client named {'an older' if older else 'a later'} leader epoch than "
            f"{replica.leader_epoch}, which this broker is in",
            None if last is None else last.wall_ms,
            refusal_evidence(refusal, scene.now),
        )


def bad_disk(scene: Scene) -> Iterator[Finding]:
    """Replicas whose disk fails, and the refusals because of it."""
    found_here: set[TopicPartition] = set()
    for at, state in scene.partitions():
        reason = scene.node.replicas.why_unavailable(at)
        replica = scene.node.replicas.find(at)
        if reason is None and replica is not None:
            reason = replica.log.failure
        if reason is None:
            continue
        found_here.add(at)
        evidence = [
            f"replicas {brokers(state.replicas)}, in sync {brokers(state.in_sync_replicas)}"
        ]
        evidence += [
            f"log directory {each.path}: {each.offline_reason}"
            for each in scene.node.replicas.logs.directories
            if each.offline_reason is not None
        ]
        evidence += refused(scene, at, BAD_DISK.codes)
        yield Finding(str(at), reason, None, tuple(evidence))
    for refusal in scene.refusals(ErrorCode.KAFKA_STORAGE_ERROR):
        if refusal.about.topic_partition not in found_here:
            cause = refusal.message or "an operation of the disk under it failed"
            is_over = _works_again(scene, refusal)
            yield Finding(
                str(refusal.about),
                "what failed then works again" if is_over else cause,
                refusal.first.wall_ms,
                refusal_evidence(refusal, scene.now),
                is_over=is_over,
            )


def _works_again(scene: Scene, refusal: Refusal) -> bool:
    """Whether what was refused for its disk can be done again: of a log that it can be used, and
    was written to since; of the metadata that they were."""
    replicas, at = scene.node.replicas, refusal.about.topic_partition
    if refusal.api in _OF_DIRECTORIES:
        return all(each.offline_reason is None for each in replicas.logs.directories)
    if refusal.api not in _OF_LOGS:
        return scene.image.zxid > refusal.metadata_version
    if at is None:
        return False
    replica, directory = replicas.find(at), replicas.logs.directory_of(at)
    if replica is None or directory is None:
        return True  # it is not here any more, or its log is made when it has a leader
    if directory.offline_reason is not None:
        return False
    end = replica.log.log_end_offset
    return refusal.log_end_offset != end or _has_room(scene, refusal, replica, directory)


def _has_room(scene: Scene, refusal: Refusal, replica: Replica, directory: Directory) -> bool:
    """Whether a disk that was full takes the largest batch again, and has refused nothing lately:
    it may have a quota, of which its free space says nothing."""
    if refusal.message != DiskFull.for_clients:
        return False
    if scene.now.monotonic_ms - refusal.last.monotonic_ms < _LATELY_MS:
        return False
    try:
        free_bytes = scene.node.replicas.logs.files.free_bytes(directory.path)
    except StorageError:
        return False  # a disk that cannot be examined does not work
    return free_bytes >= replica.log.config.max_message_bytes


def _leader_is(state: PartitionImage, scene: Scene) -> str:
    if not state.has_leader:
        return "it has no leader"
    here = state.leader == scene.node.broker_id
    return f"broker {state.leader} leads it in epoch {state.leader_epoch}" + (
        " since then" if here else ", and not this one"
    )


WITHOUT_LEADER: Final = Rule(
    "no-leader",
    "A partition has no leader, and an election is refused",
    Scope.PARTITION,
    (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    "Only replicas that have every committed record may lead: the in-sync ones and the eligible "
    "ones (KIP-966). All of them are away.",
    "Start one of the brokers named. If none can come back, an unclean election makes another "
    "replica the leader, and may lose committed records.",
    ("unclean.leader.election.enable", "min.insync.replicas"),
    without_leader,
)
ELSEWHERE: Final = Rule(
    "not-leader",
    "A broker is asked for a partition that it does not lead",
    Scope.PARTITION,
    (ErrorCode.NOT_LEADER_OR_FOLLOWER,),
    "Leadership has moved, and the client's metadata is older than that. A produce that was "
    "waiting when leadership moved is answered with this, too: its records may be committed or "
    "not, and an idempotent producer sends them again.",
    "Nothing: clients ask for the new leader by themselves. If it does not end, the client "
    "reaches brokers of another cluster, or the brokers do not reach the metadata.",
    (),
    elsewhere,
)
FENCED: Final = Rule(
    "leader-epoch",
    "A request names another leader epoch than the broker's",
    Scope.PARTITION,
    (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "Clients and followers say for which leader epoch they ask, so that no broker answers that has "
    "been replaced (KIP-320). FENCED_LEADER_EPOCH: the client is behind. UNKNOWN_LEADER_EPOCH: "
    "this broker is behind, and has not heard of the election yet.",
    "Nothing: it ends when the one that is behind has heard of the newest metadata.",
    (),
    fenced,
)
BAD_DISK: Final = Rule(
    "bad-disk",
    "A replica cannot be used: its disk fails",
    Scope.PARTITION,
    (ErrorCode.KAFKA_STORAGE_ERROR,),
    "A disk operation failed. Where there is no room, what could not be written is refused, and "
    "nothing else. After an error of the device the whole log directory takes no more records; "
    "other directories go on. A log with messages from before Kafka 0.11 is not read, and left as "
    "it is: its partition alone is refused.",
    "Make room: the broker goes on by itself. After an error of the device replace the disk and "
    "restart the broker: it fetches from the leader what is missing. Copy a log with old messages "
    "with Kafka, or delete its topic.",
    ("log.dirs",),
    bad_disk,
)
RULES: Final = (WITHOUT_LEADER, ELSEWHERE, FENCED, BAD_DISK)
