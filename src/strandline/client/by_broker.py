"""Asking several brokers for parts of one thing, where some of them may not answer.

This file knows how to ask all brokers, and the leaders of partitions, and to keep what was answered
apart from why the rest was not. It must not know what is asked.

Theory: what one broker does not tell says nothing of what the others do. So each broker, or each
partition, has an outcome of its own, as it has a future of its own in Kafka's AdminClient. A
partition without a leader has its outcome at once: waiting for one is for those that cannot go on
without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from strandline.client.cluster import ClusterClient, void
from strandline.client.connection import Connection
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId, TopicPartition

T = TypeVar("T")
K = TypeVar("K")

Outcomes: TypeAlias = tuple[dict[K, T], dict[K, ProtocolError]]
"""What was answered, and why there is no more."""
AskLeader: TypeAlias = Callable[[Connection, Sequence[TopicPartition]], Outcomes[TopicPartition, T]]
"""Asks one broker about partitions that it is to lead. May raise `ProtocolError` for all."""

_ABOUT_ONE: Final = frozenset(
    {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""What metadata says of single partitions."""


def ask_each_broker(
    cluster: ClusterClient,
    ask: Callable[[Connection], T],
    brokers: Iterable[BrokerId] | None = None,
) -> Outcomes[BrokerId, T]:
    """The answers of these brokers, of all that are in the cluster by default, by their ids.

    One that fails is asked again for as long as an operation may take, and costs no other answer.
    Of all brokers, one that leaves the cluster meanwhile is left out; one that was named has
    BROKER_NOT_AVAILABLE. Raises `ProtocolError` if no broker tells who is in the cluster.
    """
    answers: dict[BrokerId, T] = {}
    errors: dict[BrokerId, ProtocolError] = {}
    named = None if brokers is None else sorted(set(brokers))
    cluster.refresh()

    def attempt() -> list[ProtocolError]:
        errors.clear()
        for broker in sorted(cluster.view.brokers) if named is None else named:
            if broker not in answers:
                try:
                    answers[broker] = ask(cluster.connection_to(broker))
                except ProtocolError as error:
                    errors[broker] = error
        return list(errors.values())

    cluster.retry_parts(attempt, lambda: void(cluster.refresh()))
    return dict(sorted(answers.items())), errors


def ask_leaders(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], ask: AskLeader[T]
) -> Outcomes[TopicPartition, T]:
    """What the leaders of these partitions say, and why there is no more.

    A partition that has no leader (LEADER_NOT_AVAILABLE) is not waited for. Others are asked for
    again for as long as an operation may take. Raises `ProtocolError` if no broker tells which
    leaders there are.
    """
    wanted = list(dict.fromkeys(partitions))
    found: dict[TopicPartition, T] = {}
    refused: dict[TopicPartition, ProtocolError] = {}

    def attempt() -> list[ProtocolError]:
        missing = [each for each in wanted if each not in found]
        answered, failed = ask_leaders_now(cluster, missing, ask)
        found.update(answered)
        refused.clear()
        refused.update(failed)
        return list(_waited_for(refused).values())

    cluster.retry_parts(
        attempt, lambda: cluster.forget({each.topic for each in _waited_for(refused)})
    )
    return found, refused


def ask_all_leaders(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], ask: AskLeader[T]
) -> dict[TopicPartition, T]:
    """As `ask_leaders`, but all is wanted: leaders are waited for.

    Raises `ProtocolError` for the first partition that cannot be asked.
    """
    wanted = list(dict.fromkeys(partitions))
    found: dict[TopicPartition, T] = {}

    def attempt() -> None:
        missing = [each for each in wanted if each not in found]
        answered, refused = ask_leaders_now(cluster, missing, ask)
        found.update(answered)
        for error in refused.values():
            raise error

    cluster.retry_on_topics(attempt, {each.topic for each in wanted})
    return found


def ask_leaders_now(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], ask: AskLeader[T]
) -> Outcomes[TopicPartition, T]:
    """As `ask_leaders`, in one attempt for each leader."""
    found: dict[TopicPartition, T] = {}
    refused: dict[TopicPartition, ProtocolError] = {}
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            leader = cluster.partition(partition).leader
        except ProtocolError as error:
            if error.code not in _ABOUT_ONE:
                raise
            refused[partition] = error
        else:
            by_leader.setdefault(leader, []).append(partition)
    for leader, asked in by_leader.items():
        try:
            answered, failed = ask(cluster.connection_to(leader), asked)
        except ProtocolError as error:
            answered, failed = {}, dict.fromkeys(asked, error)
        found.update(answered)
        refused.update(failed)
        told = {*answered, *failed}
        refused.update((each, _lacking(each)) for each in asked if each not in told)
    return found, refused


def _waited_for(
    refused: dict[TopicPartition, ProtocolError],
) -> dict[TopicPartition, ProtocolError]:
    return {
        at: error
        for at, error in refused.items()
        if error.code is not ErrorCode.LEADER_NOT_AVAILABLE
    }


def _lacking(partition: TopicPartition) -> ProtocolError:
    return ProtocolError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"A broker's answer lacks partition {partition}."
    )
