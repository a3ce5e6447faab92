"""A hash of 64 bits in place of XXH3, which no package brings to a browser.

By it groups of the consumer protocol notice that their topics have changed. It is compared with
earlier values of itself only, as long as no log of another broker is read.
"""

from __future__ import annotations

from hashlib import blake2b


def xxh3_64_intdigest(data: bytes) -> int:
    """Not XXH3: any hash will do here."""
    return int.from_bytes(blake2b(data, digest_size=8).digest())
