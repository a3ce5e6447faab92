"""The sentences that a page may show, read from the sources that make them, as templates.

A place that is filled at run time is `{}`; an expression of the form `a if x else b`, and a sum of
texts, gives each of its outcomes.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import strandline
from strandline.node.why import permission_rules
from strandline.node.why.rule import Scope
from strandline.node.why.table import RULES
from strandline.ui.lab.lessons import FOLDER

SOURCES: Final = Path(strandline.__file__).parent
SAYING: Final = {"_say", "say"}
EVENTS: Final = sorted((SOURCES / "sim/scenarios").glob("*.py"))
REASONS: Final = [
    SOURCES / "node/why" / name
    for name in ("partition_rules.py", "leader_rules.py", "reading_rules.py", "words.py")
]


def table(language: str) -> dict[str, str]:
    """A language's sentences by the English ones."""
    found: dict[str, str] = json.loads((FOLDER / f"sentences.{language}.json").read_text())
    return found


def events() -> Iterator[str]:
    """What scenarios say that has happened."""
    for path in EVENTS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _is_saying(node.func):
                yield from outcomes(node.args[0])


def rules() -> Iterator[str]:
    """Titles and remedies of what `why` finds about partitions."""
    for rule in RULES:
        if rule.scope is Scope.PARTITION and rule not in permission_rules.RULES:
            yield rule.title
            yield rule.remedy


def causes() -> Iterator[str]:
    """Causes, evidence and exact remedies of what `why` finds about partitions."""
    for path in REASONS:
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef):
                yield from filter(_is_sentence, _texts(function.body[1:]))


def _texts(body: Sequence[ast.AST]) -> Iterator[str]:
    for each in body:
        if isinstance(each, ast.JoinedStr | ast.Constant | ast.BinOp | ast.IfExp):
            found = outcomes(each)
            if found != ["{}"]:
                yield from found
                continue  # its places are filled by what is told elsewhere
        yield from _texts(list(ast.iter_child_nodes(each)))


def _is_sentence(text: str) -> bool:
    return " " in text.strip() and bool(re.search(r"[a-z]{3}", text))


def _is_saying(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in SAYING
    if not isinstance(function, ast.Attribute):
        return False
    holder = function.value
    is_list = isinstance(holder, ast.Attribute) and holder.attr == "events"
    return function.attr in SAYING or (is_list and function.attr == "append")


def outcomes(node: ast.AST) -> list[str]:
    """What an expression may become, as templates."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(each) for each in product(*map(outcomes, parts))]
        case ast.FormattedValue(value=ast.IfExp() as value):
            return outcomes(value)
        case ast.IfExp(body=one, orelse=other):
            return outcomes(one) + outcomes(other)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [one + other for one, other in product(outcomes(left), outcomes(right))]
        case _:
            return ["{}"]
