"""The three tables of all settings that Kafka 4.3 knows, those of its ZooKeeper era, and our own.

They are in `settings.txt`; how a row is written is in `table`, and what it means in `setting`.
"""

from __future__ import annotations

from os.path import dirname, join
from typing import Final

from strandline.config.setting import Importance, Service, Setting, Synonym, Update
from strandline.config.table import read_sections

__all__ = [
    "TOPIC_SETTINGS",
    "GROUP_SETTINGS",
    "BROKER_SETTINGS",
    "BROKER_SECTIONS",
    "Setting",
    "Synonym",
    "Importance",
    "Service",
    "Update",
]

BROKER_SECTIONS: Final = read_sections(join(dirname(__file__), "settings.txt"))
"""The broker settings in the order in which documentation shows them."""

TOPIC_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for setting in BROKER_SECTIONS.pop("Topics")
}
GROUP_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for setting in BROKER_SECTIONS.pop("Groups")
}
BROKER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for section in BROKER_SECTIONS.values() for setting in section
}
