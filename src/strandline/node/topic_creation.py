"""Creating topics because a client uses them: auto-creation and internal topics.

Kafka answers the first use with an error and creates the topic meanwhile; here the answer waits
for the creation, which saves every client its first retry (see the design note on auto-creation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from strandline.cluster.controller import (
    Decision,
    Permit,
    Refusal,
    TopicCreated,
    TopicSpec,
    always,
    as_brokers_make_it,
    create_topics,
)
from strandline.cluster.image import ClusterImage
from strandline.node.controller import Controller
from strandline.node.handlers.batching import InBatches
from strandline.node.settings import Settings
from strandline.types import Instant

Created = Callable[[dict[str, Refusal], Instant], None]
"""Told the topics that could not be created, with the reason of each."""


class TopicCreation:
    """Makes missing topics exist."""

    def __init__(self, controller: Controller, settings: Settings, random: Random) -> None:
        self._controller = controller
        self._settings = settings
        self._random = random

    def ensure(
        self, names: Iterable[str], created: Created, now: Instant, permit: Permit = always
    ) -> None:
        """Create each topic that does not exist, with the broker's defaults. `permit` is asked
        about those that could be made."""
        wanted = list(dict.fromkeys(names))

        def decide(image: ClusterImage, some: Sequence[str]) -> Decision[TopicCreated]:
            return self._decide(some, image, permit)

        def done(results: Sequence[TopicCreated], at: Instant) -> None:
            refused = {result.name: result.refusal for result in results if result.refusal}
            created(refused, at)

        def refused(name: str, refusal: Refusal) -> TopicCreated:
            return TopicCreated(name, refusal=refusal)

        InBatches(self._controller, decide, wanted, key=str, refused=refused).carry_out(
            done=done, now=now
        )

    def refusal(self, name: str, image: ClusterImage) -> Refusal | None:
        """Why the topic could not be created at its next use; None if it could, or exists."""
        if image.controller_epoch is None:
            return None  # nothing can be decided before the first controller is elected
        results = self._decide([name], image).results
        return next((result.refusal for result in results if result.refusal), None)

    def _decide(
        self, wanted: Sequence[str], image: ClusterImage, permit: Permit = always
    ) -> Decision[TopicCreated]:
        broker = self._settings.broker
        specs = [
            as_brokers_make_it(TopicSpec(name), broker, broker_count=image.broker_count)
            for name in wanted
            if name not in image.topics
        ]
        return create_topics(
            image,
            specs,
            broker,
            ignores_case=self._settings.ignores_case,
            permit=permit,
            random=self._random,
        )
