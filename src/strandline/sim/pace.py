"""How fast the producers of a seed may write so that followers can follow.

Theory. A follower whose fetches are limited to fewer bytes than a batch has is given one batch per
round trip, whatever waits for it; in Kafka as well. Producers that write more batches than that
leave it behind for good, and no cluster puts that right while they go on. So a drawn run with such
a limit has producers that leave its followers time to make up for what they missed (I-49). Plans
that are written by hand are played as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from strandline.records.batch import HEADER_BYTES
from strandline.sim.plan import ClientSpec, LatencySpec, Options
from strandline.sim.scenarios.script import parse_us
from strandline.sim.workload import PAUSES

_SHARE: Final = 0.3
"""Of a follower's time, what is written meanwhile may take. The longest phase of faults has 30 s:
who has missed all of it is level again after 30 s * 0.3 / (1 - 0.3), long before I-49's bound."""
_PAUSES: Final = (*PAUSES, "1s")
_LIMITS: Final = ("replica.fetch.max.bytes", "replica.fetch.response.max.bytes")
_RECORD_BYTES: Final = 20
"""About what a record has beside its value."""


def at_a_followers_pace(clients: Sequence[ClientSpec], options: Options) -> tuple[ClientSpec, ...]:
    """The clients, producers slowed down if followers could not keep up with them."""
    limits = [int(options.settings[name]) for name in _LIMITS if name in options.settings]
    slowed = tuple(clients)
    if limits:
        round_trip_us = _round_trip_us(options.latency)
        for pause in _PAUSES:
            slowed = tuple(_no_faster(each, pause) for each in clients)
            if _share(slowed, min(limits), round_trip_us) <= _SHARE:
                break
    return slowed


def _share(clients: Sequence[ClientSpec], limit_bytes: int, round_trip_us: float) -> float:
    """How much of its time one follower of everything needs to fetch what is written meanwhile."""
    return sum(
        round_trip_us * _batches_per_us(each) / max(1, limit_bytes // _batch_bytes(each))
        for each in clients
        if each.kind == "producer"
    )


def _batches_per_us(producer: ClientSpec) -> float:
    return len(producer.options["partition"].split(",")) / parse_us(producer.options["every"])


def _batch_bytes(producer: ClientSpec) -> int:
    records, size = int(producer.options["records"]), int(producer.options["size"])
    return HEADER_BYTES + records * (_RECORD_BYTES + size)


def _round_trip_us(latency: LatencySpec) -> float:
    spikes_us = latency.spike_us / 2 * latency.spikes_per_mille / 1000
    return 2 * (latency.least_us + latency.mean_us + spikes_us)


def _no_faster(client: ClientSpec, pause: str) -> ClientSpec:
    if client.kind != "producer" or parse_us(client.options["every"]) >= parse_us(pause):
        return client
    return replace(client, options={**client.options, "every": pause})
