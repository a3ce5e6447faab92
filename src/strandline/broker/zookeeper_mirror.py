"""What the listener knows of a ZooKeeper tree, and what must be read to tell it more.

ZooKeeper says that a node has changed, not what it is now; and while the connection is down it says
nothing. The mirror turns both into `Changes`: it says what to read, takes the answers, and gives
the difference to what it told before. It knows no connection and no time.

Theory: answers and change events come in the order in which the server served and did things. So
when every read is answered and no event has come since its answer's node was asked for, the nodes
read are what the tree was at the last answer: telling all of them at once shows the listener a
state that existed, with every transaction whole. A *cut* is that moment. If others keep changing
what is being read, the moment may never come; after `ROUNDS_MAX` rounds of reading the mirror tells
what it has, which is newer than what it told before for each node, only not of one moment.

A *survey* reads everything below the roots, for the first view and after each gap in the events:
what it does not find is gone. Whatever a survey must discover by listing is read before it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from strandline.broker.zookeeper_requests import NodeRead, Read, ReadAnswer, Unreadable
from strandline.cluster.net_effect import difference
from strandline.cluster.store import NO_ZXID, Changes, SessionId, StoredNode, StoreView, Zxid
from strandline.cluster.tree import ROOT, child_path

ROUNDS_MAX: Final = 5
_OWN_NODES: Final = "/zookeeper"
"""Where ZooKeeper keeps its own things, below the root of all."""


class Mirror:
    """The told nodes of a tree and the reading under way."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)
        self._published: dict[str, StoredNode] = {}
        self._zxid = NO_ZXID
        self._seen_zxid = NO_ZXID
        # What this cut has read. None: there is no such node.
        self._found: dict[str, StoredNode | None] = {}
        # Paths to be read because something happened to them; and what a survey still has to read.
        self._changed: dict[str, None] = {}
        self._undiscovered: dict[Read, None] = {}
        self._unanswered = 0
        self._is_survey = False
        self._rounds_of_cut = 0
        self.round = 0
        """How many rounds of reading have begun. A change that was announced before a moment is
        part of the cut in which round `settled_with` of that moment ended."""
        self.unreadable: dict[str, Unreadable] = {}
        """Nodes that the server did not show to this cut, which therefore cannot be told."""

    @property
    def settled_with(self) -> int:
        """The round whose end covers everything that has been announced so far."""
        return self.round + 1 if self._changed or self._undiscovered else self.round

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be read."""
        return not (self._unanswered or self._changed or self._undiscovered)

    @property
    def may_publish(self) -> bool:
        """Whether the cut is whole, or as whole as it is going to be."""
        if self._unanswered or self._undiscovered:
            return False
        return not self._changed or self.is_tired

    @property
    def is_tired(self) -> bool:
        """Whether this cut has been read so often that it will do as it is."""
        return self._rounds_of_cut >= ROUNDS_MAX

    def survey(self) -> None:
        """Begin to read everything anew; whatever was under way is forgotten."""
        self.abort()
        self._is_survey = True
        self._undiscovered = {Read(root): None for root in self._roots}

    def abort(self) -> None:
        """Forget the reading under way: its answers will not come."""
        self._end_cut()
        self._changed = {}
        self._undiscovered = {}
        self._unanswered = 0

    def changed(self, path: str) -> None:
        """Something happened to the node."""
        if _is_ours(path):
            self._changed[path] = None

    def next_round(self) -> list[Read]:
        """What to read now; nothing while a round is under way. The next round covers it all."""
        if self._unanswered or self.is_settled:
            return []
        if not self._undiscovered:
            self._rounds_of_cut += 1
        reads = list(self._undiscovered)
        reads += [read for path in self._changed if (read := Read(path)) not in self._undiscovered]
        self._changed = {}
        self._undiscovered = {}
        self._unanswered = len(reads)
        self.round += 1
        return reads

    def answered(self, reads: Sequence[Read], answers: Sequence[ReadAnswer]) -> None:
        """The answers to some of the reads of a round."""
        for read, answer in zip(reads, answers, strict=True):
            self._unanswered -= 1
            match answer:
                case NodeRead():
                    self._found_node(read.path, answer)
                case list():
                    self._discover(read.path, answer)
                case Unreadable():
                    self.unreadable[read.path] = answer
                case None:
                    # Of a listed node that is gone we are told by an event.
                    if not read.children:
                        self._found[read.path] = None

    def owned_by(self, sessions: Iterable[SessionId]) -> list[str]:
        """Nodes that this cut found and that belong to one of the sessions."""
        owners = set(sessions)
        found = self._found.items()
        return sorted(path for path, node in found if node and node.stat.owner in owners)

    def is_older_than_published(self, zxid: Zxid) -> bool:
        """Whether a server that is at this transaction lags behind what was told before."""
        return zxid < self._seen_zxid

    def publish(self, zxid: Zxid) -> Changes | None:
        """End the cut: what differs from what was told before, as of transaction `zxid`."""
        if self._is_survey:
            self._found |= dict.fromkeys(self._published.keys() - self._found.keys())
        changes = difference(self._published, self._found)
        self._end_cut()
        self._seen_zxid = max(zxid, self._seen_zxid)
        if not changes:
            return None
        # A cut that could not be whole has the zxid of the one that completes it.
        self._zxid = max(zxid, Zxid(self._zxid + 1))
        return Changes(self._zxid, changes)

    def view(self, zxid: Zxid) -> StoreView:
        """End the first survey: everything there is, as of transaction `zxid`."""
        self.publish(zxid)
        self._zxid = zxid
        nodes = sorted(self._published.values(), key=lambda node: (node.path.count("/"), node.path))
        return StoreView(zxid, tuple(nodes))

    def _end_cut(self) -> None:
        self._found = {}
        self.unreadable = {}
        self._is_survey = False
        self._rounds_of_cut = 0

    def _found_node(self, path: str, node: NodeRead) -> None:
        if path != ROOT:
            self._found[path] = StoredNode(path, node.data, node.stat)
        if self._is_survey and node.children:
            self._undiscovered[Read(path, children=True)] = None

    def _discover(self, path: str, names: Sequence[str]) -> None:
        for name in names:
            child = child_path(path, name)
            if _is_ours(child):
                self._undiscovered[Read(child)] = None


def _is_ours(path: str) -> bool:
    return path != ROOT and path != _OWN_NODES and not path.startswith(_OWN_NODES + "/")
