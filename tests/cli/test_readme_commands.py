"""Commands that README.md and the pages name exist, with those options; so do modules and extras.

Nothing is run: a command is looked up as click would, its options and the choices among their
values are checked. Words in capitals stand for something; `a|b` for either; brackets are left out.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile, product
from pathlib import Path

import click
import pytest

from strandline.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "design").glob("*.md")),
]
SHELLS = ("", "sh")
USAGE = re.compile(r"\[(?:OPTIONS|COMMAND|ARGS)\]")
VARIABLE = re.compile(r"[A-Z][A-Z_]*=.*")
"""What a shell sets for the command behind it."""
OTHER_RUNNERS = ("pytest", "venv")
"""Modules that are not ours."""


def shell_lines(page: str) -> Iterator[str]:
    """What stands in blocks for a shell, fenced or indented."""
    language: str | None = None
    for line in page.splitlines():
        if line.startswith("```"):
            language = line[3:].strip() if language is None else None
        elif language in SHELLS:
            yield line
        elif language is None and line.startswith("    "):
            # A usage line says behind some room what it does.
            yield re.split(r"\s{3,}", line.strip())[0]


def inline_commands(page: str) -> Iterator[str]:
    """Commands in the running text, which may be wrapped, with or without the program's name."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for found in re.findall(r"`([a-z]+\s[^`]+)`", prose):
        words = found.split()
        if words[0] in COMMANDS:
            yield " ".join(("strandline", *words))
        elif words[0] in ("strandline", "python", "pip"):
            yield " ".join(words)


def commands_of(path: Path) -> list[list[str]]:
    """The words of each command of a page, without what a shell does with them."""
    page = path.read_text(encoding="utf-8")
    found = []
    for line in (*shell_lines(page), *inline_commands(page)):
        plain = USAGE.sub("", line).replace("...", "")
        if not plain.startswith("pip "):  # where brackets belong to a name
            plain = re.sub(r"[][]", " ", plain)
        for part in re.split(r"\s(?:\||\|\||&&|;)\s", plain):
            words = shlex.split(re.split(r"\s[<>]\s", part)[0], comments=True)
            words = list(dropwhile(VARIABLE.fullmatch, words))
            if words:
                found.append(words)
    return found


def alternatives(words: list[str]) -> Iterator[list[str]]:
    """`explain retention|compaction TOPIC` is two commands."""
    yield from (list(each) for each in product(*(word.split("|") for word in words)))


def is_placeholder(value: str) -> bool:
    """Whether it stands for a value: `NAME`, `N`, `TOPIC/PARTITION`."""
    return re.fullmatch(r"[A-Z][A-Z0-9_/,:.=-]*", value) is not None


@dataclass
class Unknown(Exception):
    """A command line that click would refuse."""

    sentence: str


def check_strandline(words: list[str]) -> None:
    """Look a command up: `words` without the program. Raises Unknown, or what click says."""
    command: click.Command = cli
    context = click.Context(command, info_name="strandline", **cli.context_settings)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        if rest[0].startswith("-") or is_placeholder(rest[0]):
            break
        found = command.get_command(context, rest[0])
        if found is None:
            if command is cli or not command.invoke_without_command:
                raise Unknown(f"there is no '{rest[0]}' in '{context.command_path}'")
            break
        context = click.Context(found, parent=context, info_name=rest.pop(0))
        command = found
    if not rest:
        return  # a command that is only named
    options, _, _ = command.make_parser(context).parse_args(rest)
    for parameter in command.params:
        given = options.get(parameter.name)
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, str) and not is_placeholder(value):
                if isinstance(parameter.type, click.Path):
                    continue  # it need not be here
                parameter.type.convert(value, parameter, context)


def check_module(words: list[str]) -> None:
    """Look up a module that is run, and the options that it is given."""
    name = words[0]
    if name in OTHER_RUNNERS:
        return
    path = ROOT.joinpath("src" if name.startswith("strandline") else "", *name.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__main__.py"
    if not file.exists():
        raise Unknown(f"there is no module {name}")
    check_script(file, words[1:])


def check_script(file: Path, words: list[str]) -> None:
    """Look up the long options of a script in its source, or in that of its neighbours."""
    source = "".join(each.read_text(encoding="utf-8") for each in file.parent.glob("*.py"))
    for word in words:
        if word.startswith("--") and f'"{word.split("=")[0]}"' not in source:
            raise Unknown(f"{file.name} has no {word}")


def check_extras(words: list[str]) -> None:
    """Look up what `pip install '.[extra]'` names."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        extras = re.fullmatch(r"(?:\.|strandline)\[([\w,]+)\]", word)
        for extra in extras[1].split(",") if extras else ():
            if extra not in known:
                raise Unknown(f"there is no extra '{extra}'")


def check(words: list[str]) -> bool:
    """Look up one command; False if it is not one of ours. Raises Unknown or ClickException."""
    match words:
        case ["strandline", *rest]:
            for each in alternatives(rest):
                check_strandline(each)
        case ["python", "-m", *rest] if rest:
            check_module(rest)
        case ["python", script, *rest]:
            if not (ROOT / script).exists():
                raise Unknown(f"there is no {script}")
            check_script(ROOT / script, rest)
        case ["pip", "install", *rest]:
            check_extras(rest)
        case _:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path) -> None:
    wrong = []
    for words in commands_of(page):
        try:
            check(words)
        except Unknown as unknown:
            wrong.append(f"{shlex.join(words)}: {unknown.sentence}")
        except click.ClickException as refused:
            wrong.append(f"{shlex.join(words)}: {refused.format_message()}")
    assert not wrong, "\n".join(wrong)


def test_the_readme_is_read_at_all() -> None:
    ours = [words for words in commands_of(ROOT / "README.md") if check(words)]
    assert ["./demo"] in commands_of(ROOT / "README.md")
    assert ["pip", "install", ".[zookeeper]"] in ours
    assert len(ours) > 30


@pytest.mark.parametrize(
    "line",
    [
        "strandline nothing",
        "strandline topics nothing",
        "strandline serve --nothing",
        "strandline produce orders --acks most",
        "strandline explain retention|nothing orders",
        "strandline sim --seeds many",
        "python -m bench.nothing",
        "python -m bench.sim --nothing",
        "python examples/nothing.py",
        "pip install '.[nothing]'",
    ],
)
def test_what_does_not_exist_is_found(line: str) -> None:
    with pytest.raises((Unknown, click.ClickException)):
        check(shlex.split(line))
