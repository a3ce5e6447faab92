"""Every lesson plays, and what its texts say is true when they say it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from strandline.ui.lab.answers import Answers
from strandline.ui.lab.lessons import LANGUAGES, Moment, moments, structure, texts

MOMENTS = list(moments())


def played(script: str, *until: str) -> Any:
    shown = json.loads(
        Answers().answer("/api/scenarios", json.dumps({"text": script, "until": until}))
    )
    assert "error" not in shown, shown
    return shown


def is_reached(moment: Moment, script: str) -> bool:
    """As the page decides it, from what has happened since the reader began to act."""
    until = moment.step["until"]
    if "expect" in until:
        met: list[bool] = played(script, until["expect"])["met"]
        return met == [True]
    acted = script.removeprefix(moment.before).splitlines()
    if "did" in until:
        return until["did"] in acted
    first = len(moment.before.splitlines())
    frames = played(script)["runs"][0]["frames"]
    return any(
        until["seen"] in event
        for frame in frames
        for event in frame["events"]
        if frame["line"] > first
    )


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda each: f"{each.lesson}-{each.number}")
def test_what_a_step_says_is_so(moment: Moment) -> None:
    claims = moment.step["claims"]
    assert dict(zip(claims, played(moment.before, *claims)["met"], strict=True)) == dict.fromkeys(
        claims, True
    )


@pytest.mark.parametrize(
    "moment",
    [each for each in MOMENTS if "until" in each.step],
    ids=lambda each: f"{each.lesson}-{each.number}",
)
def test_a_question_is_open_until_the_reader_acts(moment: Moment) -> None:
    assert not is_reached(moment, moment.before)
    assert is_reached(moment, moment.after)


def test_lessons_begin_and_end_as_the_page_plays_them() -> None:
    for lesson in structure():
        first, *_, last = lesson["steps"]
        assert "begin" in first
        assert all("until" in each and each["answer"] for each in lesson["steps"][:-1])
        assert "until" not in last


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_the_same_steps(language: str) -> None:
    told = texts(language)
    assert list(told["lessons"]) == [each["name"] for each in structure()]
    for lesson in structure():
        text = told["lessons"][lesson["name"]]
        assert text["title"]
        assert text["about"]
        assert len(text["steps"]) == len(lesson["steps"])
        for step, words in zip(lesson["steps"], text["steps"], strict=True):
            assert words.keys() == ({"said", "ask"} if "until" in step else {"said"})
            assert re.search(r"[.\u3002]$", words["said"])
    assert told["words"].keys() == texts(LANGUAGES[0])["words"].keys()


def test_the_texts_differ() -> None:
    english, chinese = (texts(language)["lessons"] for language in LANGUAGES)
    for name, lesson in english.items():
        for ours, theirs in zip(lesson["steps"], chinese[name]["steps"], strict=True):
            assert ours["said"] != theirs["said"]
            assert re.search(r"[\u4e00-\u9fff]", theirs["said"])
