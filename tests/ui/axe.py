"""axe-core in a tab: what of a page cannot be used by keys, or be read or heard by everyone.

The script comes from npm, once, with a checksum, and is kept with the other things that tests
fetch. It is run by the browser's driver: the page's own policy lets no foreign script in.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from strandline.ui.lab.pyodide import run
from tests.ui.browser import Tab

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
# Two frames later all that was opened has its size.
RUN = """
new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
  .then(() => axe.run(document, { resultTypes: ["violations"] }))
  .then((found) => found.violations.flatMap((rule) => rule.nodes.map((node) =>
    `${rule.id}: ${node.html.slice(0, 160)} (${
      node.any.concat(node.all, node.none)[0]?.message ?? rule.help})`)))
"""


@cache
def script() -> str:
    """The source of axe-core."""
    default = Path.home() / ".cache/strandline-tests"
    place = Path(os.environ.get("STRANDLINE_TEST_CACHE", default)) / f"axe-core-{VERSION}.tgz"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as new:
            words = ("npm", "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", new)
            run(*words, of="axe")
            (Path(new) / place.name).rename(place)
    assert base64.b64encode(hashlib.sha512(place.read_bytes()).digest()).decode() == SHA512
    with tarfile.open(place) as packed:
        found = packed.extractfile("package/axe.min.js")
        assert found is not None
        return found.read().decode()


def violations(tab: Tab) -> list[str]:
    """What is wrong with what the tab shows now; each with the element that it is about."""
    if tab.value("typeof axe === 'undefined'"):
        tab.value(f"(() => {{ {script()} }})()")
    found: list[str] = tab.value(RUN)
    return found
