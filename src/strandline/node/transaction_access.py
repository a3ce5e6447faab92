"""What a node does for transactions, imported and made when first needed (see `group_access`)."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from strandline.cluster.features import TRANSACTION_VERSION, level_of
from strandline.cluster.image import ClusterImage
from strandline.node.controller import Controller
from strandline.node.group_access import GroupAccess
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.producer_ids import ProducerIds
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.node.marker_writing import MarkerWriter
    from strandline.node.transaction_host import TransactionHost
    from strandline.node.transaction_verification import TransactionVerifier


class TransactionAccess:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        replicas: Replicas,
        peers: Peers,
        timers: Timers,
        *,
        controller: Controller,
        groups: GroupAccess,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._replicas = replicas
        self._peers = peers
        self._timers = timers
        self._groups = groups
        self._broker_id = BrokerId(settings.broker.node_id)
        self._image: ClusterImage | None = None
        self._level = 0
        """The level of the feature in that image."""
        self.producer_ids = ProducerIds(controller, self._broker_id)

    @property
    def is_used(self) -> bool:
        """Whether the transaction coordinator has been needed yet."""
        return "host" in self.__dict__

    def check(self) -> None:
        """See `TransactionHost.check`."""
        if self.is_used:
            self.host.check()

    @property
    def is_deciding(self) -> bool:
        """Whether a transaction that is coordinated here is being ended."""
        return self.is_used and self.host.is_deciding

    @cached_property
    def writer(self) -> MarkerWriter:
        """Writes the ends of transactions into the partitions that are led here."""
        from strandline.node.marker_writing import MarkerWriter

        return MarkerWriter(self._replicas, self._groups)

    @cached_property
    def verifier(self) -> TransactionVerifier:
        """Asks coordinators about the transactions that write here."""
        from strandline.node.transaction_verification import TransactionVerifier

        return TransactionVerifier(
            self._metadata,
            self._settings,
            self._replicas,
            self._peers,
            self._timers,
            lambda: self.host,
        )

    def _version(self) -> int:
        """That of transactions in the cluster; asked for each record of their state."""
        image = self._metadata.image
        if image is not self._image:
            self._image, self._level = image, level_of(image, TRANSACTION_VERSION)
        return self._level

    @cached_property
    def host(self) -> TransactionHost:
        """The transaction coordinator."""
        from strandline.cluster.topic_names import TRANSACTION_STATE
        from strandline.node.marker_sending import MarkerSender
        from strandline.node.transaction_host import TransactionHost, transaction_settings
        from strandline.transactions.coordinator import TransactionCoordinator

        broker = self._settings.broker
        coordinator = TransactionCoordinator(
            transaction_settings(broker),
            partition_count=partial(
                self._metadata.partition_count,
                TRANSACTION_STATE,
                broker.transaction_state_log_num_partitions,
            ),
            version=self._version,
        )
        markers = MarkerSender(
            self._metadata, self._peers, self._timers, self.writer, self._broker_id
        )
        return TransactionHost(
            coordinator,
            self._replicas,
            self._timers,
            self.producer_ids,
            markers,
            broker.transaction_state_log_load_buffer_size,
        )
