"""A member as the leader of its group sees it. Knows no assignor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.client.consumer_protocol import Subscription


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member and what it told the leader."""

    member_id: str
    instance_id: str | None
    subscription: Subscription


def in_order(members: Iterable[Subscriber]) -> list[Subscriber]:
    """Static members by their names, which last, then the others by their ids, as in Kafka."""
    return sorted(
        members,
        key=lambda each: (each.instance_id is None, each.instance_id or each.member_id),
    )
