"""Locks of the operating system, as this process and others see them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strandline.storage.files import LockHeld
from strandline.storage.real_lock import RealLock


def test_a_lock_of_this_process_is_told_as_such_and_kept(tmp_path: Path) -> None:
    """It was told as that of another process, which then could have Kafka's half of it."""
    path = tmp_path / ".lock"
    (tmp_path / "same").symlink_to(tmp_path)
    with RealLock(str(path)):
        with pytest.raises(LockHeld, match=r"This process holds the lock .* already"):
            RealLock(str(tmp_path / "same" / ".lock"))
        as_kafka = (
            f"import fcntl; file = open({str(path)!r}, 'r+'); "
            "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
        )
        ended = subprocess.run([sys.executable, "-c", as_kafka], capture_output=True, check=False)
        assert b"BlockingIOError" in ended.stderr
    RealLock(str(path)).release()
