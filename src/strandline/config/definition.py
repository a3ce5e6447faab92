"""The two tables of all settings that Kafka 4.3 knows, those of its ZooKeeper era, and our own.

Putting them together is all that this file does; what a row means is in `setting`.
"""

from __future__ import annotations

from typing import Final

from strandline.config.setting import Importance, Service, Setting, Synonym, Update
from strandline.config.tables.controller import CONTROLLER
from strandline.config.tables.groups import GROUPS
from strandline.config.tables.log import LOG
from strandline.config.tables.network import NETWORK
from strandline.config.tables.remote import REMOTE
from strandline.config.tables.replication import REPLICATION
from strandline.config.tables.security import SECURITY
from strandline.config.tables.share import SHARE
from strandline.config.tables.strandline import STRANDLINE
from strandline.config.tables.topic import TOPIC
from strandline.config.tables.transactions import TRANSACTIONS
from strandline.config.tables.zookeeper import ZOOKEEPER

__all__ = [
    "TOPIC_SETTINGS",
    "BROKER_SETTINGS",
    "BROKER_SECTIONS",
    "Setting",
    "Synonym",
    "Importance",
    "Service",
    "Update",
]

BROKER_SECTIONS: Final = {
    "Network and identity": NETWORK,
    "Logs and topics": LOG,
    "Consumer groups": GROUPS,
    "Producers and transactions": TRANSACTIONS,
    "Replication and quotas": REPLICATION,
    "Security": SECURITY,
    "Controller, metadata and metrics": CONTROLLER,
    "ZooKeeper": ZOOKEEPER,
    "Share groups": SHARE,
    "Tiered storage": REMOTE,
    "Strandline's own": STRANDLINE,
}
"""The broker settings in the order in which documentation shows them."""

TOPIC_SETTINGS: Final[dict[str, Setting]] = {setting.name: setting for setting in TOPIC}
BROKER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting for section in BROKER_SECTIONS.values() for setting in section
}
