"""No room has an import circle, not even one that only type checkers or late imports go round.

A circle through `TYPE_CHECKING` does not break an import, but none of its files can be understood,
tested or moved without the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import strandline

SOURCE = Path(strandline.__file__).parent.parent


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found: dict[str, Path] = {}
    for path in sorted(SOURCE.glob("strandline/**/*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, known: Set[str]) -> Iterator[str]:
    """What a file imports, wherever in it that stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert circles(graph) == [["b", "c"], ["e", "f"]]


def test_no_room_imports_in_a_circle() -> None:
    known = modules()
    graph = {
        name: set(imports_of(path, known.keys())) & known.keys() - {name}
        for name, path in known.items()
    }
    assert circles(graph) == []
