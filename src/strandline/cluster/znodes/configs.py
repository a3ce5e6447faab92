"""`/config/topics/<t>`, `/config/brokers/<id>`, `/config/groups/<g>`, `/config/users/<u>`,
`/config/clients/<c>`, `/config/users/<u>/clients/<c>`, `/config/ips/<ip>`: what was set at run
time.

    {"version": 1, "config": {"retention.ms": "60000"}}

The broker named `<default>` in a path holds what is set for all brokers; in requests that same
resource has the empty name, as with users and clients. Their names, and the ids of groups,
may have any characters and are percent-encoded. A node in between, which is there for those below
it, may have no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from strandline.cluster.znodes.content import DOTS, Content, Extra, encoded

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
    USER_CLIENT = -3
    """A user with a client id, and the node above those of a user, which has no settings."""
    IP = -4
    """Below zero: not on the wire. Requests of their own are about users and client ids."""


_FOLDERS: Final = {
    ResourceKind.TOPIC: "topics",
    ResourceKind.BROKER: "brokers",
    ResourceKind.GROUP: "groups",
    ResourceKind.USER: "users",
    ResourceKind.CLIENT: "clients",
    ResourceKind.IP: "ips",
}
_ENCODED: Final = (
    ResourceKind.GROUP,
    ResourceKind.USER,
    ResourceKind.CLIENT,
    ResourceKind.IP,
)
_CLIENTS: Final = "clients"
_KINDS: Final = {folder: kind for kind, folder in _FOLDERS.items()}


class ConfigResource(NamedTuple):
    """Whose settings. The broker with the empty name stands for every broker.

    The name of a USER_CLIENT is the end of its path: `<user>/clients/<client>`, both encoded.
    """

    kind: ResourceKind
    name: str

    @property
    def path(self) -> str:
        if self.kind is ResourceKind.USER_CLIENT:
            return f"{ROOT}/{_FOLDERS[ResourceKind.USER]}/{self.name}"
        name = _encoded(self.name) if self.kind in _ENCODED else self.name or _DEFAULT_NODE
        return f"{ROOT}/{_FOLDERS[self.kind]}/{name}"

    @classmethod
    def of_user(cls, user: str, client: str | None) -> ConfigResource:
        """A user's client id; None: the node above those of the user."""
        above = f"{_encoded(user)}/{_CLIENTS}"
        name = above if client is None else f"{above}/{_encoded(client)}"
        return cls(ResourceKind.USER_CLIENT, name)

    @property
    def user_and_client(self) -> tuple[str, str | None]:
        """The inverse of `of_user`, of a USER_CLIENT."""
        user, _, *client = self.name.split("/")
        return _decoded(user), _decoded(client[0]) if client else None

    @classmethod
    def of_path(cls, folder: str, name: str, *below: str) -> ConfigResource | None:
        """The resource of `/config/<folder>/<name>/...`, or None if it is of no known kind."""
        kind = _KINDS.get(folder)
        if below:
            if kind is not ResourceKind.USER or below[0] != _CLIENTS or len(below) > 2:
                return None
            return cls(ResourceKind.USER_CLIENT, "/".join((name, *below)))
        if kind is None:
            return None
        if kind in _ENCODED:
            return cls(kind, _decoded(name))
        return cls(kind, CLUSTER_DEFAULT if name == _DEFAULT_NODE else name)


def _encoded(name: str) -> str:
    if not name:
        return _DEFAULT_NODE
    return DOTS.get(name) or quote(name, safe="")


def _decoded(name: str) -> str:
    return CLUSTER_DEFAULT if name == _DEFAULT_NODE else unquote(name)


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """Overrides by setting name, in text form."""

    overrides: Mapping[str, str]
    extra: Extra = field(default_factory=dict)

    def encode(self) -> bytes:
        return encoded({"version": _VERSION, "config": dict(self.overrides)}, self.extra)

    @classmethod
    def decode(cls, resource: ConfigResource, data: bytes) -> ConfigNode:
        if not data and resource.kind in (ResourceKind.USER, ResourceKind.USER_CLIENT):
            return ConfigNode({})
        content = Content(resource.path, data)
        content.integer("version")
        return cls(overrides=content.text_mapping("config"), extra=content.rest())
