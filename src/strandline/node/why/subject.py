"""The subject `why`: what the rules find on this broker about what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import allow_only, optional_integer, optional_text
from strandline.node.parts import NodeParts
from strandline.node.why.refusals import STEPS
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.node.why.table import BY_CODE, RULES
from strandline.types import Instant

VERSION: Final = 1
FINDINGS_MAX: Final = 200
EVIDENCE_MAX: Final = 20


def why(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """`topic` and `partition`, or `group`, or `error` (a code's name); nothing asks for all."""
    allow_only(arguments, ("topic", "partition", "group", "error"))
    scene = Scene(
        node,
        now,
        topic=optional_text(arguments, "topic"),
        partition=optional_integer(arguments, "partition"),
        group=optional_text(arguments, "group"),
    )
    error = optional_text(arguments, "error")
    code = None if error is None else _code(error)
    found: list[JsonObject] = []
    for rule, finding in _findings(scene, code):
        if len(found) == FINDINGS_MAX:
            break
        found.append(_document(rule, finding))
    return {"version": VERSION, "broker": node.broker_id, "findings": found}


def _findings(scene: Scene, code: ErrorCode | None) -> Iterator[tuple[Rule | None, Finding]]:
    for rule in _rules(scene, code):
        for finding in rule.examine(scene):
            yield rule, finding
    for refusal in scene.refusals(*(set(ErrorCode) if code is None else {code})):
        if refusal.code not in BY_CODE and refusal.code not in STEPS:
            yield (
                None,
                Finding(
                    str(refusal.about),
                    f"it was refused with {refusal.code.name}, for which there is no rule",
                    refusal.first.wall_ms,
                    refusal_evidence(refusal, scene.now),
                ),
            )


def _rules(scene: Scene, code: ErrorCode | None) -> list[Rule]:
    if code is not None:
        return [rule for rule in RULES if code in rule.codes]
    if scene.group is not None:
        return [rule for rule in RULES if rule.scope is Scope.GROUP]
    if scene.topic is not None:
        return [rule for rule in RULES if rule.scope is Scope.PARTITION]
    return list(RULES)


def _code(name: str) -> ErrorCode:
    try:
        return ErrorCode[name.upper()]
    except KeyError:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"Kafka has no error with the name '{name[:100]}'."
        ) from None


def _document(rule: Rule | None, finding: Finding) -> JsonObject:
    remedy = finding.remedy or (None if rule is None else rule.remedy)
    return {
        "rule": None if rule is None else rule.name,
        "title": None if rule is None else rule.title,
        "errors": [] if rule is None else [code.name for code in rule.codes],
        "about": finding.about,
        "cause": finding.cause,
        "since_wall_ms": finding.since_wall_ms,
        "evidence": list(finding.evidence[:EVIDENCE_MAX]),
        "remedy": remedy,
        "settings": [] if rule is None else list(rule.settings),
    }
