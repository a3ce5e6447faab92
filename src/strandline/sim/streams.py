"""Randomness of one run: independent, named generators that one seed makes.

A draw from one stream never shifts another. So a run in which one link, disk or client is asked for
less (because a fault was taken out of its plan) draws the same everywhere else.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random


class Streams:
    """The generators of one seed, each made when its name is first used."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[str, Random] = {}

    def __call__(self, name: str) -> Random:
        """The generator of that name: always the same one, in the state its users left it in."""
        made = self._made.get(name)
        if made is None:
            digest = sha256(f"{self.seed} {name}".encode()).digest()
            made = self._made[name] = Random(int.from_bytes(digest, "big"))
        return made
