"""What Spark calls a master: which texts name one, and whether anything answers there.

Spark finds out late, in a page of traces, that its master is misspelt or away: a driver registers
with a standalone master three times for 20 seconds each, whatever its user's patience is. So both
are looked at before Spark is started. This file must not know Spark's settings.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Final

from strandline.errors import InvalidSetting, StrandlineError

_NUMBER: Final = r"[1-9][0-9]*"
_ADDRESS: Final = r"[^\s,:/\[\]]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}"
_MASTERS: Final = re.compile(
    rf"local(\[({_NUMBER}|\*)(\s*,\s*{_NUMBER})?\])?"
    rf"|local-cluster\[\s*{_NUMBER}\s*,\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\]"
    rf"|spark://({_ADDRESS})(,({_ADDRESS}))*"
    r"|yarn|k8s://\S+"
)
REMOTE: Final = "sc://"
"""Of servers of Spark Connect, which are no masters."""
_STANDALONE: Final = "spark://"
_PAUSE_S: Final = 0.3
_CONNECT_S: Final = 5.0


class NoSpark(StrandlineError):
    """Spark could not be started. The sentence says why, and what to do."""


def shown(url: str) -> str:
    """A server's URL as sentences show it: what follows `;` may hold a token."""
    return url.partition(";")[0]


def check_master(master: str) -> None:
    """Raises `InvalidSetting` for what is no master."""
    if master.startswith(REMOTE):
        raise InvalidSetting(
            "master",
            f"{shown(master)} is a server of Spark Connect, and no master: table run, rebuild, "
            "verify and doctor take it as --remote, as does tables up. Elsewhere name the cluster "
            "itself, as spark://HOST:7077.",
        )
    if _MASTERS.fullmatch(master) is None:
        raise InvalidSetting(
            "master",
            f"master cannot be {shown(master)!r}: expected local[4] or local[*,4] (this machine), "
            "local-cluster[2,1,1024], spark://HOST:7077, yarn, or k8s://https://HOST:PORT.",
        )


def is_on_this_machine(master: str) -> bool:
    """Whether the driver starts the executors itself, here."""
    return master.startswith("local")


def wait_for_master(master: str, patience_s: float) -> None:
    """Until something listens where a standalone master should. Raises `NoSpark`.

    Other cluster managers are found through configuration that only Spark knows.
    """
    if not master.startswith(_STANDALONE):
        return
    addresses = master.removeprefix(_STANDALONE).split(",")
    until_s = time.monotonic() + patience_s
    while True:
        faults = []
        for address in addresses:
            fault = _fault(address, until_s - time.monotonic())
            if fault is None:
                return
            faults.append(f"{address}: {fault}")
        if time.monotonic() + _PAUSE_S > until_s:
            break
        time.sleep(_PAUSE_S)
    raise NoSpark(
        f"No Spark master answers at {master} within {patience_s:g} s ({'; '.join(faults)}). Start "
        "it, correct --master, or run Spark on this machine with --master 'local[*,4]'."
    )


def _fault(address: str, left_s: float) -> str | None:
    """Why no master can be connected to; None if one can."""
    host, _, port = address.rpartition(":")
    patience_s = min(_CONNECT_S, max(left_s, 0.1))
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=patience_s):
            return None
    except (OSError, OverflowError) as error:
        return str(error) or type(error).__name__
