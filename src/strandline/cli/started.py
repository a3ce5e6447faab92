"""When this process began to be Strandline. Imported first, for the time that a start took."""

from __future__ import annotations

import time
from typing import Final

STARTED_S: Final = time.monotonic()
