"""`/config/topics/<t>`, `/config/brokers/<id>`, `/config/groups/<g>`, `/config/users/<u>`,
`/config/clients/<c>`: what was set at run time.

    {"version": 1, "config": {"retention.ms": "60000"}}

The broker named `<default>` in a path holds what is set for all brokers; in requests that same
resource has the empty name, as with users and clients. Their names, and the ids of groups,
may have any characters and are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from strandline.cluster.znodes.content import Content, Extra, encoded

ROOT: Final = "/config"
CLUSTER_DEFAULT: Final = ""
_DEFAULT_NODE: Final = "<default>"
_VERSION: Final = 1


class ResourceKind(IntEnum):
    """Kinds of resource with settings of their own, by the number they have on the wire."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32
    USER = -1
    CLIENT = -2
    """Not on the wire: requests of their own are about users and client ids."""


_FOLDERS: Final = {
    ResourceKind.TOPIC: "topics",
    ResourceKind.BROKER: "brokers",
    ResourceKind.GROUP: "groups",
    ResourceKind.USER: "users",
    ResourceKind.CLIENT: "clients",
}
_ENCODED: Final = (ResourceKind.GROUP, ResourceKind.USER, ResourceKind.CLIENT)
_KINDS: Final = {folder: kind for kind, folder in _FOLDERS.items()}


class ConfigResource(NamedTuple):
    """Whose settings. The broker with the empty name stands for every broker."""

    kind: ResourceKind
    name: str

    @property
    def path(self) -> str:
        name = self.name or _DEFAULT_NODE
        if self.kind in _ENCODED and self.name:
            name = quote(name, safe="")
        return f"{ROOT}/{_FOLDERS[self.kind]}/{name}"

    @classmethod
    def of_path(cls, folder: str, name: str) -> ConfigResource | None:
        """The resource of `/config/<folder>/<name>`, or None if it is of no known kind."""
        kind = _KINDS.get(folder)
        if kind is None:
            return None
        if kind in _ENCODED and name != _DEFAULT_NODE:
            return cls(kind, unquote(name))
        return cls(kind, CLUSTER_DEFAULT if name == _DEFAULT_NODE else name)


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """Overrides by setting name, in text form."""

    overrides: Mapping[str, str]
    extra: Extra = field(default_factory=dict)

    def encode(self) -> bytes:
        return encoded({"version": _VERSION, "config": dict(self.overrides)}, self.extra)

    @classmethod
    def decode(cls, resource: ConfigResource, data: bytes) -> ConfigNode:
        content = Content(resource.path, data)
        content.integer("version")
        return cls(overrides=content.text_mapping("config"), extra=content.rest())
