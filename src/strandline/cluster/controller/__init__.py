"""What the controller decides: pure functions of the metadata image and a request.

Each decision gives results, one per item of the request, and the operations that make them true,
to be written as one multi. Nothing has happened until that multi is done: if the store refuses it
(`store.MultiRefused`), another broker was faster, and the request is decided again from an image
that has caught up. Every multi checks the controller epoch, so that a controller which lost its
term cannot write. Randomness and time are arguments.

Requests say what a client wants; `reconcile` says what should be so anyway, now that brokers came
and went: who leads, who is in sync, which reassignment is complete. It needs no memory.
"""

from __future__ import annotations

from strandline.cluster.controller.adoption import (
    Adoption,
    FoundPartition,
    adopt_partitions,
    strays,
)
from strandline.cluster.controller.alter_acls import create_acls, delete_acls, matching_acls
from strandline.cluster.controller.alter_configs import (
    ConfigAlteration,
    ConfigReplacement,
    ConfigsAltered,
    alter_configs,
    incremental_alter_configs,
)
from strandline.cluster.controller.alter_quotas import QuotaChange, alter_quotas, stored_quotas
from strandline.cluster.controller.create_partitions import (
    PartitionsAdded,
    PartitionsSpec,
    create_partitions,
)
from strandline.cluster.controller.create_topics import TopicCreated, TopicSpec, create_topics
from strandline.cluster.controller.decision import Decision, Permit, Refusal, always
from strandline.cluster.controller.delete_topics import TopicDeleted, TopicReference, delete_topics
from strandline.cluster.controller.events import Event
from strandline.cluster.controller.foreign_writes import catch_up, has_no_room
from strandline.cluster.controller.in_sync_proposals import (
    InSyncProposal,
    PartitionAltered,
    alter_partitions,
)
from strandline.cluster.controller.internal_topics import as_brokers_make_it, internal_topic_spec
from strandline.cluster.controller.leader_elections import (
    Elected,
    ElectionKind,
    elect_leaders,
    imbalanced,
    rebalance,
)
from strandline.cluster.controller.lifecycle import (
    announce_shutdown,
    become_controller,
    bootstrap,
    register_broker,
    remember_broker,
    report_offline,
    step_down,
    tell_endpoints,
    unregister_broker,
)
from strandline.cluster.controller.looks import Looks
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from strandline.cluster.controller.reassignments import (
    OngoingReassignment,
    ReassignmentAnswer,
    ReassignmentRequest,
    alter_reassignments,
    list_reassignments,
)
from strandline.cluster.controller.reconciliation import (
    PARTITIONS_PER_MULTI,
    reconcile,
    touched_by,
)
from strandline.cluster.controller.state_writes import BYTES_PER_MULTI
from strandline.cluster.controller.update_features import (
    FeatureUpdate,
    UpdateKind,
    update_features,
)

__all__ = [
    "BYTES_PER_MULTI",
    "PARTITIONS_PER_MULTI",
    "Adoption",
    "ConfigAlteration",
    "ConfigReplacement",
    "ConfigsAltered",
    "ControllerPolicy",
    "Decision",
    "Elected",
    "ElectionKind",
    "Event",
    "FeatureUpdate",
    "FoundPartition",
    "InSyncProposal",
    "Looks",
    "OngoingReassignment",
    "PartitionAltered",
    "PartitionsAdded",
    "PartitionsSpec",
    "ProducerIdBlock",
    "QuotaChange",
    "ReassignmentAnswer",
    "ReassignmentRequest",
    "Permit",
    "Refusal",
    "TopicCreated",
    "TopicDeleted",
    "TopicReference",
    "TopicSpec",
    "UpdateKind",
    "adopt_partitions",
    "always",
    "allocate_producer_ids",
    "alter_configs",
    "alter_partitions",
    "alter_quotas",
    "alter_reassignments",
    "announce_shutdown",
    "as_brokers_make_it",
    "become_controller",
    "bootstrap",
    "catch_up",
    "create_acls",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_topics",
    "elect_leaders",
    "has_no_room",
    "imbalanced",
    "incremental_alter_configs",
    "internal_topic_spec",
    "list_reassignments",
    "matching_acls",
    "rebalance",
    "reconcile",
    "register_broker",
    "remember_broker",
    "report_offline",
    "step_down",
    "tell_endpoints",
    "stored_quotas",
    "strays",
    "touched_by",
    "unregister_broker",
    "update_features",
]
