"""The codecs snappy, lz4 and zstd are not there in a browser: what uses one is refused.

Gzip is of the standard library, and the clients of scenarios do not compress.
"""

from __future__ import annotations


class CompressionError(Exception):
    """See the package of this name."""


class DecompressionError(Exception):
    """What the records' reader takes for damage: the batch is refused."""


class _Absent:
    def __getattr__(self, name: str) -> object:
        raise DecompressionError("this codec is not there in a browser")


snappy = lz4 = zstd = _Absent()
