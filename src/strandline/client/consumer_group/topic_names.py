"""The names of topics that a coordinator names by their ids. Knows metadata, and no group."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.client.backoff import ExponentialBackoff
from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.metadata import ClusterView
from strandline.client.metadata_questions import MetadataQuestions
from strandline.types import TopicId


class TopicNames:
    """See the module. It asks for what it does not know, again and again while that is wanted: a
    broker may be behind the coordinator, or the topic be gone."""

    def __init__(self, coordinator: CoordinatorClient, backoff: ExponentialBackoff) -> None:
        self._router = coordinator.router
        self._questions = MetadataQuestions(coordinator, backoff)
        self._wanted: dict[TopicId, None] = {}
        self._view: ClusterView | None = None
        self._names: dict[TopicId, str] = {}
        """Those in the view, by which it was made."""

    def name_of(self, topic_id: TopicId) -> str | None:
        """What the topic is called; None if that is not known."""
        view = self._router.view
        if view is not self._view:
            self._view = view
            self._names = {each.topic_id: each.name for each in view.topics.values()}
        return self._names.get(topic_id)

    @property
    def have_come(self) -> bool:
        """Whether a name is known that was wanted."""
        return any(self.name_of(each) is not None for each in self._wanted)

    def want(self, topics: Iterable[TopicId]) -> None:
        """Find out what these are called, and no others."""
        before, self._wanted = self._wanted, dict.fromkeys(topics)
        if self._wanted.keys() - before.keys():
            self._questions.ask_at_ms = 0
            self._questions.begin_anew()

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do; None if not by time."""
        questions = self._questions
        return None if questions.is_asking or not self._wanted else questions.ask_at_ms

    def step(self) -> None:
        """Ask any broker, if there is something to ask and it is time."""
        if self._wanted and self._questions.is_due:
            self._questions.ask(self._router.metadata_request_by_id(list(self._wanted)))
