"""The ranges of a batch query: from one side to the other, as both stand when it is planned."""

from __future__ import annotations

from strandline.lakehouse.reading.catalogue import Catalogue
from strandline.lakehouse.reading.settings import OffsetRange
from strandline.lakehouse.source.losses import Losses
from strandline.lakehouse.source.options import SourceOptions
from strandline.lakehouse.source.positions import ranges_between
from strandline.lakehouse.source.splits import split
from strandline.lakehouse.source.starting import (
    ending_positions,
    look_at_start,
    starting_positions,
)


def batch_ranges(options: SourceOptions) -> list[OffsetRange]:
    """The tasks of the query. Raises `InvalidSetting`, `ProtocolError`, `DataLost`."""
    losses = Losses(fails=options.fails_on_loss)
    with Catalogue(options.reading) as catalogue:
        facts = look_at_start(catalogue, options)
        start = starting_positions(options, facts, catalogue, losses)
        end = ending_positions(options, facts, catalogue, losses)
    return split(ranges_between(start, end), options.splitting)
