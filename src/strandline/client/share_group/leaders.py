"""Who leads the partitions that a member reads, and what their topics are called.

This file knows metadata, and when to ask for it. It must not know share sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from strandline.client.consumer_group.topic_names import TopicNames
from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.metadata_questions import MetadataQuestions
from strandline.client.share_group.membership import Place
from strandline.client.share_group.settings import ShareSettings
from strandline.types import BrokerId, TopicPartition


class Leaders:
    """See the module."""

    def __init__(
        self, settings: ShareSettings, coordinator: CoordinatorClient, random: Random
    ) -> None:
        self._coordinator = coordinator
        self._router = coordinator.router
        self._names = TopicNames(coordinator, settings.backoff(random))
        self._questions = MetadataQuestions(coordinator, settings.backoff(random))
        self.places: frozenset[Place] = frozenset()
        """What is read."""

    def want(self, places: frozenset[Place]) -> None:
        """These are read, and no others."""
        self.places = places

    def at(self, place: Place) -> TopicPartition | None:
        """A partition by its topic's name; None while that is not known."""
        name = self._names.name_of(place.topic_id)
        return None if name is None else TopicPartition(name, place.partition)

    def of(self, at: TopicPartition) -> BrokerId | None:
        """Who leads it, as far as is known."""
        found = self._router.leader(at)
        is_known = found is not None and found.leader in self._router.view.brokers
        return found.leader if found is not None and is_known else None

    @property
    def led(self) -> dict[BrokerId, dict[Place, TopicPartition]]:
        """What is read, under the brokers that lead it."""
        found: dict[BrokerId, dict[Place, TopicPartition]] = {}
        for place in sorted(self.places):
            at = self.at(place)
            broker = None if at is None else self.of(at)
            if at is not None and broker is not None:
                found.setdefault(broker, {})[place] = at
        return found

    def doubt(self, topics: Iterable[str]) -> None:
        """What is believed of these topics is not true any more."""
        self._router.forget(topics)

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do; None if not by time."""
        times = [self._names.wake_ms]
        if self._stale and not self._questions.is_asking:
            times.append(self._questions.ask_at_ms)
        return min((each for each in times if each is not None), default=None)

    def step(self) -> None:
        """Ask any broker, if there is something to ask and it is time."""
        self._names.want(
            {each.topic_id for each in self.places if self._names.name_of(each.topic_id) is None}
        )
        self._names.step()
        if self._questions.is_due and (stale := self._stale):
            self._questions.ask(self._router.metadata_request(sorted(stale)), self._learnt)

    @property
    def _stale(self) -> set[str]:
        """The topics of which something has to be asked."""
        now_ms = self._coordinator.now_ms
        found = set()
        for place in self.places:
            at = self.at(place)
            if at is not None and (
                not self._router.is_fresh(at.topic, now_ms) or self.of(at) is None
            ):
                found.add(at.topic)
        return found

    def _learnt(self) -> None:
        if not self._stale:
            self._questions.begin_anew()
