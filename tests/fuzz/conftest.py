"""The marker of the tests that fuzz for seconds: `-m fuzz` runs them, `-m "not fuzz"` does not."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: coverage-guided fuzzing for a few seconds")
