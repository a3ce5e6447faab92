"""The page's server as a child that shows the tables in a directory, its first argument.

The rest is as in `strandline.ui`, which must not know tables.
"""

from __future__ import annotations

import sys
from functools import partial

from strandline.cli.page_options import tables_in
from strandline.ui.__main__ import main

if __name__ == "__main__":
    main(sys.argv[2:], partial(tables_in, sys.argv[1]))
