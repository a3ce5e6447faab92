"""Makes the page without a server: a directory of plain files for any web server.

    index.html, *.js, style.css, icon.svg     those of the live page, and tab.js before them
    pyodide/                                  Python for browsers (`pyodide`)
    python.memory                             its memory with the node, the simulator
                                              and what they need imported (`snapshot.mjs`)
    offline.js                                a service worker that keeps all of it

Drivers with sockets, threads or Spark stay away: a browser could not run them. What is compiled in
C here has its twin in Python in `stand_ins`. This file knows which files there are, and no content.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from strandline.ui.lab.pyodide import NEEDED, VERSION, WASM, cache_directory, pyodide, run

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE.parent / "static"
_PACKAGE: Final = _HERE.parents[1]
_STAND_INS: Final = _HERE / "stand_ins"

_ABSENT: Final = ("broker", "cli", "lakehouse", "schemas", "testing")
"""Rooms that no browser runs."""
_OF_UI: Final = (
    "__init__.py",
    "scenario_list.py",
    "lab/__init__.py",
    "lab/answers.py",
    "lab/warming.py",
)
_CODE: Final = (".py", ".txt")


def build(directory: Path) -> None:
    """Make the page in a directory, which may exist. Raises `CannotBuild`."""
    found = pyodide()
    (directory / "pyodide").mkdir(parents=True, exist_ok=True)
    for name in NEEDED:
        shutil.copy(found / name, directory / "pyodide" / name)
    _compress(directory / "pyodide" / WASM)
    for path in STATIC.rglob("*"):
        if path.is_file():
            target = directory / path.relative_to(STATIC)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    page = (STATIC / "index.html").read_text()
    page = page.replace("/static/main.js", "./tab.js").replace("/static/", "./")
    (directory / "index.html").write_text(page)
    _snapshot(found, directory / "python.memory")
    _write_offline(directory)


def built(begins: Callable[[], None] = lambda: None) -> Path:
    """The page of this version in the cache. If it is not there it is made, after `begins`.

    Raises `CannotBuild`.
    """
    target = cache_directory() / f"page-{_fingerprint()}"
    if not target.is_dir():
        begins()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as place:
            build(Path(place) / "page")
            for old in target.parent.glob("page-*"):
                shutil.rmtree(old, ignore_errors=True)
            (Path(place) / "page").rename(target)
    return target


def _files() -> Iterator[tuple[Path, str]]:
    """What goes into the code, with the names that it has there."""
    for path in sorted(_PACKAGE.rglob("*")):
        name = path.relative_to(_PACKAGE)
        room = name.parts[0]
        is_wanted = name.as_posix() in {f"ui/{each}" for each in _OF_UI} or room != "ui"
        if path.suffix in _CODE and is_wanted and room not in _ABSENT:
            yield path, f"{_PACKAGE.name}/{name.as_posix()}"
    for path in sorted(_STAND_INS.glob("*.py")):
        yield path, path.name


def _snapshot(found: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source.zip"
        with zipfile.ZipFile(source, "w") as packed:
            for path, name in _files():
                packed.write(path, name)
        run("node", _HERE / "snapshot.mjs", found, source, target, of="The page in a browser")


def _compress(path: Path) -> None:
    """In place, and under its name: a web server that knew of it would send it in another way."""
    path.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def _write_offline(directory: Path) -> None:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    names = ["./", *(f"./{path.relative_to(directory).as_posix()}" for path in files)]
    content = hashlib.sha256()
    for path in files:
        content.update(path.read_bytes())
    worker = (STATIC / "offline.js").read_text()
    worker = worker.replace('"unbuilt"', json.dumps(f"strandline-{content.hexdigest()[:16]}"))
    worker = worker.replace("FILES = []", f"FILES = {json.dumps(names)}")
    (directory / "offline.js").write_text(worker)


def _fingerprint() -> str:
    """What a page was made of; another version makes another one."""
    content = hashlib.sha256(VERSION.encode())
    static = (path for path in sorted(STATIC.rglob("*")) if path.is_file())
    for path in (*(path for path, _ in _files()), *static, _HERE / "snapshot.mjs"):
        content.update(path.read_bytes())
    return content.hexdigest()[:16]
