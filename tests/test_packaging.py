"""What is installed: every file of the package that is no Python, too; and what a release lists."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({}, ""),
        ({"click": ["colorama"], "colorama": []}, ""),
        ({"pip": [], "setuptools": ["pip"]}, "lists pip, setuptools, which the package does not"),
        ({"setuptools": ["click"]}, "lists setuptools, which the package does not need."),
    ],
)
def test_a_release_lists_nothing_that_the_package_does_not_need(
    tmp_path: Path, others: dict[str, list[str]], told: str
) -> None:
    """As cyclonedx-py writes it of an environment that has pip, of one without, and of others."""
    needs = {"click": [], "xxhash": [], **others}
    listed = {
        "metadata": {"component": {"name": "strandline", "bom-ref": "root-component"}},
        "components": [{"name": name, "bom-ref": f"{name}==1"} for name in needs],
        "dependencies": [
            {"ref": "root-component", "dependsOn": ["click==1", "xxhash==1"]},
            *(
                {"ref": f"{name}==1"}
                | ({"dependsOn": [f"{each}==1" for each in found]} if found else {})
                for name, found in needs.items()
            ),
        ],
    }
    path = tmp_path / "strandline.cdx.json"
    path.write_text(json.dumps(listed))
    script = [sys.executable, str(ROOT / "tools/check_sbom.py"), str(path)]
    checked = subprocess.run(script, capture_output=True, text=True, check=False)
    assert told in checked.stderr
    assert (checked.returncode, bool(checked.stderr)) == ((1, True) if told else (0, False))
