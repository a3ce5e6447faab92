"""Unpacking tar archives on every Python that is supported. Knows nothing of what is in them."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack_tar(
    archive: tarfile.TarFile, place: Path | str, members: Iterable[tarfile.TarInfo] | None = None
) -> None:
    """Write the members, by default all, below `place`.

    Python before 3.11.4, as in Debian 12, has no filters: nothing keeps its members below `place`
    there. So the archive must be known, by its checksum or its maker.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(place, members=members, filter="data")
    else:
        archive.extractall(place, members=members)  # noqa: S202 -- as said above
