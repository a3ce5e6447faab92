"""The command line as a program for `spark-submit`, on the client's machine or in the cluster.

    from strandline.cli.submitted import main
    main()

It takes the words that follow `strandline`. Where Spark runs, and with what, was said to
`spark-submit`, and is refused here, where it would come too late.
"""

from __future__ import annotations

import sys
from typing import Final

from strandline.cli.main import main as run_command_line

_TOO_LATE: Final = ("--master", "--memory", "--conf", "--archives", "--py-files", "--remote")
_INSTEAD: Final = {"--memory": "--driver-memory"}


def main() -> None:
    """Run a command such as `table run flights`, and exit as it does."""
    for word in sys.argv[1:]:
        name = word.partition("=")[0]
        if name in _TOO_LATE:
            sys.exit(
                f"strandline: {name} comes too late: Spark runs already. Give "
                f"{_INSTEAD.get(name, name)} to spark-submit, before the name of this program."
            )
    run_command_line()
