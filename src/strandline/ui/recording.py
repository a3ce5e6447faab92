"""A recording of one partition of a live cluster: a document that plays like a scenario.

What the brokers say of the partition is looked at again and again; whenever it differs from what
was seen before, a frame is added: what each replica has, and what changed, with the reason that
the brokers give. The form is that of `sim.scenarios.documents`, with moments in place of lines of a
script. This file knows status documents and frames, no sockets and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from strandline.client.inspection import ByBroker, Document, answers_of
from strandline.sim.scenarios.documents import FORMAT, RECORDS_MAX, VERSION
from strandline.types import BrokerId, TopicPartition

Json = dict[str, Any]

FRAMES_MAX: Final = 20_000
_SILENT: Final = "does not answer"


class Recording:
    """See the module. `add` what the brokers say; `document` is what there is so far."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._frames: list[Json] = []
        self._changes_seen: set[tuple[object, ...]] = set()
        self._is_first = True

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def is_full(self) -> bool:
        """Whether no more frames are taken: a recording is to be looked at by people."""
        return len(self._frames) >= FRAMES_MAX

    def add(self, by_broker: ByBroker, *, wall_ms: int) -> bool:
        """Take a look; whether anything was new."""
        answers = answers_of(by_broker)
        known = [self._metadata(each) for each in answers.values()]
        states = [each for each in known if each is not None]
        if not states:
            return False
        newest = max(states, key=lambda each: (each["leader_epoch"], each["partition_epoch"]))
        replicas = [self._replica(broker, answers.get(broker)) for broker in newest["replicas"]]
        events = self._events(answers)
        shown: Json = {"controller": _controller(newest), "replicas": replicas}
        before = self._frames[-1] if self._frames else None
        if before is not None:
            events += _comings_and_goings(before["replicas"], replicas)
            if not events and all(before[name] == each for name, each in shown.items()):
                return False
        self._frames.append(
            {
                "line": len(self._frames),
                "text": _moment(wall_ms),
                "kind": "step" if self._frames else "title",
                "notes": [],
                "events": events,
                "violations": [],
                "unmet": [],
                "time_ms": wall_ms,
                **shown,
            }
        )
        return True

    def document(self) -> Json:
        """All of it, as `strandline play` and the page show it."""
        names = {replica["name"]: None for f in self._frames for replica in f["replicas"]}
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": str(self._partition),
            "title": f"{self._partition}, recorded",
            "is_recording": True,
            "replicas": list(names),
            "runs": [
                {
                    "policy": {},
                    "frames": self._frames,
                    "broken": {},
                    "expected": [],
                    "unmet": [],
                    "as_expected": True,
                }
            ],
        }

    def _metadata(self, document: Document) -> Json | None:
        found: Json | None = next(
            (each for each in document["partitions"] if self._is_of(each)), None
        )
        return found

    def _replica(self, broker: BrokerId, document: Document | None) -> Json:
        down: Json = {"name": str(broker), "role": "down", "cut_off": False, "records": []}
        if document is None:
            return down
        found = next((each for each in document["replicas"] if self._is_of(each)), None)
        if found is None:
            return down
        epochs = [[each["epoch"], each["start_offset"]] for each in found["epochs"]]
        shown: Json = {
            "name": str(broker),
            "role": "idle" if found["role"] == "none" else found["role"],
            "cut_off": not document["registered"],
            "leader_epoch": found["leader_epoch"],
            "follows": None if found["role"] == "leader" else _name(found["leader"]),
            "log_start": found["log_start_offset"],
            "high_watermark": found["high_watermark"],
            "log_end": found["log_end_offset"],
            "epochs": epochs,
            "records": _cells(found["log_start_offset"], found["log_end_offset"], epochs),
        }
        if (leading := found["leading"]) is None:
            return shown
        sets = leading["in_sync"], leading["maximal"]
        return shown | {
            "in_sync": [str(each) for each in sets[0]],
            "change": "".join(f"+{each}" for each in sets[1] if each not in sets[0]),
            "remote": {
                str(each["broker"]): each["log_end_offset"]
                for each in leading["followers"]
                if each["log_end_offset"] is not None
            },
        }

    def _events(self, answers: Mapping[BrokerId, Document]) -> list[str]:
        """Each change once, however many brokers report it; at the first look nothing is new."""
        found: list[str] = []
        for document in answers.values():
            for each in document["changes"]:
                if each["topic"] is not None and not self._is_of(each):
                    continue
                key = (each["kind"], each["epoch"], *each["before"], None, *each["after"])
                if key in self._changes_seen:
                    continue
                self._changes_seen.add(key)
                if not self._is_first:
                    found.append(_sentence(each))
        self._is_first = False
        return found

    def _is_of(self, facts: Json) -> bool:
        return (facts["topic"], facts["partition"]) == self._partition


def _sentence(change: Json) -> str:
    what = change["kind"].replace("_", " ")
    before, after = (" ".join(map(str, change[name])) or "none" for name in ("before", "after"))
    unclean = ", unclean" if change["unclean"] else ""
    return f"{what} {before} → {after}{unclean}: {change['reason']}"


def _comings_and_goings(before: list[Json], after: list[Json]) -> list[str]:
    earlier = {replica["name"]: replica["role"] for replica in before}
    found = []
    for replica in after:
        name, role = replica["name"], replica["role"]
        if role == "down" and earlier.get(name, "down") != "down":
            found.append(f"broker {name} {_SILENT}")
        if role != "down" and earlier.get(name) == "down":
            found.append(f"broker {name} answers again")
    return found


def _controller(state: Json) -> Json:
    return {
        "leader": _name(state["leader"]),
        "leader_epoch": state["leader_epoch"],
        "in_sync": [str(each) for each in state["in_sync"]],
        "eligible": [str(each) for each in state["eligible"]],
        "partition_epoch": state["partition_epoch"],
    }


def _cells(start: int, end: int, epochs: list[list[int]]) -> list[list[object]]:
    """The newest offsets with their leader epochs; the records' contents are left out."""
    cells: list[list[object]] = []
    for offset in range(max(start, end - RECORDS_MAX), end):
        epoch = max((each[0] for each in epochs if each[1] <= offset), default=0)
        cells.append([offset, epoch, str(offset)])
    return cells


def _name(broker: int | None) -> str | None:
    return None if broker is None else str(broker)


def _moment(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
