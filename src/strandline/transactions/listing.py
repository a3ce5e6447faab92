"""DescribeTransactions and ListTransactions: what operators are told (KIP-664, 994, 1152)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from strandline.protocol.messages import describe_transactions, list_transactions
from strandline.protocol.regex import compile_regex
from strandline.transactions.shard import Entry
from strandline.transactions.transaction import TransactionState
from strandline.types import Instant

_STATES: Final = {state.label: state for state in TransactionState}


def described(entry: Entry) -> describe_transactions.TransactionState:
    """One transactional id as it stands."""
    current = entry.current
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(current.partitions):
        topics.setdefault(topic, []).append(partition)
    return describe_transactions.TransactionState(
        transactional_id=entry.transactional_id,
        transaction_state=current.state.label,
        transaction_timeout_ms=current.timeout_ms,
        transaction_start_time_ms=current.started_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def listed(
    entries: Iterable[Entry], request: list_transactions.ListTransactionsRequest, now: Instant
) -> list_transactions.ListTransactionsResponse:
    """The ids that pass all filters. Raises `ProtocolError` for a pattern that cannot be used."""
    asked = request.transactional_id_pattern
    pattern = compile_regex(asked, "TransactionalIdPattern") if asked else None
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producers = frozenset(request.producer_id_filters)

    def passing() -> Iterator[Entry]:
        for entry in entries:
            current = entry.current
            age_ms = now.wall_ms - current.started_ms
            if (
                (not request.state_filters or current.state in states)
                and (not producers or current.producer_id in producers)
                and (request.duration_filter < 0 or age_ms > request.duration_filter)
                and (pattern is None or pattern.fullmatch(entry.transactional_id))
            ):
                yield entry

    return list_transactions.ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=entry.transactional_id,
                producer_id=entry.current.producer_id,
                transaction_state=entry.current.state.label,
            )
            for entry in sorted(passing(), key=lambda entry: entry.transactional_id)
        ],
    )
