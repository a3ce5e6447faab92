"""A scenario that was played, as a document: every step with what each replica knew after it.

The document is plain JSON (`FORMAT`, `VERSION`), so that a terminal, a page and a file show the
same thing. This file knows the form; the playing is the player's.

    document   format, version, name, group, title, replicas, runs, is_recording (if it is one)
    run        policy, frames, broken, expected, unmet, as_expected, why (of some)
    frame      line, text, meaning, kind, notes, events, violations, unmet, time_ms, controller,
               replicas
    replica    name, role, cut_off, paused, leader_epoch, follows, log_start, last_stable,
               high_watermark, log_end, epochs [[epoch, start]], records [[offset, epoch, value]],
               in_sync, change, remote
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from strandline.replication.in_sync import Expanding, Shrinking
from strandline.sim.scenarios.meanings import meaning
from strandline.sim.scenarios.player import (
    COMMENT,
    EVENT,
    STATE,
    STEP,
    TITLE,
    UNMET,
    VIOLATION,
    Outcome,
    Player,
    TraceLine,
)
from strandline.sim.scenarios.policy import Policy, variants
from strandline.sim.scenarios.replica import Replica, name_of, names_of
from strandline.sim.scenarios.script import REPLICAS, BadScript, Script, Step
from strandline.sim.scenarios.world import World

FORMAT: Final = "strandline-play"
VERSION: Final = 1
RECORDS_MAX: Final = 64
"""A frame has so many of the newest records of each replica; more are not to be seen anyway."""

Json = dict[str, Any]

_FIELDS: Final = {EVENT: "events", VIOLATION: "violations", UNMET: "unmet"}


def document(script: Script, policies: Sequence[Policy] | None = None) -> Json:
    """Play a scenario of replicas under each policy and tell all of it.

    Without policies it is played under each that its header offers. Raises `BadScript`.
    """
    if script.world != REPLICAS:
        raise BadScript(
            f"{script.name} is of a whole cluster: 'strandline sim play' shows such scenarios."
        )
    runs = [Run(script, policy) for policy in (policies or variants(script))]
    for run in runs:
        run.play(script.steps)
    return as_document(script, [run.as_json() for run in runs])


def as_document(script: Script, runs: list[Json]) -> Json:
    """The document of a script that was played so far as `runs` say."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": script.name,
        "group": script.header.get("group", ""),
        "title": script.title,
        "replicas": [replica["name"] for replica in runs[0]["frames"][0]["replicas"]],
        "runs": runs,
    }


