"""Pages point to what is there: files, folders, and headings of other pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"')


def anchors(page: str) -> set[str]:
    """What a link into a page may name: headings as GitHub writes them, and explicit anchors."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page))
    return {heading.strip().replace(" ", "-") for heading in headings} | set(ANCHOR.findall(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for file, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / file).resolve() if file else page
        if not target.exists():
            lost.append(file)
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            lost.append(f"{file}#{anchor}")
    assert not lost


def test_headings_are_named_as_github_does() -> None:
    page = '# What is *not* served?\n\n<a id="own"></a>\n\n## A, `b` and c'
    assert anchors(page) == {"what-is-not-served", "own", "a-b-and-c"}
