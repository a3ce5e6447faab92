"""Rules about logs that move between the log directories of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import ErrorCode
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence


def log_moves(scene: Scene) -> Iterator[Finding]:
    """Logs on their way to another directory, and what was refused."""
    moves = scene.node.background.moves
    for replica in scene.hosted():
        move = moves.find(replica.topic_partition)
        if move is None:
            continue
        cause = f"its log is being copied to {move.directory.path}"
        if move.problem is not None:
            cause = f"its log does not get to {move.directory.path}: {move.problem}"
        yield Finding(
            str(replica.topic_partition),
            cause,
            move.began_ms,
            (
                f"the copy ends at {move.log.log_end_offset}, {max(0, move.copy.lag)} offsets "
                f"behind; {move.log.size_bytes} bytes are there",
            ),
        )
    for refusal in scene.refusals(ErrorCode.LOG_DIR_NOT_FOUND):
        yield Finding(
            str(refusal.about),
            "it was to move to a directory that this broker does not have",
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
        )


RULES: Final = (
    Rule(
        "log-moves",
        "A log moves between the log directories of its broker",
        Scope.PARTITION,
        (ErrorCode.LOG_DIR_NOT_FOUND,),
        "An operator has asked for it (AlterReplicaLogDirs). The log is copied in slices while it "
        "is served from where it lies; when the copy has all of it, it takes its place. Meanwhile "
        "the log is not compacted, and takes its room in both directories.",
        "Nothing: it ends by itself. A move back to where the log lies calls it off. If it takes "
        "long, look at the throttle; if it does not go on, at the disk it goes to.",
        ("log.dirs", "replica.alter.log.dirs.io.max.bytes.per.second"),
        log_moves,
    ),
)
