"""The subject `why`: what the rules find on this broker about what was asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import allow_only, optional_integer, optional_text
from strandline.node.parts import NodeParts
from strandline.node.why.reading_rules import UNKNOWN_TOPIC
from strandline.node.why.refusals import STEPS
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.node.why.table import BY_CODE, RULES
from strandline.types import Instant

VERSION: Final = 1
FINDINGS_MAX: Final = 200
EVIDENCE_MAX: Final = 20


def why(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """`topic` and `partition`, or `group`, or `error` (a code's name); nothing asks for all.

    What would not be refused any more is told if its error was asked about, and only then.
    """
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
    return {
        "version": VERSION,
        "broker": node.broker_id,
        "known": None if scene.topic is None else scene.has_place,
        "findings": [_document(*each) for each in _joined(_findings(scene, code))],
    }


def _joined(
    findings: Iterable[tuple[Rule | None, Finding]],
) -> Iterable[tuple[Rule | None, Finding]]:
    """What was found alike is told once: several APIs refuse for the same cause, for example."""
    found: dict[tuple[object, ...], tuple[Rule | None, Finding]] = {}
    for rule, finding in findings:
        key = (rule and rule.name, finding.about, finding.cause, finding.is_over)
        if key in found:
            found[key] = (rule, _both(found[key][1], finding))
        elif len(found) == FINDINGS_MAX:
            break
        else:
            found[key] = (rule, finding)
    return found.values()


def _both(one: Finding, other: Finding) -> Finding:
    times = [each.since_wall_ms for each in (one, other) if each.since_wall_ms is not None]
    more = tuple(each for each in other.evidence if each not in one.evidence)
    return replace(one, since_wall_ms=min(times, default=None), evidence=one.evidence + more)


def _findings(scene: Scene, code: ErrorCode | None) -> Iterator[tuple[Rule | None, Finding]]:
    for rule in _rules(scene, code):
        for finding in rule.examine(scene):
            if code is not None or not finding.is_over:
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
        is_missing = scene.topic is not None and not scene.has_place
        asked = [rule for rule in RULES if code in rule.codes]
        return [UNKNOWN_TOPIC, *asked] if is_missing and UNKNOWN_TOPIC not in asked else asked
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
    settings = [] if rule is None else list(rule.settings)
    return {
        "rule": None if rule is None else rule.name,
        "title": None if rule is None else rule.title,
        "errors": [] if rule is None else [code.name for code in rule.codes],
        "about": finding.about,
        "cause": finding.cause,
        "since_wall_ms": finding.since_wall_ms,
        "evidence": list(finding.evidence[:EVIDENCE_MAX]),
        "remedy": None if finding.is_over else remedy,
        "settings": [] if finding.is_over else settings,
        "over": finding.is_over,
    }
