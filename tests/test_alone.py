"""What runs in a process of its own fails like a test."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.alone import run_alone


def is_another_process(parent: str) -> None:
    assert os.getpid() != int(parent)


def fails(word: str) -> None:
    assert word == "another", "it was said so"


def warns() -> None:
    warnings.warn("old", DeprecationWarning, stacklevel=1)


def test_a_function_runs_in_another_process() -> None:
    run_alone(is_another_process, str(os.getpid()))


def test_what_fails_there_fails_here() -> None:
    with pytest.raises(AssertionError, match="it was said so"):
        run_alone(fails, "this")
    with pytest.raises(AssertionError, match="DeprecationWarning"):
        run_alone(warns)
