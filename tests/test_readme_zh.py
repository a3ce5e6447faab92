"""README.zh.md says what README.md says: the same sections, commands, pictures and links.

Sentences cannot be compared. What a change of README.md adds or takes away shows in one of these
four, and then README.zh.md is changed with it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
NAME = re.compile(r"`([^`\n]+)`")
COMMENT = re.compile(r"\s+#.*$", re.MULTILINE)
EACH_OTHER = {"README.md", "README.zh.md"}


class Section(NamedTuple):
    level: int
    blocks: list[str]
    links: list[str]
    names: list[str]
    paragraphs: int


def sections(text: str) -> list[Section]:
    """Each heading with its blocks of code without comments, links, and words in backquotes."""
    found = []
    for part in re.split(r"^(?=#+ )", BLOCK.sub(kept, text), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        blocks = [BLOCKS[int(number)] for number in re.findall(r"^@(\d+)$", body, re.MULTILINE)]
        prose = " ".join(body.split())
        found.append(
            Section(
                len(head) - len(head.lstrip("#")),
                [COMMENT.sub("", block) for block in blocks],
                sorted(each for each in LINK.findall(prose) if each not in EACH_OTHER),
                sorted(NAME.findall(prose)),
                len([each for each in re.split(r"\n{2,}", body.strip()) if each]),
            )
        )
    return found


BLOCKS: list[str] = []


def kept(block: re.Match[str]) -> str:
    """Its number in place of a block, whose comments would look like headings."""
    BLOCKS.append(block[0])
    return f"@{len(BLOCKS) - 1}"


def test_both_readmes_have_the_same_structure() -> None:
    english, chinese = (
        sections((ROOT / name).read_text("utf-8")) for name in ("README.md", "README.zh.md")
    )
    assert len(chinese) == len(english)
    for ours, theirs in zip(chinese, english, strict=True):
        assert ours == theirs


def test_both_lead_to_each_other() -> None:
    assert "[中文](README.zh.md)" in (ROOT / "README.md").read_text("utf-8")
    assert "[English](README.md)" in (ROOT / "README.zh.md").read_text("utf-8")
