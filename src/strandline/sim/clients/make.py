"""Lines of a plan to clients and operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from strandline.sim.clients.admin import AdminOperation
from strandline.sim.clients.admin_log_dirs import MoveLog
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
    AlterGroup,
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
from strandline.sim.clients.keeper import Keeper
from strandline.sim.clients.offsets_reader import OffsetsReader
from strandline.sim.clients.producer import Producer
from strandline.sim.clients.share_member import ShareMember
from strandline.sim.clients.share_watch import ShareWatch
from strandline.sim.clients.times import TimesAsker
from strandline.sim.clients.token_user import TokenUser
from strandline.sim.clients.transactional import Transactional
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import Action, ClientSpec
from strandline.sim.scenarios.script import BadScript


@dataclass(frozen=True, slots=True)
class Watches:
    """The options that members of one group share."""

    groups: GroupWatch
    shares: ShareWatch

    @classmethod
    def of(cls, world: ClientWorld) -> Watches:
        """New ones."""
        return cls(GroupWatch(world.schedule), ShareWatch(world))


Maker: TypeAlias = Callable[[ClientWorld, ClientSpec, ClientOptions, Watches], SimClient]


def _alone(kind: Callable[[ClientWorld, ClientSpec, ClientOptions], SimClient]) -> Maker:
    return lambda world, spec, options, _: kind(world, spec, options)


def _in_group(
    world: ClientWorld, spec: ClientSpec, options: ClientOptions, watches: Watches
) -> SimClient:
    return GroupMember(world, spec, options, watches.groups)


def _of_group(
    world: ClientWorld, spec: ClientSpec, options: ClientOptions, watches: Watches
) -> SimClient:
    return OffsetsReader(world, spec, options, watches.groups)


def _in_share_group(
    world: ClientWorld, spec: ClientSpec, options: ClientOptions, watches: Watches
) -> SimClient:
    return ShareMember(world, spec, options, watches.shares)


_KINDS: Final[dict[str, Maker]] = {
    "producer": _alone(Producer),
    "consumer": _alone(Consumer),
    "ends": _alone(EndsWatcher),
    "times": _alone(TimesAsker),
    "garbage": _alone(GarbageClient),
    "intruder": _alone(Intruder),
    "tokens": _alone(TokenUser),
    "group": _in_group,
    "offsets": _of_group,
    "share": _in_share_group,
    "keeper": _alone(Keeper),
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
    "alter-group": AlterGroup,
    "reassign": Reassign,
    "cancel-reassign": CancelReassign,
    "move-log": MoveLog,
    "elect": Elect,
    "delete-records": DeleteRecords,
    "describe": Describe,
    "abort-transaction": AbortTransaction,
}
ADMIN_VERBS: Final = frozenset(_OPERATIONS)


def make_client(world: ClientWorld, spec: ClientSpec, watches: Watches | None = None) -> SimClient:
    """The client of a line. Members of one group must share `watches`. Raises `BadScript`."""
    maker = _KINDS.get(spec.kind)
    if maker is None:
        raise BadScript(f"'{spec}' is none of {', '.join(_KINDS)}.")
    options = ClientOptions(spec)
    client = maker(world, spec, options, watches or Watches.of(world))
    options.check()
    return client


def make_operation(world: ClientWorld, name: str, action: Action) -> AdminOperation:
    """The operation of an action whose verb is one of `ADMIN_VERBS`. Raises `BadScript`."""
    return _OPERATIONS[action.verb](world, name, action)
