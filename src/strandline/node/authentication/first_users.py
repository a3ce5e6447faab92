"""`--add-scram`: users that a cluster begins with, in the form of `kafka-storage format`.

    SCRAM-SHA-512=[name=alice,password=...]
    SCRAM-SHA-256=[name=bob,password=file:/run/secrets/bob,iterations=8192]

A user that is there already stays as it is: the option may remain in a service's command. The
password may be a reference (`env:NAME`, `file:PATH`), which is in no list of processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from strandline.client.security.secret import Secret
from strandline.cluster.controller.topic_writes import config_write
from strandline.cluster.image import ClusterImage
from strandline.cluster.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    ScramMechanism,
)
from strandline.cluster.store import Operation
from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.errors import InvalidSetting
from strandline.numerals import whole_number

OPTION: Final = "--add-scram"
_FORM: Final = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]")
_PARTS: Final = re.compile(r'([a-z]+)=("[^"]*"|[^,]*)(?:,|$)')
_SALT_BITS: Final = 160


@dataclass(frozen=True, slots=True)
class FirstUser:
    """One of them, with a credential for one mechanism."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential = field(repr=False)


def parse_first_user(text: str, random: Random) -> FirstUser:
    """Read the value of the option. Raises `InvalidSetting`, which repeats none of it."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise _refused("takes SCRAM-SHA-512=[name=NAME,password=PASSWORD], or SCRAM-SHA-256")
    given = {name: value.strip('"') for name, value in _PARTS.findall(match[2])}
    unknown = given.keys() - {"name", "password", "iterations"}
    if unknown or not given.get("name") or not given.get("password"):
        raise _refused("takes name=NAME,password=PASSWORD and perhaps iterations=N in its brackets")
    iterations = whole_number(given.get("iterations", str(ITERATIONS_MIN)), ITERATIONS_MAX)
    if iterations is None or iterations < ITERATIONS_MIN:
        raise _refused(f"takes iterations from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    mechanism = MECHANISMS[match[1]]
    password = Secret(OPTION, given["password"]).reveal()
    salt = random.getrandbits(_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
    credential = ScramCredential.of_password(mechanism, password, salt, iterations)
    return FirstUser(given["name"], mechanism, credential)


def first_users(image: ClusterImage, users: Iterable[FirstUser]) -> Sequence[Operation]:
    """What makes those that there are not."""
    wanted: dict[ConfigResource, dict[str, str]] = {}
    for user in users:
        resource = ConfigResource(ResourceKind.USER, user.name)
        settings = wanted.setdefault(resource, dict(image.overrides(resource)))
        settings.setdefault(user.mechanism.sasl_name, user.credential.text())
    return [
        operation
        for resource, settings in wanted.items()
        if settings != image.overrides(resource)
        for operation in config_write(image, resource, settings)
    ]


def _refused(what: str) -> InvalidSetting:
    return InvalidSetting(OPTION, f"{OPTION} {what}.")
