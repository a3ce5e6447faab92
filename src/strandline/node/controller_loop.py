"""Electing the controller, and the control loop that the controller runs.

The broker that creates the ephemeral node `/controller` is elected. Each term increments
`/controller_epoch`, whose version every write of a controller checks. The controller runs
`reconcile` over the image after each change until nothing is left to do; a controller that takes
over halfway simply goes on (design note 0006). A broker that was replaced, or whose image does not
show its election yet, cannot write: the epoch of its term is not the current one (KAFKA-6082,
KAFKA-4447).

Decides nothing itself: what to write is decided by pure functions of the image in `cluster`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from strandline.cluster.controller import (
    Decision,
    Event,
    Looks,
    become_controller,
    imbalanced,
    rebalance,
)
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.node.controller import Controller, Done, Failed
from strandline.node.membership import Membership
from strandline.node.metadata import Metadata
from strandline.node.reconciler import Reconciler
from strandline.node.settings import Settings, SettingsPolicy
from strandline.node.timers import Timer, Timers
from strandline.types import BrokerId, Instant

log = logging.getLogger(__name__)

_FIRST_REBALANCE_MS: Final = 5000
"""After an election; brokers that start with the controller are up by then (as in Kafka)."""

_NO_EPOCH: Final = -1

Result = TypeVar("Result")


class ControllerLoop:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata,
        controller: Controller,
        settings: Settings,
        timers: Timers,
        membership: Membership,
    ) -> None:
        self.policy = SettingsPolicy(settings, metadata)
        self._metadata = metadata
        self._controller = controller
        self._settings = settings
        self._timers = timers
        self._membership = membership
        self._looks = Looks()
        self._reconciler: Reconciler[Event] = Reconciler(
            metadata,
            timers,
            "do what the controller must",
            self._decide,
            log_events,
            lessen=self._looks.lessen,
            refused=self._looks.refused,
        )
        self._epoch = _NO_EPOCH
        """The controller epoch that this process counted, or tried to, when it was last elected."""
        self._was_controller = False
        self._to_lead: frozenset[BrokerId] = frozenset()
        """The brokers to which leadership goes back; empty unless that is under way."""
        self._rebalance_timer: Timer | None = None

    @property
    def is_controller(self) -> bool:
        """Whether this process is the controller, as far as its image tells."""
        image = self._metadata.image
        epoch = image.controller_epoch
        return (
            image.controller == self._membership.broker_id
            and epoch is not None
            and epoch.value == self._epoch
        )

    def start(self, now: Instant) -> None:
        """Begin to stand for election."""
        image = self._metadata.image
        if image.controller_epoch is not None and image.controller == self._membership.broker_id:
            self._epoch = image.controller_epoch.value
        self._look(now)
        self._reconciler.wake()

    def follow(self, delta: ImageDelta, now: Instant) -> None:
        """The image has changed."""
        self._looks.follow(delta)
        if delta.controller_changed:
            self._look(now)
        self._reconciler.wake()

    def act(self, now: Instant) -> None:
        """Write what is missing. Once per turn."""
        self._reconciler.act(now)

    def check(self) -> None:
        """Raise `InvariantViolated` if an election or its end went unnoticed (I-18), or what is
        missing is not tried again (I-51)."""
        is_controller = self.is_controller
        if is_controller != self._was_controller:
            raise InvariantViolated(
                f"By its metadata broker {self._membership.broker_id} is "
                f"{'' if is_controller else 'not '}the controller, and it has not noticed.",
                invariant="I-18",
            )
        self._reconciler.check()

    def carry_out(
        self,
        decide: Callable[[ClusterImage], Decision[Result]],
        *,
        done: Done[Result],
        failed: Failed,
        now: Instant,
    ) -> None:
        """As `Controller.carry_out`, for what only the controller may decide.

        Fails with NOT_CONTROLLER on every other broker; clients then look for the controller.
        """

        def decide_as_controller(image: ClusterImage) -> Decision[Result]:
            if not self.is_controller:
                raise ProtocolError(
                    ErrorCode.NOT_CONTROLLER,
                    "There is no controller at the moment."
                    if image.controller is None
                    else f"The controller is broker {image.controller}.",
                )
            return decide(image)

        self._controller.carry_out(decide_as_controller, done=done, failed=failed, now=now)

    def decide_locally(
        self,
        decide: Callable[[ClusterImage], Decision[Result]],
        *,
        done: Done[Result],
        failed: Failed,
        now: Instant,
    ) -> None:
        """Decide, on any broker, what the controller would decide if it could be reached.

        The same pure decision is made from this broker's image, and its write has the same
        conditions: the controller epoch in the image is the current one, and the partition has not
        changed since. What this broker does not know yet about others, it records with the broker
        epochs that it knows, by which the controller recognises and repairs it.
        """
        self._controller.carry_out(decide, done=done, failed=failed, now=now)

    def in_another_turn(self, work: Callable[[Instant], None], now: Instant) -> None:
        """As `Controller.in_another_turn`."""
        self._controller.in_another_turn(work, now)

    # -- What is to be written ---------------------------------------------------------------

    def _decide(self, image: ClusterImage, now: Instant) -> Decision[Event]:
        if self.is_controller:
            return self._govern(image)
        if image.controller is None and self._may_stand(image):
            return self._stand(image, now)
        return Decision(())

    def _may_stand(self, image: ClusterImage) -> bool:
        # The lock and the registration belong to one session, and go together.
        return self._membership.is_registered and not (
            self._membership.is_leaving and len(image.brokers) > 1
        )

    def _stand(self, image: ClusterImage, now: Instant) -> Decision[Event]:
        broker_id = self._membership.broker_id
        last = image.controller_epoch
        # Noted before the outcome is known: if the answer gets lost, the image tells by this
        # epoch that it was this process which was elected.
        self._epoch = 1 if last is None else last.value + 1
        return Decision((), become_controller(image, broker_id, now_ms=now.wall_ms))

    def _govern(self, image: ClusterImage) -> Decision[Event]:
        decision = self._looks.decide(image, self.policy)
        if self._to_lead and not decision.operations:
            decision = rebalance(image, self._to_lead)
            if not decision.operations:
                self._to_lead = frozenset()
        return decision

    # -- Coming and going --------------------------------------------------------------------

    def _look(self, now: Instant) -> None:
        """Notice that this broker was elected, or replaced."""
        is_controller = self.is_controller
        if is_controller == self._was_controller:
            return
        self._was_controller = is_controller
        self._looks.at_all()
        self._to_lead = frozenset()
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
            self._rebalance_timer = None
        broker_id = self._membership.broker_id
        if is_controller:
            log.info("Broker %s is the controller (epoch %s)", broker_id, self._epoch)
            self._schedule_rebalance(_FIRST_REBALANCE_MS, now)
        else:
            log.info("Broker %s is not the controller any more", broker_id)

    def _schedule_rebalance(self, delay_ms: int, now: Instant) -> None:
        self._rebalance_timer = self._timers.schedule(
            now.monotonic_ms + delay_ms, self._begin_rebalance
        )

    def _begin_rebalance(self, now: Instant) -> None:
        broker = self._settings.broker
        self._schedule_rebalance(broker.leader_imbalance_check_interval_seconds * 1000, now)
        if broker.auto_leader_rebalance_enable and not self._to_lead:
            percent = broker.leader_imbalance_per_broker_percentage
            self._to_lead = imbalanced(self._metadata.image, percent_max=percent)
            self._reconciler.wake()


def log_events(events: tuple[Event, ...], now: Instant) -> None:
    """Write what the controller did into the log."""
    del now
    for event in events:
        log.log(logging.WARNING if event.is_alarming else logging.INFO, "%s", event)
