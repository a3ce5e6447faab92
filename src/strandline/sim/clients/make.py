"""Lines of a plan to clients and operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from strandline.sim.clients.admin import AdminOperation
from strandline.sim.clients.admin_partitions import (
    CancelReassign,
    DeleteRecords,
    Describe,
    Elect,
    Reassign,
)
from strandline.sim.clients.admin_topics import (
    AddPartitions,
    AlterConfig,
    AlterDefaults,
    CreateTopic,
    DeleteTopic,
    RecreateTopic,
)
from strandline.sim.clients.admin_transactions import AbortTransaction
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.consumer import Consumer
from strandline.sim.clients.copier import Copier
from strandline.sim.clients.ends import EndsWatcher
from strandline.sim.clients.garbage import GarbageClient
from strandline.sim.clients.group_member import GroupMember
from strandline.sim.clients.group_watch import GroupWatch
from strandline.sim.clients.intruder import Intruder
from strandline.sim.clients.producer import Producer
from strandline.sim.clients.times import TimesAsker
from strandline.sim.clients.transactional import Transactional
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import Action, ClientSpec
from strandline.sim.scenarios.script import BadScript

Maker: TypeAlias = Callable[[ClientWorld, ClientSpec, ClientOptions, GroupWatch], SimClient]


def _alone(kind: Callable[[ClientWorld, ClientSpec, ClientOptions], SimClient]) -> Maker:
    return lambda world, spec, options, _: kind(world, spec, options)


_KINDS: Final[dict[str, Maker]] = {
    "producer": _alone(Producer),
    "consumer": _alone(Consumer),
    "ends": _alone(EndsWatcher),
    "times": _alone(TimesAsker),
    "garbage": _alone(GarbageClient),
    "intruder": _alone(Intruder),
    "group": GroupMember,
    "transactional": _alone(Transactional),
    "copier": _alone(Copier),
}

_OPERATIONS: Final[dict[str, type[AdminOperation]]] = {
    "create-topic": CreateTopic,
    "delete-topic": DeleteTopic,
    "recreate-topic": RecreateTopic,
    "add-partitions": AddPartitions,
    "alter-config": AlterConfig,
    "alter-defaults": AlterDefaults,
    "reassign": Reassign,
    "cancel-reassign": CancelReassign,
    "elect": Elect,
    "delete-records": DeleteRecords,
    "describe": Describe,
    "abort-transaction": AbortTransaction,
}
ADMIN_VERBS: Final = frozenset(_OPERATIONS)


def make_client(world: ClientWorld, spec: ClientSpec, watch: GroupWatch | None = None) -> SimClient:
    """The client of a line. Members of one group must share a `watch`. Raises `BadScript`."""
    maker = _KINDS.get(spec.kind)
    if maker is None:
        raise BadScript(f"'{spec}' is none of {', '.join(_KINDS)}.")
    options = ClientOptions(spec)
    client = maker(world, spec, options, watch or GroupWatch(world.schedule))
    options.check()
    return client


def make_operation(world: ClientWorld, name: str, action: Action) -> AdminOperation:
    """The operation of an action whose verb is one of `ADMIN_VERBS`. Raises `BadScript`."""
    return _OPERATIONS[action.verb](world, name, action)
