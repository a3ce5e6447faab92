"""Rules of permissions, and of delegation tokens: what is asked before a request is served.

Those of the table are what a run notices. `check_left_out` is the rest: one question of one API,
each of which `tests.node.test_authorization` misses.
"""

from __future__ import annotations

from typing import Any, Final

from strandline.authorization.acls import Operation, ResourceType
from strandline.cluster.controller.decision import Decision
from strandline.cluster.controller.delegation_tokens import Outcome, expire_token
from strandline.cluster.image import ClusterImage
from strandline.cluster.znodes import TokenNode
from strandline.node.authorization import guarded
from strandline.node.authorization.authority import Access
from strandline.node.handlers import delegation_tokens
from strandline.node.waiting_fetch import WaitingFetch
from strandline.protocol.apis import ApiKey
from strandline.types import Principal
from tests.sim.mutants.mutant import Mutant, SwitchOn, no, patch, yes


def _unguarded(_: int, handler: Any, __: Any) -> Any:
    return handler


def _reads_all(self: WaitingFetch, _: Any, __: Any) -> bool:
    del self
    return True


def _made_in_words(image: ClusterImage, token: TokenNode) -> Decision[TokenNode]:
    del image
    return Decision((token,))


def _removed_in_words(
    image: ClusterImage, token_id: str, asking: Principal, period_ms: int, now_ms: int
) -> Decision[Outcome]:
    decision = expire_token(image, token_id, asking, period_ms, now_ms)
    return Decision(decision.results) if period_ms < 0 else decision


def check_left_out(api: ApiKey, operation: Operation, kind: ResourceType) -> SwitchOn:
    """Allow everyone who asks that API this operation on all resources of the type."""
    may, may_any, operations = Access.may, Access.may_any, Access.operations

    def is_left_out(access: Access, asked: Operation, of: ResourceType) -> bool:
        return (access._request.api_key, asked, of) == (api, operation, kind)

    def asks(
        self: Access, asked: Operation, of: ResourceType, name: str, *, is_noted: bool = True
    ) -> bool:
        return is_left_out(self, asked, of) or may(self, asked, of, name, is_noted=is_noted)

    def asks_any(self: Access, asked: Operation, of: ResourceType) -> bool:
        return is_left_out(self, asked, of) or may_any(self, asked, of)

    def tells(self: Access, of: ResourceType, name: str) -> int:
        told = operations(self, of, name)
        return told | 1 << operation if is_left_out(self, operation, of) else told

    return patch(Access, may=asks, may_any=asks_any, operations=tells)


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
    Mutant(
        "tokens-expire",
        "A delegation token that has expired lets in nothing more, and is removed (KIP-48).",
        ("I-60",),
        patch(TokenNode, has_expired=no),
    ),
    Mutant(
        "keep-tokens-before-telling",
        "A delegation token is written before its client is told of it.",
        ("I-60",),
        patch(delegation_tokens, create_token=_made_in_words),
    ),
    Mutant(
        "remove-tokens-before-telling",
        "A delegation token is removed before that is confirmed.",
        ("I-60",),
        patch(delegation_tokens, expire_token=_removed_in_words),
    ),
)
