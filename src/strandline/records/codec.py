"""The compression codecs that a record batch can name.

This file knows only the numbers. They stand in the lowest three bits of a batch's attributes
(see `batch.py`); what they do to bytes is in `compression.py`. The numbers 5, 6 and 7 mean nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Codec(IntEnum):
    """A codec by its number in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def setting(self) -> str:
        """The codec's name in `compression.type`."""
        return _SETTINGS[self]


_SETTINGS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

CODEC_BY_SETTING: Final = {codec.setting: codec for codec in Codec}
"""`compression.type` to codec. The value `producer` is missing: it means "keep what came"."""