def load(path: Path) -> Json:
    """A document from a file. Raises `BadScript` for anything else."""
    try:
        found = json.loads(path.read_bytes())
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise BadScript(
                f"{path.name} is a document '{found['format']}' of version {found['version']}; "
                f"this plays '{FORMAT}' of version {VERSION}."
            )
        if not all(run["frames"] for run in found["runs"]):
            raise BadScript(f"Nothing was recorded in {path.name}.")
    except OSError as error:
        raise BadScript(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadScript(f"{path.name} is no document that can be played.") from None
    shown: Json = found
    return shown


def moments(shown: Json) -> list[int]:
    """The lines at which something is to be seen in any of the runs, in order: the time line."""
    return sorted({frame["line"] for run in shown["runs"] for frame in run["frames"]})


def frame_at(run: Json, line: int) -> Json:
    """What a run shows at a line of the script: its last frame that is not behind it."""
    shown: Json = run["frames"][0]
    for frame in run["frames"]:
        if frame["line"] > line:
            break
        shown = frame
    return shown


class Run:
    """One script under one policy, played step by step, and what was to be seen.

    Lines of the trace are gathered into frames; comments belong to the step that follows them.
    Raises `BadScript`, after which it is of no more use.
    """

    def __init__(self, script: Script, policy: Policy) -> None:
        self._player = Player(script, policy)
        self._offered = [*script.offered]
        self._chosen = dict(policy)
        self._notes: list[str] = []
        self.frames: list[Json] = []
        for line in self._player.begin():
            self._take(line)

    @property
    def world(self) -> World:
        """What is there now."""
        return self._player.world

    def play(self, steps: Sequence[Step]) -> None:
        """Play these, which follow what was played."""
        for step in steps:
            for line in self._player.play_step(step):
                self._take(line, meaning(step))

    def as_json(self) -> Json:
        """All of it, with how it has ended if nothing follows."""
        outcome = self._player.outcome
        *before, last = self.frames
        named = {name: outcome.policy[name] for name in self._offered}
        return {
            "policy": named | self._chosen,
            "frames": [*before, {**last, "notes_after": self._notes}],
            **_ending(outcome),
        }

    def _take(self, line: TraceLine, means: str = "") -> None:
        if line.kind == COMMENT:
            if line.text.strip("# "):
                self._notes.append(line.text.lstrip("# "))
        elif line.kind in (TITLE, STEP):
            self.frames.append(_empty(line, means, self._notes, self.world))
            self._notes = []
        elif line.kind in _FIELDS:
            self.frames[-1][_FIELDS[line.kind]].append(line.text.strip().lstrip(">! "))
        elif line.kind == STATE:
            self.frames[-1] |= _state(self.world)


def _ending(outcome: Outcome) -> Json:
    return {
        "broken": dict(sorted(outcome.broken.items())),
        "expected": sorted(outcome.expected),
        "unmet": list(outcome.unmet),
        "as_expected": outcome.is_as_expected,
    }


def _empty(line: TraceLine, means: str, notes: list[str], world: World) -> Json:
    is_expectation = line.text.startswith("expect ")
    return {
        "line": line.number,
        "text": line.text.lstrip("# "),
        "meaning": means,
        "kind": "expect" if is_expectation else line.kind,
        "notes": notes,
        "events": [],
        "violations": [],
        "unmet": [],
        **_state(world),
    }


# -- What is known -----------------------------------------------------------------------------


def _state(world: World) -> Json:
    state = world.state
    return {
        "time_ms": world.now_ms,
        "controller": {
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "in_sync": list(state.in_sync),
            "eligible": list(state.eligible),
            "partition_epoch": state.partition_epoch,
        },
        "replicas": [_replica(replica) for replica in world.replicas.values()],
    }


def _named(replica: Replica, role: str) -> Json:
    return {
        "name": replica.name,
        "role": role,
        "cut_off": replica.is_cut,
        "paused": replica.is_paused,
    }


def _replica(replica: Replica) -> Json:
    if not replica.has_log:
        role = "idle" if replica.is_running else "down"
        return {**_named(replica, role), "records": []}
    log, leader = replica.log, replica.leader
    found: Json = {
        **_named(replica, "idle" if replica.role == "none" else replica.role),
        "leader_epoch": int(replica.leader_epoch),
        "follows": replica.leader_name,
        "log_start": int(log.log_start_offset),
        "last_stable": int(log.last_stable_offset),
        "high_watermark": int(log.high_watermark),
        "log_end": int(log.log_end_offset),
        "epochs": [[int(epoch), int(start)] for epoch, start in log.leader_epochs.entries],
        "records": [list(entry) for entry in replica.entries()[-RECORDS_MAX:]],
    }
    if leader is None:
        return found
    change = ""
    if isinstance(leader.in_sync, Expanding):
        change = f"+{name_of(leader.in_sync.joining)}"
    elif isinstance(leader.in_sync, Shrinking):
        change = f"-{names_of(leader.in_sync.leaving)}"
    progress = sorted(leader.progress.values(), key=lambda each: each.broker_id)
    return found | {
        "in_sync": list(names_of(leader.in_sync.members)),
        "change": change,
        "remote": {name_of(each.broker_id): int(each.log_end_offset) for each in progress},
    }
