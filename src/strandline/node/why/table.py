"""All rules of `why`, in the order in which they are told, and what a refusal is put down to."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode
from strandline.node.why import (
    cluster_rules,
    compaction_rules,
    group_rules,
    handshake_rules,
    leader_rules,
    log_move_rules,
    partition_rules,
    permission_rules,
    reading_rules,
    transaction_rules,
    writing_rules,
)
from strandline.node.why.refusals import Refusal
from strandline.node.why.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *partition_rules.RULES,
    *leader_rules.RULES,
    *log_move_rules.RULES,
    *compaction_rules.RULES,
    *reading_rules.RULES,
    *writing_rules.RULES,
    *transaction_rules.RULES,
    *group_rules.RULES,
    *cluster_rules.RULES,
    *handshake_rules.RULES,
    *permission_rules.RULES,
)
BY_CODE: Final[dict[ErrorCode, Rule]] = {code: rule for rule in RULES for code in rule.codes}


def explain(refusal: Refusal) -> str:
    """Why, in a sentence for the log."""
    if refusal.message:
        return refusal.message
    rule = BY_CODE.get(refusal.code)
    return "no rule is known for it" if rule is None else rule.title
