"""Creating topics because somebody uses them: auto-creation and internal topics.

Kafka answers the first use with an error and creates the topic meanwhile; here the answer waits
for the creation, which saves every client its first retry (see the design note on auto-creation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from strandline.cluster.controller import (
    Decision,
    TopicCreated,
    TopicSpec,
    create_topics,
    internal_topic_spec,
)
from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.controller import Controller
from strandline.node.settings import Settings
from strandline.types import Instant

Created = Callable[[dict[str, ErrorCode], Instant], None]
"""Told the topics that could not be created, with the reason of each."""


class TopicCreation:
    """Makes missing topics exist."""

    def __init__(self, controller: Controller, settings: Settings, random: Random) -> None:
        self._controller = controller
        self._settings = settings
        self._random = random

    def ensure(self, names: Iterable[str], created: Created, now: Instant) -> None:
        """Create each topic that does not exist, with the broker's defaults."""
        wanted = list(dict.fromkeys(names))

        def decide(image: ClusterImage) -> Decision[TopicCreated]:
            broker = self._settings.broker
            specs = [
                internal_topic_spec(name, broker, broker_count=len(image.brokers))
                or TopicSpec(name)
                for name in wanted
                if name not in image.topics
            ]
            return create_topics(
                image,
                specs,
                broker,
                ignores_case=self._settings.ignores_case,
                random=self._random,
            )

        def done(results: tuple[TopicCreated, ...], at: Instant) -> None:
            refused = {result.name: result.refusal.code for result in results if result.refusal}
            created(refused, at)

        def failed(error: ProtocolError, at: Instant) -> None:
            created(dict.fromkeys(wanted, error.code), at)

        self._controller.carry_out(decide, done=done, failed=failed, now=now)
