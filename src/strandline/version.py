"""The version of this package, for everything inside it."""

from typing import Final

VERSION: Final = "0.1.0"
"""As in pyproject.toml."""
