"""IP addresses in settings and ACLs, in the form in which connections have them.

An address of IPv6 may be written in many ways: Java writes `0:0:0:0:0:0:0:1`, the system `::1`.
Compared as texts they are two addresses.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


def as_connected(address: str) -> str:
    """The address as connections have it: short, and IPv4 within IPv6 as IPv4. Raises `ValueError`
    for what is no address."""
    found = ip_address(address)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)


@lru_cache(maxsize=4096)
def as_connected_if_any(text: str) -> str:
    """As `as_connected`; what is no address stays as it is."""
    try:
        return as_connected(text)
    except ValueError:
        return text
