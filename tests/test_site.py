"""What Sphinx makes the site of: every page is there and reached. `tools/site` makes all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    (place / "extra" / "learn").mkdir(parents=True)
    words = [ROOT / "tools" / "site_pages.py", place / "source", place / "extra"]
    subprocess.run([sys.executable, *words], check=True)
    return place / "source"


def test_every_page_is_in_the_table_of_contents(source: Path) -> None:
    index = (source / "index.md").read_text("utf-8")
    blocks = re.findall(r"^```\{toctree\}$(.*?)^```$", index, re.MULTILINE | re.DOTALL)
    listed = [
        re.sub(r".*<(.*)>", r"\1", line)
        for block in blocks
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    pages = {page.relative_to(source).with_suffix("").as_posix() for page in source.rglob("*.md")}
    assert sorted(listed) == sorted(pages - {"index"})


def test_links_between_pages_stay_links(source: Path) -> None:
    """And those to what has no page become text, since Sphinx would refuse them."""
    for page in source.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), (page.name, target)
    index = (source / "index.md").read_text("utf-8")
    assert "[docs/cli.md](cli.md)" in index
    assert "`packaging/`" in index
    assert 'href="learn/#/lessons"' in (source / "for-teachers.md").read_text("utf-8")
