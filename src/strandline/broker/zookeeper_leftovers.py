"""What former sessions of this broker have left in ZooKeeper: it must go before anything is told.

A broker may learn of the end of its session before its ephemeral nodes are gone, and nodes of its
own would keep it from making them again (KAFKA-7165). So they are deleted, and the tree is read
again, before a survey ends.
"""

from __future__ import annotations

import logging
from typing import Any

from strandline.broker.zookeeper_mirror import Mirror
from strandline.broker.zookeeper_requests import Multi
from strandline.broker.zookeeper_session import ZooKeeperSession
from strandline.cluster.store import NO_SESSION, Delete, SessionId, Zxid

log = logging.getLogger(__name__)


class Leftovers:
    """The former sessions of one store."""

    def __init__(self) -> None:
        self._former: set[SessionId] = set()

    def session_ended(self, session: SessionId) -> None:
        """This broker has another session now."""
        if session != NO_SESSION:
            self._former.add(session)

    def clear(self, mirror: Mirror, link: ZooKeeperSession) -> bool:
        """Delete what there is, and have it read again; whether there was any."""
        found = mirror.owned_by(self._former)
        if found and mirror.is_tired:
            log.warning("%s of a former session of this broker will not go.", ", ".join(found))
            return False
        for path in found:
            log.info("%s is left of a former session of this broker: deleting it.", path)
            # Requests are carried out in order: the read that follows shows what came of it.
            link.ask(Multi([Delete(path)], chroot=link.chroot), _whatever)
            mirror.changed(path)
        return bool(found)


def _whatever(value: Any, error: Exception | None, zxid: Zxid) -> None:
    """For a request whose outcome is read from the tree."""
