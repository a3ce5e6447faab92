"""The parts of a node, for what works on many of them and is none of them.

Routes make handlers of them, the metadata listener spreads changes over them, and the subjects of
Inspect tell people about them. None of these may know `Node`, which owns them and drives the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.config.alter import always
from strandline.config.broker import BrokerConfig
from strandline.errors import InvariantViolated
from strandline.node.authentication.authentication import Authentication
from strandline.node.background import Background
from strandline.node.client_quotas import ClientQuotas
from strandline.node.controller import Controller
from strandline.node.controller_loop import ControllerLoop
from strandline.node.fetchers import Fetchers
from strandline.node.group_access import GroupAccess
from strandline.node.in_sync_changes import InSyncChanges
from strandline.node.membership import Membership
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.peers import Peers
from strandline.node.purgatory import Purgatory
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.sharing.access import ShareAccess
from strandline.node.telemetry import Telemetry
from strandline.node.timers import Timers
from strandline.node.topic_creation import TopicCreation
from strandline.node.transaction_access import TransactionAccess
from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.node.authorization.authority import Authority
    from strandline.node.status.broker_document import Certificate, EventLoop, Handles


@dataclass(slots=True, kw_only=True, eq=False)
class NodeParts:
    """See the module. Only the driver's facts change."""

    broker_id: BrokerId
    authentication: Authentication
    outbox: Outbox
    timers: Timers
    purgatory: Purgatory
    metadata: Metadata
    settings: Settings
    replicas: Replicas
    telemetry: Telemetry
    peers: Peers
    fetchers: Fetchers
    controller: Controller
    membership: Membership
    controller_loop: ControllerLoop
    in_sync_changes: InSyncChanges
    creation: TopicCreation
    background: Background
    groups: GroupAccess
    transactions: TransactionAccess
    sharing: ShareAccess
    quotas: ClientQuotas
    authority: Authority | None = None
    """Who may do what; None without an authorizer."""
    handle_use: Callable[[], Handles] | None = None
    """Says who has how many of the process's handles, if the driver knows."""
    loop_use: Callable[[], EventLoop | None] | None = None
    """Says how long the rounds of the process's event loop take, if the driver knows."""
    certificates: Callable[[], list[Certificate]] | None = None
    """Says which certificates the listeners show, if the driver knows."""
    check_listeners: Callable[[BrokerConfig], None] = always
    """Says whether listeners can be with other settings, if the driver knows: raises
    `InvalidSetting`."""
    fault_control: str | None = None
    """Where the driver takes orders for faults, if it does."""

    def check(self, replicas: Iterable[Replica]) -> None:
        """See `Node.check`."""
        for replica in replicas:
            try:
                replica.check()
                self.fetchers.check(replica)
                self.in_sync_changes.check(replica)
            except InvariantViolated as error:
                raise self._violated(replica, error) from error
        self.controller_loop.check()
        self.purgatory.check()
        self.groups.check()
        self.transactions.check()
        self.sharing.check()

    def check_all(self) -> None:
        """`check` for all replicas, and whether their logs agree with themselves."""
        self.check(self.replicas)
        for replica in self.replicas:
            if replica.log.failure is None:
                try:
                    replica.log.check()
                except InvariantViolated as error:
                    raise self._violated(replica, error) from error

    def _violated(self, replica: Replica, error: InvariantViolated) -> InvariantViolated:
        sentence = f"{replica.topic_partition} on broker {self.broker_id}: {error}"
        return InvariantViolated(sentence, invariant=error.invariant)
