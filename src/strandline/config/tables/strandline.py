"""Settings that Kafka does not have: of what only Strandline does."""

from __future__ import annotations

from typing import Final

from strandline.config.allowed import at_least
from strandline.config.setting import Setting
from strandline.config.tables.words import LONG, LOW, SERVED

_OURS: Final = "Kafka has no such setting, and nothing of the kind."

# This is read as a table: a setting takes two lines here instead of ten.
# fmt: off
STRANDLINE: Final[tuple[Setting, ...]] = (
    Setting("strandline.ledger.retention.bytes", LONG, 1 << 30, LOW, at_least(-1), SERVED,
            "Most bytes of removed records that the truncation ledger of one log directory keeps; "
            "0 keeps none, -1 has no limit.",
            deviation=_OURS),
    Setting("strandline.ledger.retention.ms", LONG, 604_800_000, LOW, at_least(-1), SERVED,
            "How long the truncation ledger keeps removed records; -1 has no limit.",
            deviation=_OURS),
)
# fmt: on
