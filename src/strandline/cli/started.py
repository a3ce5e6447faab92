"""When this process began to be Strandline, and whether it can. Imported first, for the time that a
start took, and because what the other files import is not there on Windows."""

from __future__ import annotations

import sys
import time
from typing import Final

STARTED_S: Final = time.monotonic()

if sys.platform == "win32":
    sys.exit(
        "Strandline does not run on Windows itself. Install it inside WSL, the Linux that Windows "
        "brings: https://learn.microsoft.com/windows/wsl/install"
    )
