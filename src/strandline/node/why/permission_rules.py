"""Rules about permissions: who was denied what, and which ACL would allow it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Final

from strandline.authorization.acls import ResourceType
from strandline.errors import ErrorCode
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence

if TYPE_CHECKING:
    from strandline.authorization.authorizer import Verdict
    from strandline.node.authorization.audit import Asked, Denial

_OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}
_CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_SETTINGS: Final = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")
_WITHOUT_AUTHORIZER: Final = "no client may do it"


def _denied(scene: Scene, *, kinds: tuple[ResourceType, ...], code: ErrorCode) -> Iterator[Finding]:
    authority = scene.node.authority
    if authority is None:
        for refusal in scene.refusals(code):
            yield Finding(
                str(refusal.about),
                refusal.message or _WITHOUT_AUTHORIZER,
                refusal.first.wall_ms,
                refusal_evidence(refusal, scene.now),
            )
        return
    name = scene.topic if scene.topic is not None else scene.group
    for denial in reversed(authority.audit.denials.values()):
        asked = denial.asked
        if asked.resource_type in kinds and name in (None, asked.resource):
            verdict = authority.authorizer.authorize(
                asked.principal, asked.host, asked.operation, asked.resource_type, asked.resource
            )
            yield _finding(asked, denial, verdict, scene)


def _finding(asked: Asked, denial: Denial, verdict: Verdict, scene: Scene) -> Finding:
    """What was denied, and by what it would be now."""
    about = f"{asked.resource_type.word} {asked.resource!r}"
    ago_s = (scene.now.monotonic_ms - denial.at.monotonic_ms) / 1000
    code = _CODES.get(asked.resource_type, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    lacks = f"{asked.operation.word} of {about}"
    return Finding(
        about,
        f"{asked.principal} at {asked.host} lacked {lacks}, and has it now: {verdict.reason}"
        if verdict.is_allowed
        else f"{asked.principal} at {asked.host} lacks {lacks}: {verdict.reason}",
        denial.first.wall_ms,
        (f"{asked.api} was refused with {code.name}, last {ago_s:.1f} s ago",),
        _remedy(asked, verdict),
        is_over=verdict.is_allowed,
    )


def _remedy(asked: Asked, verdict: Verdict) -> str:
    option = _OPTIONS.get(asked.resource_type)
    where = "--cluster" if option is None else f"{option} {quote(asked.resource)}"
    if verdict.is_by_acl:
        return f"Remove the ACL that denies it: `strandline acls list {where}` shows it."
    return (
        f"`strandline acls add --allow-principal {quote(str(asked.principal))} "
        f"--operation {asked.operation.word} {where}`"
    )


def _rule(
    name: str, title: str, scope: Scope, code: ErrorCode, kinds: tuple[ResourceType, ...]
) -> Rule:
    return Rule(
        name,
        title,
        scope,
        (code,),
        "With an authorizer (authorizer.class.name) a principal may do what an ACL allows, and "
        "nothing else; one ACL that denies is stronger than all that allow. docs/authorization.md "
        "has the permission that each request needs.",
        "Allow it with `strandline acls add`, or make the principal one of super.users.",
        _SETTINGS,
        partial(_denied, kinds=kinds, code=code),
    )


RULES: Final = (
    _rule(
        "topic-permission",
        "A client lacks a permission of a topic",
        Scope.PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        (ResourceType.TOPIC,),
    ),
    _rule(
        "group-permission",
        "A client lacks a permission of a group",
        Scope.GROUP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        (ResourceType.GROUP,),
    ),
    _rule(
        "cluster-permission",
        "A client lacks a permission of the cluster, or of a transactional id",
        Scope.CLUSTER,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        (
            ResourceType.CLUSTER,
            ResourceType.TRANSACTIONAL_ID,
            ResourceType.DELEGATION_TOKEN,
            ResourceType.USER,
        ),
    ),
)
