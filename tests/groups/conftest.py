"""Worlds for the tests of coordinators."""

from __future__ import annotations

import pytest

from tests.groups.world import World


@pytest.fixture
def world_type() -> type[World]:
    return World


@pytest.fixture
def world() -> World:
    return World()
