"""Which brokers of an image may get replicas of new partitions."""

from __future__ import annotations

from strandline.cluster.assignment import Racks
from strandline.cluster.image import ClusterImage


def placeable(image: ClusterImage, replication_factor: int) -> Racks:
    """Registered brokers with their racks, without those that shut down if the others suffice."""
    racks = {broker_id: broker.rack or None for broker_id, broker in image.brokers.items()}
    staying = {b: rack for b, rack in racks.items() if not image.brokers[b].is_shutting_down}
    return staying if len(staying) >= replication_factor else racks
