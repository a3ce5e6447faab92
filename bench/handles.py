"""What opening a log file again costs: appends and reads in turn over more files than may be open.

    python -m bench.handles --files 2000 --rounds 10

Says for each bound how long one append of a small batch, and one read of it, takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time

from strandline.storage.file_handles import FileHandles
from strandline.storage.real_files import RealFiles

_BATCH = bytes(200)


def measure(directory: str, files: int, rounds: int, limit: int) -> tuple[float, float, int]:
    """Microseconds for an append and for a read, and how often a file was opened."""
    handles = FileHandles(limit)
    system = RealFiles(handles=handles)
    opened = [system.open(f"{directory}/{limit}-{number}", create=True) for number in range(files)]
    for file in opened:
        file.append(_BATCH)
    began = time.perf_counter()
    for _ in range(rounds):
        for file in opened:
            file.append(_BATCH)
    appended = time.perf_counter()
    for _ in range(rounds):
        for file in opened:
            file.read_at(0, len(_BATCH))
    read = time.perf_counter()
    for file in opened:
        file.close()
    each = 1e6 / (files * rounds)
    return (appended - began) * each, (read - appended) * each, handles.opened


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for limit in (wanted.files, wanted.files // 4, 64):
            append_us, read_us, opened = measure(directory, wanted.files, wanted.rounds, limit)
            print(
                f"{limit} of {wanted.files} may be open: append {append_us:.1f} us, "
                f"read {read_us:.1f} us, {opened} openings"
            )


if __name__ == "__main__":
    main()
