"""Seeds whose brokers have delegation tokens, with a client that makes, uses and ends them (I-60).

Such brokers have a second listener, with SASL: the client's connections come by that, those of all
others by the first one as ever. It knows the owner's password for PLAIN; tokens log in by SCRAM.
Drawn from a stream of its own, after everything else, so that other seeds stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

from strandline.sim.plan import ClientSpec, Plan

TOKENS: Final = "tokens"
"""The host of a client of the second listener begins so."""
LISTENER: Final = "SASL"
OWNERS_WORD: Final = "the-owners-password"
KEY: Final = "delegation.token.secret.key"
_ONE_OF: Final = 12
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def with_tokens(plan: Plan, random: Random) -> Plan:
    """The plan, or with tokens if its seed is of this kind."""
    if random.randrange(_ONE_OF):
        return plan
    settings = {
        **plan.options.settings,
        KEY: "key",
        "delegation.token.expiry.check.interval.ms": str(random.choice((500, 2_000, 3_600_000))),
    }
    wishes = {
        "every": random.choice(("50ms", "150ms", "400ms")),
        "life": random.choice(("1s", "3s", "8s")),
    }
    options = replace(plan.options, settings=settings)
    client = ClientSpec(TOKENS, f"{TOKENS}1", wishes)
    return replace(plan, options=options, clients=(*plan.clients, client))


def settings_of_tokens(settings: Mapping[str, str]) -> dict[str, str]:
    """What brokers are set to besides, if there are tokens."""
    if KEY not in settings:
        return {}
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:9092,{LISTENER}://127.0.0.1:9093",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "10",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
            f'{_PLAIN} user_{TOKENS}="{OWNERS_WORD}";'
        ),
    }
