"""The fault catalogue of the specification, F-01 to F-72, and what makes each of them here.

Three kinds of rows: faults that actions of a plan make (an example line each), faults that come by
themselves in what is simulated, and faults of features that do not exist yet.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One fault."""

    fault: str
    what: str
    made_by: tuple[str, ...] = ()
    """Actions as they stand in a plan, without their times; several: together or one of them."""
    nature: str = ""
    """How it comes by itself."""
    missing: str = ""
    """The feature without which there is no such fault."""
    remark: str = ""


CATALOGUE: Final = (
    Row("F-01", "kill of a follower", ("kill follower:t-0 down=1s",)),
    Row("F-02", "kill of the leader with unreplicated records", ("kill leader:t-0 down=1s",)),
    Row(
        "F-03",
        "kill between append and answer",
        ("crash-in leader:t-0 operations=3 how=kill",),
        remark="the drawn order of simultaneous events puts kills there as well",
    ),
    Row("F-04", "power loss of one in-sync replica", ("power-cut follower:t-0 mode=any",)),
    Row(
        "F-05",
        "power loss of one less than min.insync.replicas",
        ("power-cut leader:t-0 mode=none",),
        remark="the budget allows exactly so many that are not made good",
    ),
    Row("F-06", "power loss of all", ("power-cut all mode=any",), remark="only beyond tolerance"),
    Row(
        "F-07",
        "last replica standing",
        ("last-standing t-0 for=8s after=4s",),
        remark='seen as "leader is elected out of the eligible"',
    ),
    Row("F-08", "crash during recovery, several times", ("crash-in-recovery 1 times=3",)),
    Row(
        "F-09",
        "crash between the clean marker and the end of loading",
        ("stop 1 down=5ms", "crash-in 1 operations=2 how=kill"),
    ),
    Row("F-10", "crash inside a clean shutdown", ("crash-in 1 operations=4", "stop 1 down=1s")),
    Row("F-11", "restart faster than the session ends", ("kill 1 down=3ms",)),
    Row(
        "F-12",
        "restart with emptied disks, or with older ones",
        ("swap-disk 1 down=3ms", "restore-disk 1 after=4s down=1s last=yes"),
    ),
    Row(
        "F-13",
        "long pause of the leader",
        ("pause leader:t-0 for=8s", "suspend all for=30s"),
        remark="a machine that is suspended has a monotonic clock that stood still",
    ),
    Row("F-14", "pause of the controller in a change", ("pause controller for=8s when=proposal",)),
    Row("F-15", "slow or paused follower", ("pause follower:t-0 for=3s", "slow-link 2 factor=9")),
    Row(
        "F-16",
        "controller dies after its write",
        ("kill controller when=in-sync-change",),
        remark="nothing has to be sent after it: brokers follow the store",
    ),
    Row(
        "F-17",
        "controller dies after telling some",
        ("kill controller when=epoch-change", "store-lag 2 lag=500ms for=2s"),
        remark="some brokers hear of an epoch later than others",
    ),
    Row("F-18", "rolling restart under load", ("rolling-restart every=2s down=500ms",)),
    Row(
        "F-19",
        "rolling restart during a reassignment",
        ("reassign t-0 2,3,1", "rolling-restart every=1s down=200ms"),
    ),
    Row(
        "F-20",
        "death at each step of a reassignment",
        ("reassign t-0 2,3", "kill controller when=in-sync-change"),
    ),
    Row("F-21", "two processes on one log directory", ("twin 1",)),
    Row("F-22", "leader cut off with a minority", ("isolate leader:t-0 store=yes for=8s",)),
    Row("F-23", "leader cut from followers, not from the store", ("isolate leader:t-0 for=8s",)),
    Row("F-24", "leader cut from the store only", ("store-cut leader:t-0 for=8s",)),
    Row(
        "F-25",
        "requests arrive, answers are lost",
        ("cut-one-way leader:t-0 follower:t-0 for=3s",),
        remark='seen as "follower fetches and makes no progress"',
    ),
    Row("F-26", "answers would arrive, requests are lost", ("partition 1 one-way=out for=3s",)),
    Row("F-27", "partial partition", ("cut 1 2 for=3s", "ring for=3s")),
    Row(
        "F-28",
        "duplicate delivery between brokers",
        ("reset leader:t-0", "store-lose controller applied=yes"),
        remark="what is repeated after a lost answer: fetches, AlterPartition, store writes",
    ),
    Row("F-29", "reordering between connections", ("clog 1 2 for=500ms", "reset 1 2")),
    Row(
        "F-30",
        "late order to delete a replica",
        nature="there are no such orders; what is left of it is late news of a partition that was "
        "moved away and back: store-lag with reassign",
    ),
    Row("F-31", "reset in the middle of a frame", ("reset 1 2",)),
    Row("F-32", "clogged links, swizzled", ("clog 1 for=1s", "swizzle for=1s step=100ms")),
    Row("F-33", "bit flips in flight", ("flip 1 2 where=records", "flip 1 2 where=size")),
    Row(
        "F-34",
        "slow readers, requests beyond the limits",
        ("stall 1 client:p1 for=2s",),
        remark="a range of a file that was cut while it waited ends the connection (note 0022)",
    ),
    Row("F-35", "sessions end, of one or of all", ("store-expire all", "store-expire leader:t-0")),
    Row("F-36", "connection lost after a write applied", ("store-lose 1 applied=yes",)),
    Row("F-37", "connection lost before a write", ("store-lose 1 applied=no", "store-reset 1")),
    Row("F-38", "news late and coalesced", ("store-lag 1 lag=500ms for=2s torn=yes",)),
    Row("F-39", "stale, monotone reads", ("store-lag 1 lag=50ms for=2s",)),
    Row("F-40", "store out of service", ("store-down for=3s",)),
    Row(
        "F-41",
        "concurrent changes of one node",
        nature="leaders, the controller and administrators write the same nodes; the latency of "
        "the store and store-lag make it frequent",
    ),
    Row("F-42", "torn last batch", ("power-cut 1 mode=torn", "crash-in 1 operations=5")),
    Row("F-43", "lost page cache, suffix", ("power-cut 1 mode=prefix",)),
    Row("F-44", "lost page cache, hole", ("power-cut 1 mode=hole",)),
    Row(
        "F-45",
        "fsync fails once, then lies",
        (
            "fsync-fail 1 path=.log for=2s",
            "fsync-fail 1 path=.log error=full for=2s",
        ),
    ),
    Row(
        "F-46",
        "EIO on append",
        ("disk-fail 1 operation=append path=.log", "disk-broken 1 dir=0"),
        remark="the directory goes offline, its replicas with it, and leadership moves away "
        "(note 0011)",
    ),
    Row("F-47", "EIO on read", ("disk-fail 1 operation=read path=.log count=1",)),
    Row(
        "F-48",
        "no space left, or no handle of a file",
        ("disk-full 1 path=.index for=2s", "starve 1 percent=30 for=2s"),
    ),
    Row("F-49", "slow disk", ("disk-slow 1 per=200ms for=2s", "disk-slow all per=30ms for=20s")),
    Row("F-50", "rot in records", ("rot 1 path=.log for=2s",), remark="a new disk follows"),
    Row(
        "F-51",
        "rot in indexes, snapshots, checkpoints",
        ("rot 1 path=.index for=2s", "tamper-checkpoint 1 path=recovery-point how=gone"),
    ),
    Row("F-52", "renames that were not durable", ("crash-in 1 operations=7", "power-cut 1")),
    Row(
        "F-53",
        "crash while the cleaner swaps",
        ("crash-in 1 operations=2 path=.swap", "crash-in 1 operations=1 path=.cleaned how=kill"),
    ),
    Row("F-54", "checkpoints that contradict", ("tamper-checkpoint 1 path=replication how=old",)),
    Row(
        "F-55",
        "segment file gone or cut, or all of a log or of a disk",
        (
            "lose-file 1 path=.log how=cut for=2s",
            "lose-directory 1 what=log down=500ms",
            "lose-directory 1 what=entry down=500ms",
        ),
    ),
    Row(
        "F-56",
        "wall clock days ahead",
        ("clock-jump 1 forward=2880min for=3s", "clock-jump all forward=60min for=20s"),
        remark="the second is a laptop that slept for an hour, with all that runs on it",
    ),
    Row("F-57", "wall clock set back", ("clock-jump all back=10min for=3s",)),
    Row("F-58", "drift, leap seconds", ("clock-drift 1 fast=50000 for=3s", "clock-leap all")),
    Row(
        "F-59",
        "timestamps from the far future or past",
        nature="producers send some (option strange-times)",
    ),
    Row(
        "F-60",
        "several elections, divergent tails",
        ("leader-dance t-0 times=4 every=300ms clog=yes", "election-storm t-0 times=4 every=300ms"),
    ),
    Row("F-61", "election storm", ("election-storm t-0 times=6 every=50ms down=20ms",)),
    Row(
        "F-62",
        "follower below the leader's start",
        ("pause follower:t-0 for=4s", "delete-records t-0 high-watermark"),
        remark='seen as "follower starts over at the leader\'s start"',
    ),
    Row(
        "F-63",
        "truncation, log start or fetch inside a batch",
        nature="batches have several records, delete-records cuts at any offset, and consumers "
        "begin anywhere",
    ),
    Row(
        "F-64",
        "in-sync change races an election",
        ("kill controller when=proposal", "store-lag controller lag=300ms for=2s"),
    ),
    Row(
        "F-65",
        "retries of idempotent producers",
        (
            "reset leader:t-0",
            "lose-file 1 path=.snapshot how=gone for=2s",
            "cut-one-way all clients for=2s",
        ),
        remark="the last one in front of a stop of all; not with ids that expire before their "
        "producers give up: then Kafka repeats too",
    ),
    Row(
        "F-66",
        "transaction coordinator fails over",
        ("kill transactions:x1 down=1s when=decision wait=1s",),
    ),
    Row("F-67", "group coordinator fails over", ("kill coordinator:g down=1s",)),
    Row("F-68", "topic deleted and made anew", ("recreate-topic t", "delete-topic extra")),
    Row(
        "F-69",
        "settings change live",
        ("alter-config t min.insync.replicas=1", "alter-defaults min.insync.replicas=2"),
        remark="also cleanup.policy, compression.type, max.message.bytes, retention, preallocate, "
        "flush.ms, jitter, indexes, the delay of deletions and the lags of compaction; in the "
        "profile beyond unclean.leader.election.enable",
    ),
    Row(
        "F-70",
        "compaction beside everything else",
        nature="every fifth topic of a seed is compacted, with small segments and tombstones",
    ),
    Row("F-71", "move between log directories", ("move-log t-0 1 dir=1",)),
    Row("F-72", "garbage", nature="a client of the kind garbage, with batches that lie"),
)


def as_table() -> str:
    """The catalogue for a page: what makes each fault."""
    lines = ["| fault | | made by |", "|---|---|---|"]
    lines += [f"| {row.fault} | {row.what} | {_cause(row)} |" for row in CATALOGUE]
    return "\n".join(lines)


def _cause(row: Row) -> str:
    if row.missing:
        return f"not applicable yet: {row.missing} is missing"
    cause = ", ".join(f"`{action}`" for action in row.made_by) or row.nature
    return f"{cause}; {row.remark}" if row.remark else cause
