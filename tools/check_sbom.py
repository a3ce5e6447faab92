"""Checks a list of what an installation consists of: the package, and what it needs; nothing else.

python tools/check_sbom.py dist/strandline-0.1.0.cdx.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def surplus(listed: dict[str, Any]) -> list[str]:
    """The components of a list in CycloneDX's JSON that the package needs on no way."""
    needs = {each["ref"]: each.get("dependsOn", ()) for each in listed["dependencies"]}
    needed: set[str] = set()
    found = [listed["metadata"]["component"]["bom-ref"]]
    while found:
        reference = found.pop()
        if reference not in needed:
            needed.add(reference)
            found += needs.get(reference, ())
    return [each["name"] for each in listed["components"] if each["bom-ref"] not in needed]


def main(path: str) -> None:
    """Exit with a sentence for what should not be there."""
    names = surplus(json.loads(Path(path).read_text()))
    if names:
        sys.exit(f"{path} lists {', '.join(names)}, which the package does not need.")


if __name__ == "__main__":
    main(sys.argv[1])
