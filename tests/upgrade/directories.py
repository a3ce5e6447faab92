"""`python -m tests.upgrade.directories`: make the data directories of all earlier releases anew.

They are kept beside the tests, packed (`made/RELEASE-END.tar.xz`), so that the tests need neither
the history nor the time. A release's own code writes them, see `written.py`. Index files of a
killed broker are mostly preallocated zeros: those are not packed, and are holes when unpacked.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from strandline.tar_files import unpack_tar
from tests.upgrade.releases import RELEASES, unpack

SIZES: Final = "sizes.json"
MADE: Final = Path(__file__).parent / "made"
ENDS: Final = {"clean": 0, "killed": -signal.SIGKILL}
"""How the brokers ended, and the exit code that says so."""


def made() -> Iterator[tuple[str, str]]:
    """Every release and every end."""
    return ((release, end) for release in RELEASES for end in ENDS)


def unpack_directory(release: str, end: str, into: Path) -> None:
    """Write `data/` and `expected.json` below `into`."""
    with tarfile.open(MADE / f"{release}-{end}.tar.xz") as tar:
        unpack_tar(tar, into)
    for name, size in json.loads((into / SIZES).read_text()).items():
        os.truncate(into / name, size)


def make(release: str, end: str, home: Path) -> Path:
    """Let the release write a directory below `home`; the archive of it."""
    sources = unpack(RELEASES[release], home / "sources")
    content = home / "content"
    content.mkdir()
    status = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("written.py")), str(content), end],
        env={**os.environ, "PYTHONPATH": str(sources)},
        check=False,
    ).returncode
    if status != ENDS[end]:
        raise RuntimeError(f"the code of {release} ended with status {status}")
    archive = MADE / f"{release}-{end}.tar.xz"
    _pack(content, archive)
    return archive


def _pack(content: Path, archive: Path) -> None:
    """All files below `content`, without the zeros at their ends, and their sizes."""
    sizes = {}
    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(content.rglob("*")):
            if path.is_file():
                name = str(path.relative_to(content))
                sizes[name] = path.stat().st_size
                _add(tar, name, path.read_bytes().rstrip(b"\0"))
        _add(tar, SIZES, json.dumps(sizes).encode())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def main() -> None:
    """All of them."""
    MADE.mkdir(exist_ok=True)
    for release, end in made():
        with tempfile.TemporaryDirectory() as home:
            archive = make(release, end, Path(home))
            print(f"{archive.name}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
