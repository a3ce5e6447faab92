"""Names of settings to reset: a broker takes any of them, as Kafka's do, and misspelt ones change
nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import click

from strandline.client.admin_configs import ConfigAdmin, Resource, ResourceType
from strandline.config.definition import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
)
from strandline.config.resolve import listener_base
from strandline.config.unknown import unknown_setting

_KNOWN: Final[Mapping[ResourceType, tuple[str, Mapping[str, Setting]]]] = {
    ResourceType.TOPIC: ("topic setting", TOPIC_SETTINGS),
    ResourceType.BROKER: ("broker setting", BROKER_SETTINGS),
    ResourceType.GROUP: ("group setting", GROUP_SETTINGS),
}


def names_that_count(admin: ConfigAdmin, resource: Resource, names: Collection[str]) -> set[str]:
    """Those that can have been set for the resource; standard error tells of the others.

    They are sent nevertheless: another version may have stored what this one does not show.
    """
    doubts = {name: doubt for name in names if (doubt := _doubt(resource.kind, name)) is not None}
    if doubts:
        shown = {each.name for each in admin.describe(resource) if each.is_own_of(resource)}
        if resource.kind is ResourceType.BROKER:
            shown -= BROKER_SETTINGS.keys()  # a file has set them, which is not reset
        for name in shown & doubts.keys():
            del doubts[name]
    for doubt in doubts.values():
        click.echo(doubt, err=True)
    return set(names) - doubts.keys()


def _doubt(kind: ResourceType, name: str) -> str | None:
    """Why nothing by that name can have been set, if so."""
    what, known = _KNOWN[kind]
    setting = known.get(name)
    if setting is None:
        if kind is ResourceType.BROKER and listener_base(name) is not None:
            return None
        return str(unknown_setting(name, known, what))
    if kind is ResourceType.BROKER and not setting.is_dynamic:
        return f"{name} cannot change at run time."
    return None
