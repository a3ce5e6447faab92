"""Which brokers of an image may get replicas of new partitions."""

from __future__ import annotations

from strandline.cluster.assignment import Candidates
from strandline.cluster.image import ClusterImage


def placeable(image: ClusterImage, replication_factor: int) -> Candidates:
    """The members of the cluster with their racks. Those that shut down count as running only if
    the others do not suffice; those that are down are members until they are unregistered."""
    racks = {broker_id: broker.rack or None for broker_id, broker in image.brokers.items()}
    staying = {b: rack for b, rack in racks.items() if not image.brokers[b].is_shutting_down}
    running = staying if len(staying) >= replication_factor else racks
    down = {broker_id: broker.rack or None for broker_id, broker in image.fenced.items()}
    return Candidates(running, down)
