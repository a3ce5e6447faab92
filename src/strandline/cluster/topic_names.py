"""Which topic names are allowed, which collide, and which topics are Kafka's own.

Names appear in file and metric names. Metrics write both `.` and `_` as `_`, so two topics whose
names differ only there may not both exist (`org.apache.kafka.common.internals.Topic`).
"""

from __future__ import annotations

import re
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

MAX_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]*")


def name_problem(name: str) -> str | None:
    """Why the name is not allowed, as a sentence, or None if it is."""
    if not name:
        return "A topic name must not be empty."
    if name in (".", ".."):
        return f"A topic cannot be named {name!r}."
    if len(name) > MAX_NAME_LENGTH:
        return f"The topic name has {len(name)} characters, of which {MAX_NAME_LENGTH} are allowed."
    if not _LEGAL.fullmatch(name):
        return (
            f"The topic name {name!r} has characters other than ASCII letters and digits, "
            "'.', '_' and '-'."
        )
    return None


def can_collide(name: str) -> bool:
    """Whether another name could differ from this one only in `.` and `_`."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Equal for names that collide."""
    return name.replace(".", "_")


def case_key(name: str) -> str:
    """Equal for names whose directories are one where the file system ignores case."""
    return name.lower()


def exclusion_key(name: str, *, ignores_case: bool) -> str:
    """Equal for names of which only one can be a topic; also for a few others."""
    return collision_key(case_key(name) if ignores_case else name)


def is_internal(name: str) -> bool:
    """Whether brokers keep state of their own in the topic."""
    return name in INTERNAL_TOPICS
