"""Lines and files of each room of the package and of the tests at two commits, as Markdown.

    python tools/rooms.py [BEFORE [AFTER]]        cdd9713 and HEAD, if nothing else is said

Reads git's objects, not the working tree. A room is a folder directly below `src/strandline` or
`tests`; what lies beside the rooms is counted under `(beside)`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from itertools import chain
from statistics import median, quantiles

FOLDERS = ("src/strandline", "tests")
BEFORE = "cdd9713"


def lines_at(commit: str, folder: str) -> dict[str, int]:
    """Lines of each Python file below a folder, by its path from there."""
    listed = _git("ls-tree", "-r", commit, "--", folder).decode().splitlines()
    found: dict[str, str] = {}
    for line in listed:
        about, path = line.split("\t")
        if path.endswith(".py"):
            found[path.removeprefix(f"{folder}/")] = about.split()[2]
    asked = "".join(f"{blob}\n" for blob in found.values()).encode()
    answer = _git("cat-file", "--batch", given=asked)
    counts: dict[str, int] = {}
    for path in found:
        head, _, answer = answer.partition(b"\n")
        size = int(head.split()[2])
        counts[path] = answer[:size].count(b"\n")
        answer = answer[size + 1 :]
    return counts


def by_room(counts: dict[str, int]) -> dict[str, list[int]]:
    """The lines of each room's files."""
    rooms: dict[str, list[int]] = defaultdict(list)
    for path, lines in counts.items():
        room, slash, _ = path.partition("/")
        rooms[room if slash else "(beside)"].append(lines)
    return rooms


def table(folder: str, before: str, after: str) -> str:
    """A row for each room, and one for all of them."""
    old, new = (by_room(lines_at(commit, folder)) for commit in (before, after))
    rows = [
        f"| `{folder}` | files | lines | files | lines | lines more |",
        "|---|---|---|---|---|---|",
    ]
    rooms = sorted(old.keys() | new.keys(), key=lambda room: -sum(new.get(room, [0])))
    rows += [_row(room, old.get(room, []), new.get(room, [])) for room in rooms]
    rows.append(_row("**all**", [*chain(*old.values())], [*chain(*new.values())]))
    return "\n".join(rows)


def sizes(folder: str, commit: str) -> str:
    """How long the files are."""
    counts = sorted(lines_at(commit, folder).values())
    ninth = quantiles(counts, n=10)[-1]
    longer = sum(each > 400 for each in counts)
    return (
        f"| `{folder}` at {commit} | {len(counts):,} | {sum(counts):,} | {median(counts):,.0f} | "
        f"{ninth:,.0f} | {counts[-1]:,} | {longer} |"
    )


def _row(room: str, old: list[int], new: list[int]) -> str:
    more = sum(new) - sum(old)
    return f"| {room} | {len(old):,} | {sum(old):,} | {len(new):,} | {sum(new):,} | {more:+,} |"


def _git(*words: str, given: bytes | None = None) -> bytes:
    return subprocess.run(["git", *words], input=given, stdout=subprocess.PIPE, check=True).stdout


def main(before: str = BEFORE, after: str = "HEAD") -> None:
    """Both tables, and how long files are at both commits."""
    after = _git("rev-parse", "--short", after).decode().strip()
    print("| | files | lines | median | p90 | longest | over 400 |\n|---|---|---|---|---|---|---|")
    for folder in FOLDERS:
        for commit in (before, after):
            print(sizes(folder, commit))
    for folder in FOLDERS:
        print(f"\n{table(folder, before, after)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
