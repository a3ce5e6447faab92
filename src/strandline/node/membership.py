"""This broker's membership of the cluster: registered while it lives, and how it takes its leave.

The registration is an ephemeral node, so it goes with the session that made it; whenever the image
does not show it, it is made again (level-triggered, whether at the start or after an expiry). A
stopping broker announces that in its registration: the controller then moves leadership away and
takes the broker out of in-sync sets, and the broker stops when that is done or takes too long. It
needs no request for this, since every broker follows the metadata.

This file must not know the log, or who decides about leaders.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from strandline.cluster.controller import (
    Decision,
    announce_shutdown,
    register_broker,
    remember_broker,
    report_offline,
    tell_endpoints,
)
from strandline.cluster.image import BrokerImage, ClusterImage, PartitionImage
from strandline.cluster.znodes import BrokerNode, Endpoint
from strandline.cluster.znodes.brokers import NO_PREVIOUS_EPOCH
from strandline.node.metadata import Metadata
from strandline.node.reconciler import Reconciler
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.types import Instant, Lives, TopicPartition

log = logging.getLogger(__name__)

NOT_REGISTERED: Final = -1
_STILL_ALIVE: Final = 2**63 - 1
"""The last epoch of a process that goes on: whatever was recorded of it since it began is true."""
_LIVES_MAX: Final = 16
"""So many processes are named. A record of one before them would be older than as many clean
restarts without a controller that looked."""


class Membership:
    """See the module."""

    def __init__(
        self, metadata: Metadata, settings: Settings, timers: Timers, registration: BrokerNode
    ) -> None:
        """`registration` is what this broker tells about itself: the time of its start with it,
        and `previous_epoch` if the process before it lost nothing."""
        self.broker_id = registration.broker_id
        self.broker_epoch: int = NOT_REGISTERED
        """Of this broker's newest registration. Never falls; -1 before the first."""
        self._metadata = metadata
        self._settings = settings
        self._timers = timers
        self._registration = registration
        self._told = {registration.endpoints}
        """All addresses that this process has registered with so far."""
        self._reconciler: Reconciler[str] = Reconciler(
            metadata, timers, "register with the cluster", self._decide, self._log_sentences
        )
        self._first_epoch: int = NOT_REGISTERED
        self._replaced_by: int = NOT_REGISTERED
        """The newest registration of another process under this id."""
        self._former_since = registration.previous_epoch
        self._former_lives = registration.lives
        self._is_leaving = False
        self._is_overdue = False
        self._was_ousted = False

    def start(self) -> None:
        """Begin to be a member."""
        self.follow()

    def follow(self) -> None:
        """The image has changed."""
        mine = self._mine()
        if mine is not None and self._is_own(mine):
            self.broker_epoch = mine.epoch
            self._was_ousted = False
            if self._first_epoch == NOT_REGISTERED:
                since = self._since
                self._first_epoch = mine.epoch if since == NOT_REGISTERED else since
        elif mine is not None:
            self._give_up_continuity(mine)
        self._reconciler.wake()

    def report_offline(self, partitions: frozenset[TopicPartition]) -> None:
        """Have the cluster know that the disk under these replicas, and no others, has failed."""
        if partitions != self._registration.offline:
            self._registration = replace(self._registration, offline=partitions)
            self._reconciler.wake()

    def advertise(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Have clients and other brokers know these addresses instead of the former ones."""
        if endpoints != self._registration.endpoints:
            self._told.add(endpoints)
            self._registration = replace(self._registration, endpoints=endpoints)
            self._reconciler.wake()

    def _give_up_continuity(self, other: BrokerImage) -> None:
        """Another process has been this broker: what the cluster knows of it is not true of us."""
        self._first_epoch, self._replaced_by = NOT_REGISTERED, other.epoch
        self._former_since, self._former_lives = NO_PREVIOUS_EPOCH, None
        self._registration = replace(
            self._registration, previous_epoch=NO_PREVIOUS_EPOCH, lives=None
        )

    def act(self, now: Instant) -> None:
        """Write what is missing. Once per turn."""
        self._reconciler.act(now)

    @property
    def oldest_valid_broker_epoch(self) -> int:
        """The oldest registration since which nothing that this broker held was lost.

        Not the newest one: sessions may have expired since the controller last looked, and it must
        recognise whichever it saw.
        """
        before = self._registration.previous_epoch
        return self._since if before == NO_PREVIOUS_EPOCH else before

    @property
    def _since(self) -> int:
        """The first registration of this process since which it goes on by itself.

        It may not have heard of it: if it is frozen for long, the session ends meanwhile. Others
        took it for a member under that epoch.
        """
        if self._first_epoch != NOT_REGISTERED:
            return self._first_epoch
        remembered = self._metadata.image.registrations.get(self.broker_id)
        own_ms = self._registration.timestamp_ms
        if remembered is None or remembered.process_ms != own_ms:
            return NOT_REGISTERED
        return remembered.zxid if remembered.zxid > self._replaced_by else NOT_REGISTERED

    @property
    def lives(self) -> Lives | None:
        """The processes of this broker of which nothing was lost, this one with them.

        None if that is not known: the one before, of version 0.1.0, told no more than since when.
        """
        return self._lives_until(self.broker_epoch)

    @property
    def unheard_ms(self) -> int | None:
        """When this process began, if it does not know of any registration of its own: others may
        have, and the next process can find that out (`RegistrationNode`)."""
        is_unheard = self._since == self._replaced_by == NOT_REGISTERED
        return self._registration.timestamp_ms if is_unheard else None

    def holds(self, epoch: int) -> bool:
        """Whether this process has everything that the broker held under that registration."""
        return self._again().holds(epoch)

    def _again(self) -> BrokerNode:
        """What to tell with the next registration of this process."""
        return replace(
            self._registration,
            previous_epoch=self.oldest_valid_broker_epoch,
            lives=self._lives_until(_STILL_ALIVE),
        )

    def _lives_until(self, last_epoch: int) -> Lives | None:
        since = self._since
        if since == NOT_REGISTERED:
            return self._former_lives
        former = self._former_lives
        if self._former_since == NO_PREVIOUS_EPOCH:
            former = ()
        elif former is None:
            former = ((self._former_since, since - 1),)
        return (*former, (since, max(since, last_epoch)))[-_LIVES_MAX:]

    @property
    def is_registered(self) -> bool:
        """Whether the image shows this very process as a live broker."""
        mine = self._mine()
        return mine is not None and self._is_own(mine)

    @property
    def is_leaving(self) -> bool:
        """Whether this broker is about to stop."""
        return self._is_leaving

    @property
    def is_fenced(self) -> bool:
        """Whether another process is registered under this broker's id."""
        mine = self._mine()
        return mine is not None and not self._is_own(mine)

    # -- Leaving -----------------------------------------------------------------------------

    def begin_shutdown(self, now: Instant) -> None:
        """Ask to be relieved of all leadership. Idempotent."""
        if self._is_leaving:
            return
        self._is_leaving = True
        broker = self._settings.broker
        limit_ms = (
            broker.controlled_shutdown_max_retries * broker.controlled_shutdown_retry_backoff_ms
        )
        if not broker.controlled_shutdown_enable or not self._others():
            limit_ms = 0
        self._is_overdue = limit_ms == 0
        if not self._is_overdue:
            self._timers.schedule(now.monotonic_ms + limit_ms, self._give_up_waiting)
            self._reconciler.wake()

    def may_stop(self, hosted: Iterable[PartitionImage]) -> bool:
        """Whether nothing is won by waiting longer. `hosted`: the partitions that have a replica
        on this broker."""
        if not self._is_leaving:
            return False
        mine = self._mine()
        if self._is_overdue or mine is None or not self._is_own(mine):
            return True
        if not mine.is_shutting_down:
            return False  # it cannot be known yet
        others = self._others()
        return not any(
            self.broker_id in (state.leader, *state.in_sync_replicas)
            and not others.isdisjoint(state.in_sync_replicas)
            for state in hosted
        )

    def _others(self) -> frozenset[int]:
        """Brokers that could take over."""
        return frozenset(
            broker_id
            for broker_id, broker in self._metadata.image.brokers.items()
            if broker_id != self.broker_id and not broker.is_shutting_down
        )

    def _give_up_waiting(self, now: Instant) -> None:
        del now
        if not self._is_overdue and self.is_registered:
            log.warning(
                "Broker %s stops although leadership could not be moved away in time",
                self.broker_id,
            )
        self._is_overdue = True

    # -- What is to be written ---------------------------------------------------------------

    def _decide(self, image: ClusterImage, now: Instant) -> Decision[str]:
        del now
        mine = image.brokers.get(self.broker_id)
        if mine is None:
            if self._is_leaving:
                return Decision(())
            return self._register(image)
        if not self._is_own(mine):
            self._complain(mine)
        elif self._is_leaving and not self._is_overdue and not mine.is_shutting_down:
            sentence = f"Broker {self.broker_id} has announced that it is about to stop."
            return Decision((sentence,), tuple(announce_shutdown(image, self.broker_id)))
        elif mine.offline != self._registration.offline:
            offline = self._registration.offline
            sentence = f"Broker {self.broker_id} has told that {len(offline)} replicas are offline."
            return Decision((sentence,), report_offline(image, self.broker_id, offline))
        elif mine.endpoints != self._registration.endpoints:
            endpoints = self._registration.endpoints
            told = ", ".join(map(str, endpoints))
            sentence = f"Broker {self.broker_id} is reached by {told} from now on."
            return Decision((sentence,), tell_endpoints(image, self.broker_id, endpoints))
        # Registering wrote it; but it may have been unregistered at the same moment.
        return Decision((), remember_broker(image, self._registration))

    def _register(self, image: ClusterImage) -> Decision[str]:
        if self._since != NOT_REGISTERED:
            # The session expired, but this process and its logs went on.
            self._registration = self._again()
        sentence = f"Broker {self.broker_id} is registered."
        return Decision((sentence,), register_broker(image, self._registration))

    def _log_sentences(self, sentences: tuple[str, ...], now: Instant) -> None:
        del now
        for sentence in sentences:
            log.info("%s", sentence)

    def _complain(self, mine: BrokerImage) -> None:
        if not self._was_ousted:
            self._was_ousted = True
            log.error(
                "Another process is registered as broker %s (%s): two brokers must not have the "
                "same node.id",
                self.broker_id,
                ", ".join(map(str, mine.endpoints)),
            )

    def _mine(self) -> BrokerImage | None:
        return self._metadata.image.brokers.get(self.broker_id)

    def _is_own(self, mine: BrokerImage) -> bool:
        """Whether a registration is that of this process, told by what it wrote into it: so it is
        recognised even if the store lost the answer to the write, or to one long ago. For that, all
        registrations of a process have the time of its start."""
        own = self._registration
        return mine.endpoints in self._told and mine.node.timestamp_ms == own.timestamp_ms
