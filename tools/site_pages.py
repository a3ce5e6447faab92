"""`python tools/site_pages.py SOURCE EXTRA`: what Sphinx makes the site of.

The pages of docs/ as they are, README.md in front of them, and the shelves of docs/README.md as the
table of contents. Links between pages stay; what has no page (a folder, a source file) becomes
plain text, since the site does not say where its repository lies. EXTRA holds the lessons, if they
were built.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:)([^)\s]+)\)")
ANCHOR: Final = re.compile(r'^<a (?:id|name)="([^"]+)"></a>$\n*', re.MULTILINE)
CHINESE_LINES: Final = re.compile(
    r"(?<=[\u3000-\u9fff\uff00-\uffef])\n(?=[\u3000-\u9fff\uff00-\uffef])"
)
"""Between a line that ends in Chinese and one that begins so, where a browser puts a space."""
SHELF: Final = re.compile(r"^## (.*)$", re.MULTILINE)
ROW: Final = re.compile(r"^\| \[[^\]]+\]\(([^)]+)\.md\)", re.MULTILINE)
FRONT: Final = {"README.md": "index.md", "README.zh.md": "zh.md", "CHANGELOG.md": "changelog.md"}
ICON: Final = ROOT / "src" / "strandline" / "ui" / "static" / "icon.svg"
LESSONS: Final = "<!-- site: lessons -->"
CONF: Final = """
project = "Strandline"
html_title = "Strandline"
extensions = ["myst_parser"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
html_theme = "furo"
html_extra_path = [{extra!r}]
html_copy_source = False
html_favicon = {icon!r}
html_show_sphinx = False
html_show_copyright = False
exclude_patterns = []
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
"""


def main() -> None:
    """See the module."""
    source, extra = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(DOCS, source)
    (source / "README.md").rename(source / "contents.md")
    for name, target in FRONT.items():
        text = CHINESE_LINES.sub("", (ROOT / name).read_text("utf-8"))
        (source / target).write_text(text, "utf-8")
    has_lessons = (extra / "learn").is_dir()
    for page in sorted(source.rglob("*.md")):
        text = _with_links(page.read_text("utf-8"), page, source)
        up = "../" * (len(page.relative_to(source).parts) - 1)
        told = f'<p><a href="{up}learn/#/lessons">Open the lessons and the lab</a></p>'
        page.write_text(text.replace(LESSONS, told if has_lessons else ""), "utf-8")
    index = source / "index.md"
    learn = ["Lessons and lab <learn-here>"] if has_lessons else []
    if has_lessons:
        (source / "learn-here.md").write_text(
            "# Lessons and lab\n\nA cluster in this browser tab, and seven lessons on it.\n\n"
            '<p><a href="learn/#/lessons/en">In English</a>, '
            '<a href="learn/#/lessons/zh">in Chinese</a>, or straight <a href="learn/#/lab">to the '
            "lab</a>. It loads 18.5 MB the first time.</p>\n",
            "utf-8",
        )
    index.write_text(index.read_text("utf-8") + _contents(learn), "utf-8")
    (source / "conf.py").write_text(CONF.format(extra=str(extra), icon=str(ICON)), "utf-8")


def _with_links(text: str, page: Path, source: Path) -> str:
    """With links as they are on the site."""

    def changed(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        path, hash_sign, anchor = target.partition("#")
        if not path:
            return link[0]
        # Pages that stood at the root of the repository name what lies in docs/.
        is_front = page.parent == source and page.name in FRONT.values()
        before = (ROOT if is_front else DOCS / page.parent.relative_to(source)) / path
        found = _on_site(before.resolve())
        if found is None or not (source / found).exists():
            return words if "`" in words or "]" in words else f"`{words}`"
        up = "../" * (len(page.relative_to(source).parts) - 1)
        return f"[{words}]({up}{found}{hash_sign}{anchor})"

    # Pictures of the front page lie in docs/ as well.
    text = ANCHOR.sub(r"\n(\1)=\n", text.replace("](docs/images/", "](images/"))
    return LINK.sub(changed, text)


def _on_site(path: Path) -> str | None:
    """Where a file of the repository is on the site, if it is there."""
    if path == DOCS / "README.md":
        return "contents.md"
    if path.parent == ROOT and path.name in FRONT:
        return FRONT[path.name]
    return path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) and path.suffix else None


def _contents(learn: list[str]) -> str:
    """The shelves as tables of contents, which become the site's navigation."""
    parts = SHELF.split((DOCS / "README.md").read_text("utf-8"))[1:]
    told = zip(parts[::2], parts[1::2], strict=True)
    # Generated pages stand on a shelf of their own once more, with their commands.
    shelves = [(title, ROW.findall(body)) for title, body in told if title != "Generated pages"]
    shelves[0] = (shelves[0][0], [*learn, *shelves[0][1]])
    shelves.append(("More", ["contents", "zh", "changelog"]))
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
        for title, pages in shelves
    )


if __name__ == "__main__":
    main()
