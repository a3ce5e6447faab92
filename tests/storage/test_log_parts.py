"""Each field of a log is written by the part that owns it, and by no other file."""

from __future__ import annotations

import ast
from pathlib import Path

import strandline
from strandline.storage.log import Log
from strandline.storage.log_parts import LogParts

SOURCE = Path(strandline.__file__).parent
PARTS = {name.lstrip("_") for name in (*Log.__slots__, *LogParts._fields)} - {"random"}


def foreign_writes(path: Path) -> list[str]:
    """Assignments to a field of a part: `log.offsets.x = ...`, `self._health.y += ...`."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)):
            continue
        owner = node.value
        name = (
            owner.attr
            if isinstance(owner, ast.Attribute)
            else owner.id
            if isinstance(owner, ast.Name)
            else ""
        )
        if name.lstrip("_") in PARTS:
            found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_such_a_write_is_found(tmp_path: Path) -> None:
    file = tmp_path / "part.py"
    file.write_text("self._offsets.high_watermark = 3\nlog.health.closed = True\nself.closed = 1\n")
    assert len(foreign_writes(file)) == 2


def test_no_other_file_writes_a_field_of_a_part() -> None:
    files = SOURCE.glob("storage/**/*.py")
    assert [write for path in files for write in foreign_writes(path)] == []
