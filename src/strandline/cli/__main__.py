"""`python -m strandline.cli` is the command `strandline`."""

from __future__ import annotations

from strandline.cli.main import main

main()
