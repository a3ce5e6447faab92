"""The address by which this machine reaches itself."""

from __future__ import annotations

import socket
from typing import Final

IPV4: Final = "127.0.0.1"
IPV6: Final = "::1"


def loopback() -> str:
    """127.0.0.1, or ::1 on a machine that has only IPv6; without brackets."""
    return IPV6 if not _is_here(socket.AF_INET, IPV4) and _is_here(socket.AF_INET6, IPV6) else IPV4


def _is_here(family: socket.AddressFamily, host: str) -> bool:
    try:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError:  # no such family, or no interface has the address
        return False
    return True
