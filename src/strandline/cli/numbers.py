"""Whole numbers on a command line, in the ranges that the protocol has for them."""

from __future__ import annotations

from typing import Final

import click

from strandline.numerals import INT32_MAX

_INT16_MAX: Final = 2**15 - 1

BROKER: Final = click.IntRange(0, INT32_MAX)
PARTITION: Final = click.IntRange(0, INT32_MAX)
PARTITION_COUNT: Final = click.IntRange(1, INT32_MAX)
REPLICATION_FACTOR: Final = click.IntRange(1, _INT16_MAX)
