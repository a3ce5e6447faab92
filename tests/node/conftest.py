"""The world of most tests: one node with a topic, checked for leaks at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A node with the topic `orders`, one partition."""
    world = World()
    world.create_topic("orders")
    yield world
    world.check()
