"""The sources of earlier releases, from this repository's own history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.tar_files import unpack_tar

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src"
"""This checkout's own."""
RELEASES: Final[Mapping[str, str]] = {"0.1.0": "cdd9713c76b0ee2f8b33fce866448846d3b8dd56"}
"""The commit of every release whose directories and clusters must go on under this one."""


def missing(revision: str) -> str | None:
    """Why the revision cannot be had: a clone without its history, an archive. None: it can."""
    found = _git("cat-file", "-e", f"{revision}^{{commit}}")
    return None if found.returncode == 0 else f"the commit {revision} is not in this clone"


def unpack(revision: str, into: Path) -> Path:
    """Write the package of that revision below `into`; what `PYTHONPATH` has to be for it.

    Its kernels are not compiled: it runs on their twins in Python. Raises `RuntimeError`.
    """
    archive = _git("archive", "--format=tar", revision, "src")
    if archive.returncode != 0:
        raise RuntimeError(f"git archive {revision}: {archive.stderr.decode(errors='replace')}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        unpack_tar(tar, into)
    return into / "src"


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
