"""The generated page is current and complete."""

from __future__ import annotations

from pathlib import Path

from strandline.config.definition import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from strandline.config.document import page

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text("utf-8") == page(), (
        "run: python -m strandline.config.document > docs/configuration.md"
    )


def test_every_setting_has_its_row() -> None:
    rows = [line.split("`")[1] for line in page().splitlines() if line.startswith("| `")]
    for name in (*TOPIC_SETTINGS, *GROUP_SETTINGS, *BROKER_SETTINGS):
        assert name in rows, name


def test_rows_have_as_many_cells_as_their_header() -> None:
    cells = 0
    for line in page().splitlines():
        if not line.startswith("|"):
            cells = 0
            continue
        cells = cells or line.count("|")
        assert line.count("|") == cells, line
