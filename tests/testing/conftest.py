"""The plugin's own fixtures, also where the plugin is not installed; and no bug goes unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from strandline.testing.plugin import strandline_broker, strandline_cluster

__all__ = ["no_errors", "strandline_broker", "strandline_cluster"]


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever is done to brokers, none of them logs an error: those are for bugs and disks."""
    yield
    errors = [
        each
        for each in caplog.get_records("call")
        if each.levelno >= logging.ERROR and each.name.startswith(("strandline", "asyncio"))
    ]
    assert not errors, errors[0].getMessage()
