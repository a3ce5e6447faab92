"""Who is to read what: the assignors of Kafka 4.3, as pure functions.

An assignor gets the members of a group, each with its subscription and its last target, and the
number of partitions of every topic that is there. It returns a target for each of them: together
they hold every partition that a member subscribes to, each once. Racks play no part in Kafka 4.3's
assignors; they are part of the hash by which a change of them leads to a new assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from strandline.groups.consumer.assignors.range_assignor import assign_range
from strandline.groups.consumer.assignors.subscriptions import MemberSpec, PartitionCounts
from strandline.groups.consumer.assignors.uniform import assign_uniform
from strandline.groups.consumer.partitions import Partitions

Assignor = Callable[[Mapping[str, MemberSpec], PartitionCounts], dict[str, Partitions]]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}

__all__ = ["ASSIGNORS", "Assignor", "MemberSpec", "PartitionCounts"]
