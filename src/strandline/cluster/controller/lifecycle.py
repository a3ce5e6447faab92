"""The first steps of a cluster and of a broker: the skeleton of the tree, registration, election.

These operations are not fenced by the controller epoch: they are what makes a controller.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from random import Random
from typing import Final

from strandline.cluster.controller.decision import Decision, Refusal
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Check, Create, Delete, Operation, SessionId, SetData
from strandline.cluster.znodes import (
    ACL_SKELETON,
    TOKEN_SKELETON,
    BrokerNode,
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
    Endpoint,
    ProducerIdBlockNode,
    RegistrationNode,
    registration_path,
)
from strandline.cluster.znodes.registrations import REGISTRATIONS
from strandline.cluster.znodes.singles import ADOPTIONS
from strandline.errors import ErrorCode
from strandline.types import BrokerId, TopicPartition

SKELETON: Final = (
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/cluster",
    "/config",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/groups",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/isr_change_notification",
    *ACL_SKELETON,
    *TOKEN_SKELETON,
    "/log_dir_event_notification",
    ProducerIdBlockNode.path,
    "/strandline",
    ADOPTIONS,
    REGISTRATIONS,
)
"""Empty nodes that other operations take for granted, parents first."""

NO_CONTROLLER_YET: Final = 0


def bootstrap(
    existing: Container[str], *, random: Random, cluster_id: str | None = None
) -> tuple[Operation, ...]:
    """Make whatever is missing of the nodes that every cluster has; nothing if all are there.

    `existing` tells which paths the store has. A new cluster gets the given id (that of an opened
    log directory) or a random one; an existing cluster keeps its own.
    """
    contents = dict.fromkeys(SKELETON, b"")
    contents[ControllerEpochNode.path] = ControllerEpochNode(NO_CONTROLLER_YET).encode()
    if ClusterIdNode.path not in existing:
        name = cluster_id or uuid_text(random_uuid(random))
        contents[ClusterIdNode.path] = ClusterIdNode(name).encode()
    return tuple(Create(path, data) for path, data in contents.items() if path not in existing)


def register_broker(
    image: ClusterImage, node: BrokerNode, *, previous_session: SessionId | None = None
) -> tuple[Operation, ...]:
    """Register a broker under the session that carries this multi out.

    A registration that this same process left behind under `previous_session` is replaced
    (KAFKA-7165); one of another owner refuses the multi with `NodeExists`. The last result is a
    `DataSet` whose `created_zxid` is the broker epoch.
    """
    operations = [*remember_broker(image, node)]
    registered = image.brokers.get(node.broker_id)
    if registered is not None and registered.session == previous_session:
        operations.append(Delete(node.path))
    operations += [Create(node.path, ephemeral=True), SetData(node.path, node.encode(), 0)]
    return tuple(operations)


def unregister_broker(image: ClusterImage, broker_id: BrokerId) -> Decision[Refusal | None]:
    """Have the cluster forget a broker that is down, until it registers again.

    The result is None, or why not: BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST of a broker that
    runs, which would see to it at once that it is remembered again.
    """
    if broker_id in image.brokers:
        refusal = Refusal(
            ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is running: stop it before."
        )
        return Decision((refusal,))
    if broker_id not in image.registrations:
        refusal = Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker_id}.")
        return Decision((refusal,))
    return Decision((None,), (Delete(registration_path(broker_id)),))


def remember_broker(image: ClusterImage, node: BrokerNode) -> tuple[Operation, ...]:
    """Have the cluster remember the broker beyond its session; nothing if it does."""
    remembered = image.registrations.get(node.broker_id)
    registration = RegistrationNode.of(node)
    if remembered is None:
        return (Create(registration.path, registration.encode()),)
    registration = replace(registration, extra=remembered.extra)
    if registration == remembered:
        return ()
    return (SetData(registration.path, registration.encode()),)


def announce_shutdown(image: ClusterImage, broker_id: BrokerId) -> tuple[Operation, ...]:
    """Record that the broker is about to stop; nothing if that is known or it is gone.

    The controller then moves leadership away and takes the broker out of in-sync sets, except
    where no other broker could take over. `BadVersion` and `NoNode` mean that the broker registered
    anew meanwhile: decide again.
    """
    return _changed(image, broker_id, lambda node: replace(node, is_shutting_down=True))


def report_offline(
    image: ClusterImage, broker_id: BrokerId, offline: frozenset[TopicPartition]
) -> tuple[Operation, ...]:
    """Record which replicas of the broker lie on a failed disk; nothing if that is known.

    Refused as `announce_shutdown` is.
    """
    return _changed(image, broker_id, lambda node: replace(node, offline=offline))


def tell_endpoints(
    image: ClusterImage, broker_id: BrokerId, endpoints: tuple[Endpoint, ...]
) -> tuple[Operation, ...]:
    """Record by which addresses the broker is reached; nothing if that is known.

    Refused as `announce_shutdown` is.
    """
    return _changed(image, broker_id, lambda node: replace(node, endpoints=endpoints))


def _changed(
    image: ClusterImage, broker_id: BrokerId, change: Callable[[BrokerNode], BrokerNode]
) -> tuple[Operation, ...]:
    """The registration with a change; nothing if it is so already, or the broker is gone."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ()
    node = change(broker.node)
    return () if node == broker.node else (SetData(node.path, node.encode(), broker.version),)


def become_controller(
    image: ClusterImage, broker_id: BrokerId, *, now_ms: int
) -> tuple[Operation, ...]:
    """Become the controller and increment the epoch, under the session of the broker.

    `NodeExists` and `BadVersion` mean that another broker has it or was faster.
    """
    lock = Create(ControllerNode.path, ControllerNode(broker_id, now_ms).encode(), ephemeral=True)
    if image.controller_epoch is None:
        first = ControllerEpochNode(NO_CONTROLLER_YET + 1)
        return (lock, Create(ControllerEpochNode.path, first.encode()))
    epoch = ControllerEpochNode(image.controller_epoch.value + 1)
    return (
        lock,
        SetData(ControllerEpochNode.path, epoch.encode(), image.controller_epoch.version),
    )


def step_down(image: ClusterImage, broker_id: BrokerId) -> tuple[Operation, ...]:
    """Resign, if this broker is the controller; the term that ends is the image's."""
    if image.controller != broker_id or image.controller_epoch is None:
        return ()
    return (
        Check(ControllerEpochNode.path, image.controller_epoch.version),
        Delete(ControllerNode.path),
    )
