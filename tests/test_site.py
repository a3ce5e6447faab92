"""What Sphinx makes the site of: every page is there and reached. `tools/site` makes all of it.

That takes a minute: axe looks at a site that was made before, which STRANDLINE_SITE names.

    tools/site --out site && STRANDLINE_SITE=site python -m pytest tests/test_site.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.axe import violations
from tests.ui.browser import Tab, browser
from tests.ui.built import files

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


def test_chinese_lines_are_joined_without_spaces(source: Path) -> None:
    chinese = (source / "zh.md").read_text("utf-8")
    assert not re.search(r"[\u4e00-\u9fff]\n[\u4e00-\u9fff]", chinese)


# -- The site itself ---------------------------------------------------------------------------

SITE = os.environ.get("STRANDLINE_SITE")
LOOKS = ((1280, False), (360, True))
"""Width in pixels, and whether it is dark."""
INSIDE = ("lessons/en", "lessons/zh", "lessons/en/leader-epochs", "lessons/zh/leader-epochs", "lab")

made = pytest.mark.skipif(SITE is None, reason="STRANDLINE_SITE names no site.")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with files(Path(str(SITE))) as served:
        yield served


def wrong_with(tab: Tab, address: str, seen: str) -> list[str]:
    """What axe, the console and the width say of a page when that is to be seen."""
    tab.open("about:blank")
    tab.complaints.clear()
    tab.open(address)
    tab.wait_until(f"document.readyState === 'complete' && {seen}")
    too_wide = [f"{tab.overflow} pixels too wide"] if tab.overflow else []
    return [*violations(tab), *tab.complaints, *too_wide]


@made
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_axe_finds_nothing_wrong_with_the_site(
    tab: Tab, address: str, width: int, dark: bool
) -> None:
    """All pages; the search with what it finds; lessons in both languages, and the lab."""
    site = Path(str(SITE))
    names = [each.relative_to(site) for each in site.rglob("*.html")]
    pages = {each.as_posix(): "true" for each in sorted(names) if each.parts[0] != "learn"}
    assert len(pages) > 50
    pages["search.html?q=epoch"] = "document.querySelectorAll('#search-results li').length > 3"
    if (site / "learn").is_dir():
        pages |= {f"learn/#/{each}": "document.querySelector('main h1')" for each in INSIDE}
    tab.size(width, 900, dark=dark)
    found = {each: wrong_with(tab, address + each, seen) for each, seen in pages.items()}
    assert {each: wrong for each, wrong in found.items() if wrong} == {}
