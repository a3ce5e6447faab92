"""Where the servers of the tests come from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.kafka_jars import JarsError, zookeeper_jars


def test_zookeeper_comes_alone_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each library is named: what ZooKeeper could load, but does not, is not fetched."""
    projects: list[str] = []

    def fetch(command: list[str], **_: object) -> object:
        directory = Path(command[-1].partition("=")[2])
        projects.append((directory / "pom.xml").read_text())
        (directory / "zookeeper-3.9.5.jar").touch()
        return type("Done", (), {"returncode": 0})

    monkeypatch.delenv("STRANDLINE_ZOOKEEPER_JARS", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", fetch)
    assert zookeeper_jars(tmp_path) == zookeeper_jars(tmp_path) == tmp_path / "zookeeper-3.9.5"
    assert len(projects) == 1
    namespace = "{http://maven.apache.org/POM/4.0.0}"
    wanted = list(ElementTree.fromstring(projects[0]).iter(f"{namespace}dependency"))
    assert len(wanted) > 5
    assert all(one.find(f"{namespace}exclusions") is not None for one in wanted)


def test_a_directory_without_zookeeper_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_ZOOKEEPER_JARS", str(tmp_path))
    with pytest.raises(JarsError, match="holds no zookeeper"):
        zookeeper_jars(tmp_path / "unused")
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    assert zookeeper_jars(tmp_path / "unused") == tmp_path


def test_without_maven_the_sentence_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRANDLINE_ZOOKEEPER_JARS", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(JarsError, match="STRANDLINE_ZOOKEEPER_JARS"):
        zookeeper_jars(tmp_path)
