"""`/feature`: the levels of features that an administrator has set (KIP-584).

    {"version": 2, "status": 1, "features": {"transaction.version": 2}}

As Kafka wrote it beside ZooKeeper. In version 1 a level was an object with `min_version_level` and
`max_version_level`; it is read. Status 0 says that no level is in force. A feature that is not
here has no level of its own: see `cluster.features`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from strandline.cluster.znodes.content import Content, Extra, Json, encoded

_VERSION: Final = 2
_DISABLED: Final = 0
_ENABLED: Final = 1


@dataclass(frozen=True, slots=True)
class FeatureNode:
    """Feature names to levels; level 0 is a feature that was switched off."""

    path: ClassVar[str] = "/feature"
    levels: Mapping[str, int] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)

    def encode(self) -> bytes:
        levels: dict[str, Json] = dict(sorted(self.levels.items()))
        return encoded({"version": _VERSION, "status": _ENABLED, "features": levels}, self.extra)

    @classmethod
    def decode(cls, data: bytes) -> FeatureNode:
        content = Content(cls.path, data)
        content.integer("version")
        is_enabled = content.integer("status") != _DISABLED
        levels = {}
        for name, level in content.mapping("features").items():
            match level:
                case {"max_version_level": int(highest)}:
                    levels[name] = highest
                case int() if not isinstance(level, bool):
                    levels[name] = level
                case _:
                    raise content.malformed(f"the feature {name!r} has no level")
        return cls(levels if is_enabled else {}, content.rest())
