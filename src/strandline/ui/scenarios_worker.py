"""Plays the script on standard input, bounded, and prints its document or why there is none."""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from typing import Final

from strandline.errors import StrandlineError
from strandline.ui.lab.answers import Answers

_MEMORY_BYTES_MAX: Final = 1 << 30
_DOCUMENT_CHARACTERS_MAX: Final = 8 << 20


def main() -> None:
    """See the module."""
    with suppress(ValueError, OSError):  # macOS has the limit and refuses to set it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    try:
        text = sys.stdin.buffer.read().decode()
        shown = json.dumps(Answers().play(text))
    except UnicodeDecodeError:
        shown = json.dumps({"refused": "The script is not text."})
    except StrandlineError as error:
        shown = json.dumps({"refused": str(error)})
    if len(shown) <= _DOCUMENT_CHARACTERS_MAX:
        sys.stdout.write(shown)


if __name__ == "__main__":
    main()
