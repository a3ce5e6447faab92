"""Rules of permissions: what is asked before a request is served."""

from __future__ import annotations

from typing import Any, Final

from strandline.node.authorization import guarded
from strandline.node.authorization.authority import Access
from strandline.node.waiting_fetch import WaitingFetch
from tests.sim.mutants.mutant import Mutant, patch, yes


def _unguarded(_: int, handler: Any, __: Any) -> Any:
    return handler


def _reads_all(self: WaitingFetch, _: Any, __: Any) -> bool:
    del self
    return True


AUTHORIZING: Final = (
    Mutant(
        "ask-for-permission",
        "A request is handled only if its client has the permissions that it needs.",
        ("I-58",),
        patch(guarded, guarded=_unguarded),
    ),
    Mutant(
        "ask-before-reading",
        "A consumer's topics are asked for where they are read, since its session outlives ACLs.",
        ("I-58",),
        patch(WaitingFetch, _may_read=_reads_all),
    ),
    Mutant(
        "brokers-need-cluster-action",
        "A client that claims to be a broker needs ClusterAction of the cluster.",
        ("I-58",),
        patch(Access, may_cluster=yes),
    ),
)
