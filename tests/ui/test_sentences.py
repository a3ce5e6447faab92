"""Sentences of scenarios and of `why` in other languages: each that is said stands in the table."""

from __future__ import annotations

import re

import pytest

from tests.ui import sentences

CHINESE = sentences.table("zh")
PLACE = re.compile(r"\{(\d)\}")


def is_known(sentence: str) -> bool:
    """Whether a template of the table is that of the sentence, or of its parts."""
    filled = sentence.replace("{}", "7")
    for english in CHINESE:
        if re.fullmatch(re.escape(english).replace(r"\{\}", ".+"), filled, re.DOTALL):
            return True
    parts = next((found for by in ("; ", ", ") if len(found := filled.split(by)) > 1), ())
    return bool(parts) and all(map(is_known, parts))


@pytest.mark.parametrize("said", [sentences.events, sentences.rules, sentences.causes])
def test_each_sentence_has_a_translation(said: object) -> None:
    assert callable(said)
    found = [each for each in said() if each != "{}"]
    assert len(found) > 20
    assert [each for each in found if not is_known(each)] == []


def test_each_place_of_a_sentence_is_filled() -> None:
    for english, chinese in CHINESE.items():
        places = {int(found) for found in PLACE.findall(chinese)}
        assert places == set(range(english.count("{}"))), english
        assert re.search(r"[\u3000-\u9fff\uff01-\uff5e]", chinese), english


@pytest.mark.parametrize("what", ["fetched", "had everything"])
def test_what_was_long_ago_is_told_whole(what: str) -> None:
    """A place takes as little as it can: "{} {} s ago" would take no more than the first word."""
    whole = f"{what} 1.0 s ago"
    taken = re.fullmatch(r"(.+?) (.+?) s ago", whole)
    assert taken is not None
    assert f"{what} {{}} s ago" in CHINESE or taken.group(1) in CHINESE
