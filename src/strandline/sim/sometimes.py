"""Proof that interesting states were reached: a test that never gets there tests nothing.

`Sometimes` watches the metadata and the nodes and counts; at the end the clients, the checkers, the
network, the disks and the faults add what they counted. A sweep shows which names stayed at zero in
all its seeds. Names are sentences without a subject that one can read in a table.

The states of the metadata and of replicas stand in `sometimes_metadata` and `sometimes_replicas`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.errors import StrandlineError
from strandline.sim.checkers.checkers import Checkers
from strandline.sim.clients.make import ADMIN_VERBS
from strandline.sim.clients.workload import Workload
from strandline.sim.faults.nemesis import VERBS
from strandline.sim.faults.scene import Scene
from strandline.sim.machine import Machine
from strandline.sim.observer import Ending
from strandline.sim.silent import Silent
from strandline.sim.sometimes_metadata import METADATA_STATES, MetadataStates
from strandline.sim.sometimes_replicas import REPLICA_STATES, ReplicaStates
from strandline.sim.world import World
from strandline.storage.compaction.plan import CleaningResult

LIFE_STATES: Final = (
    "clean start",
    "start after a crash",
    "start that failed",
    "crash while starting",
    "recovery cut the end of a log",
    "recovery found a damaged file",
    "log directory offline at start",
    "log set aside as a stray",
    "log gone after a clean stop",
    "lossy end",
)
CLEANING_STATES: Final = (
    "log compacted",
    "compaction given up",
    "compaction ends early, for want of memory",
    "swap finished by a start",
    "compaction undone by a start",
)
TRANSACTION_STATES: Final = (
    "transaction committed",
    "transaction aborted",
    "transactional id taken over",
    "transactional producer PRODUCER_FENCED",
    "dies in a commit",
)
"""What the clients count of transactions."""
GROUP_STATES: Final = (
    "member gives up some",
    "member loses all",
)
"""What members of the consumer protocol count."""
SHARE_STATES: Final = (
    "share ack NONE",
    "share record again",
    "share ack INVALID_RECORD_STATE",
    "worker vanishes",
)
"""What members of share groups count."""
_UNDRAWN: Final = frozenset({"abort-transaction", "alter-group"})
"""What no seed draws: an operator does it where it is needed, or it belongs to the beginning."""
FAULT_STATES: Final = tuple(
    f"fault {verb}" for verb in (*VERBS, *ADMIN_VERBS) if verb not in _UNDRAWN
)
STATES: Final = (
    *METADATA_STATES,
    *REPLICA_STATES,
    *LIFE_STATES,
    *CLEANING_STATES,
    *TRANSACTION_STATES,
    *GROUP_STATES,
    *SHARE_STATES,
    *FAULT_STATES,
)
"""All names that are known beforehand, and so can be missed."""


class Sometimes(Silent):
    """Counts for one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._found: Counter[str] = Counter()
        self._metadata = MetadataStates(world, self._found)
        self._replicas = ReplicaStates(world, self._found)

    def node_acted(self, machine: Machine) -> None:
        """See `Observer`."""
        if machine.node.purgatory.is_settled:
            self._replicas.look(machine)

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:  # noqa: ARG002
        """See `Observer`."""
        self._metadata.look(image)

    def started(self, machine: Machine) -> None:
        """See `Observer`."""
        found = self._found
        found["clean start" if machine.last_start_was_clean else "start after a crash"] += 1
        for notice in machine.start_notices:
            if notice.startswith("Cut "):
                found["recovery cut the end of a log"] += 1
            elif " is offline" in notice:
                found["log directory offline at start"] += 1
            elif " is not one that the metadata gives" in notice:
                found["log set aside as a stray"] += 1
            elif notice.startswith("The log of ") and " gone" in notice:
                found["log gone after a clean stop"] += 1
            elif notice.startswith("Finished the compaction "):
                found["swap finished by a start"] += 1
            elif "its compaction was not finished" in notice:
                found["compaction undone by a start"] += 1
            elif not machine.last_start_was_clean:
                found["recovery found a damaged file"] += 1
        self._replicas.forget(machine)

    def round_ended(self, machine: Machine, error: StrandlineError | None) -> None:
        """See `Observer`."""
        del machine
        self._found["log compacted" if error is None else "compaction given up"] += 1

    def cleaned(self, machine: Machine, result: CleaningResult) -> None:
        """See `Observer`."""
        del machine
        if result.stats.map_is_full and result.is_last:
            self._found["compaction ends early, for want of memory"] += 1

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """See `Observer`."""
        if lossy:
            self._found["lossy end"] += 1
        if how == "failed":
            self._found["start that failed"] += 1
        elif machine.last_node is None:
            self._found["crash while starting"] += 1
        self._replicas.forget(machine)

    def counters(
        self, workload: Workload, scene: Scene, checkers: Checkers | None
    ) -> Mapping[str, int]:
        """Everything, by name: first all known names, then what else was counted."""
        world = self._world
        found = {name: self._found[name] for name in STATES}
        counted = (*TRANSACTION_STATES, *GROUP_STATES, *SHARE_STATES)
        found |= {name: workload.counters[name] for name in counted}
        found |= {f"fault {verb}": count for verb, count in sorted(scene.done.items())}
        sources: dict[str, Mapping[str, int]] = {
            "client": workload.counters,
            "checker": {} if checkers is None else checkers.counters,
            "network": asdict(world.network.counts),
        }
        for source, counts in sources.items():
            found |= {f"{source}: {name}": counts[name] for name in sorted(counts)}
        for machine in world.machines.values():
            for name, count in sorted(machine.disk.happened.items()):
                key = f"disk: {name}"
                found[key] = found.get(key, 0) + count
        return found
