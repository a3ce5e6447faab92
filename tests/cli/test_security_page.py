"""docs/security.md: its commands are run as they stand, its files are written as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import DEADLINE_S

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BLOCK = re.compile(r"(.*?)```(sh|properties)\n(.*?)```", re.DOTALL)
NAME = re.compile(r"`(\w+\.properties)`")
SHOWN = re.compile(r"SASL_SSL://(127\.0\.0\.1:\d+)")


def run(command: str, directory: Path) -> str:
    words = command.replace("strandline ", f"{sys.executable} -m strandline.cli ")
    ended = subprocess.run(
        ["bash", "-ec", words],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, (command, ended.stderr)
    return ended.stdout


def begin(command: str, directory: Path) -> tuple[subprocess.Popen[str], str]:
    """Start brokers; their process, and where the first of them listens."""
    words = command.strip().replace("strandline ", f"exec {sys.executable} -m strandline.cli ")
    process = subprocess.Popen(
        ["bash", "-ec", words],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = None
    for line in process.stdout:
        found = SHOWN.search(line)
        address = address or (found and found[1])
        if "ready" in line:
            break
    if address is None:
        _, errors = process.communicate(timeout=DEADLINE_S)
        pytest.fail(errors)
    return process, address


def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    brokers: subprocess.Popen[str] | None = None
    address = ""
    printed = ""
    try:
        for before, kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if kind == "properties":
                content = text.replace("//127.0.0.1:9092", "//127.0.0.1:0")
                name = NAME.findall(before)[-1]
                (tmp_path / name).write_text(content.replace("localhost:9092", address))
            elif "strandline serve" in text:
                brokers, address = begin(text, tmp_path)
            else:
                printed += run(text, tmp_path)
        assert printed.splitlines()[-1] == "one"
    finally:
        assert brokers is not None
        brokers.terminate()
        out, errors = brokers.communicate(timeout=DEADLINE_S)
    assert out.splitlines()[-1] == "Stopped cleanly.", errors
    for secret in tmp_path.glob("*.password"):
        assert secret.read_text().strip() not in out + errors
