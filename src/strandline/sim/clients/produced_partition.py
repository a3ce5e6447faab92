"""What a producer of the simulator knows of one partition that it sends to."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.sim.clients.connection import Connection
from strandline.sim.history.operations import StartSeen
from strandline.types import TopicId


@dataclass(slots=True, eq=False)
class ProducedPartition:
    """See the module."""

    writer: str
    """Under which name the history orders what is sent to this partition."""
    connection: Connection | None = None
    """Over which the last batch was sent."""
    start: StartSeen | None = None
    """Where the log began, as the last answer said."""
    written: dict[tuple[TopicId | None, int], int] = field(default_factory=dict)
    """The offset behind each acknowledged batch, by its topic's id and sequence number."""
