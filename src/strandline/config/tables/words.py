"""The words that the rows are written in, so that a row fits two lines."""

from __future__ import annotations

from typing import Final

from strandline.config.setting import Importance, Service, Update
from strandline.config.topic import LONG_MAX as LONG_MAX
from strandline.config.values import Kind

BOOLEAN: Final = Kind.BOOLEAN
STRING: Final = Kind.STRING
INT: Final = Kind.INT
SHORT: Final = Kind.SHORT
LONG: Final = Kind.LONG
DOUBLE: Final = Kind.DOUBLE
LIST: Final = Kind.LIST
CLASS: Final = Kind.CLASS
PASSWORD: Final = Kind.PASSWORD

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

SERVED: Final = Service.SERVED
NO_EFFECT: Final = Service.NO_EFFECT
REFUSED: Final = Service.REFUSED

PER_BROKER: Final = Update.PER_BROKER
CLUSTER_WIDE: Final = Update.CLUSTER_WIDE

INT_MAX: Final = 2**31 - 1
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
