"""All rules of one world, made once and shared by the checkers that call them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.sim.checkers.answer_rules import ServingRules, TimeRules
from strandline.sim.checkers.cluster import Cluster
from strandline.sim.checkers.commitment import Commitment
from strandline.sim.checkers.compaction_rules import CompactionRules
from strandline.sim.checkers.metadata_rules import MetadataWatch
from strandline.sim.checkers.node_rules import NodeRules
from strandline.sim.checkers.partition_model import PartitionModels
from strandline.sim.checkers.recovery_rules import RecoveryRules
from strandline.sim.checkers.replica_rules import ReplicaRules
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.storage_rules import StorageRules
from strandline.sim.checkers.violations import Findings

if TYPE_CHECKING:
    from strandline.sim.world import World


@dataclass(frozen=True, slots=True)
class Rules:
    """See the module. Each file says which invariants it is about."""

    findings: Findings
    scope: Scope
    partitions: PartitionModels
    commitment: Commitment
    metadata: MetadataWatch
    replica: ReplicaRules
    recovery: RecoveryRules
    serving: ServingRules
    node: NodeRules
    storage: StorageRules
    times: TimeRules
    compaction: CompactionRules

    @classmethod
    def of(cls, world: World, exceeds_budget: Callable[[], bool]) -> Rules:
        """The rules for a world."""

        def now_us() -> int:
            return world.schedule.now_us

        findings = Findings(now_us, world.note)
        compaction = CompactionRules(findings)
        partitions = PartitionModels(findings)
        cluster = Cluster(world.machines)
        scope = Scope(exceeds_budget)
        commitment = Commitment(cluster, findings, scope)
        return cls(
            findings,
            scope,
            partitions,
            commitment,
            MetadataWatch(cluster, findings, partitions, commitment, scope, now_us),
            ReplicaRules(findings),
            RecoveryRules(findings, compaction),
            ServingRules(findings, scope),
            NodeRules(findings),
            StorageRules(findings),
            TimeRules(findings, partitions),
            compaction,
        )
