"""Seeds whose clusters have an authorizer, with a client whose requests must be denied.

Drawn from a stream of its own, so that other seeds stay what they are.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import ClientSpec, Options
from strandline.sim.principals import INTRUDER
from strandline.types import ANONYMOUS

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_CHANCE: Final = 0.12


def with_authorizer(
    options: Options, clients: tuple[ClientSpec, ...], random: Random
) -> tuple[Options, tuple[ClientSpec, ...]]:
    """Some seeds have one, and an intruder."""
    if random.random() >= _CHANCE:
        return options, clients
    settings = {
        **options.settings,
        "authorizer.class.name": AUTHORIZER,
        "super.users": str(ANONYMOUS),
    }
    wishes = {
        "topic": random.choice(options.topics).name,
        "every": random.choice(("30ms", "100ms", "300ms")),
    }
    intruder = ClientSpec(INTRUDER, f"{INTRUDER}1", wishes)
    return replace(options, settings=settings), (*clients, intruder)
