"""Which compiled kernels there are, and what is said where there are none."""

from __future__ import annotations

import pytest

from strandline.records import _kernels
from strandline.records._kernels import KERNELS, missing, sentence_about


def test_the_kernels_are_known() -> None:
    assert {"compact", "decode"} <= set(KERNELS)


def test_what_is_switched_off_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_PURE_PYTHON", "1")
    assert missing() == list(KERNELS)
    monkeypatch.delenv("STRANDLINE_PURE_PYTHON")
    assert missing() == [each for each in KERNELS if _kernels.compiled(each) is None]


def test_the_sentence_says_what_to_do() -> None:
    assert "gcc libc6-dev python3-dev" in sentence_about(KERNELS)
    assert sentence_about(KERNELS, switched_off=True).startswith("STRANDLINE_PURE_PYTHON=1 ")
