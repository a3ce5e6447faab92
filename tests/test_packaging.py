"""What is installed: every file of the package that is no Python, too."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = (".so", ".c", ".pyc")


def test_every_file_of_the_packages_is_installed() -> None:
    """An editable install has them all anyway: only who installs a wheel would miss one."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, patterns in settings["package-data"].items():
        folder = ROOT / "src" / package
        named = {path for pattern in patterns for path in folder.glob(pattern)}
        there = {
            path
            for path in folder.rglob("*")
            if path.is_file() and path.suffix not in (".py", *MADE)
        }
        assert there <= named, there - named
