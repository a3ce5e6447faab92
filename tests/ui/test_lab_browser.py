"""The cluster in a browser tab: real node code in a real browser, with no server but for files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.ui.lab.answers import Answers
from strandline.ui.lab.lessons import moments
from tests.ui.axe import violations
from tests.ui.browser import Tab
from tests.ui.built import files, late_files, page

pytestmark = [
    pytest.mark.xdist_group("ui"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

WIRE_BYTES_MAX = 20_000_000
NEXT = "document.querySelector('.lesson button.primary')"


@pytest.fixture(scope="module")
def directory() -> Path:
    return page()


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    with files(directory) as found:
        yield found


@pytest.fixture
def lab(address: str, tab: Tab) -> Tab:
    tab.complaints.clear()
    """An untouched lab; the node code is loaded once, another fragment begins a run anew."""
    tab.open(f"{address}#/lessons/en")  # the language of the last lesson would stay
    tab.wait_for("What a high watermark is")
    tab.open(f"{address}#/lab/")
    tab.wait_for("Step 0 of 0")
    return tab


def press(tab: Tab, *labels: str) -> None:
    """Buttons of the lab, by what stands on them; `B Kill` is broker B's. Waits for each step."""
    for label in labels:
        steps = tab.value("Number(document.querySelector('.lab input.time').max)")
        name, _, verb = label.rpartition(" ") if label[1:2] == " " else ("", "", label)
        inside = f"#state-{name}" if name else "#said"
        place = f"document.querySelector('{inside}').closest('li')" if name else "document"
        tab.value(
            f"[...{place}.querySelectorAll('button')].find((each) => each.textContent === "
            f"{verb!r}).click()"
        )
        if label != "Undo":
            steps_now = "Number(document.querySelector('.lab input.time').max)"
            tab.wait_until(f"{steps_now} > {steps}")


def test_all_of_it_is_small(directory: Path) -> None:
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    assert sum(sizes) < WIRE_BYTES_MAX


def test_a_leader_dies_in_the_tab(lab: Tab) -> None:
    press(lab, "Produce", "Step")
    lab.wait_for("the high watermark stands still")  # why it cannot be read yet
    press(lab, "Step", "Consume")
    lab.wait_for("a consumer reads m0 from 0 on")
    press(lab, "A Kill", "Step")
    lab.wait_for("B leader")
    lab.wait_for("A replica is not in sync")
    press(lab, "Produce", "Step", "Step", "A Start", "Step", "Step", "Step")
    lab.wait_for("The controller: leader B, epoch 1, in sync ABC")
    assert lab.value("document.querySelectorAll('.strip .cell.e1').length") == 3
    press(lab, "C Pause", "C Resume", "Undo")
    lab.wait_for("C follower, in sync, paused")
    assert not lab.complaints


def test_the_address_is_the_run_and_another_rule_plays_it_anew(lab: Tab, address: str) -> None:
    # The script of the loss: the follower has m1, and does not know that it is committed.
    press(lab, "Produce", "B Fetch", "C Fetch", "B Fetch", "C Fetch")
    shared = lab.value("location.href")
    lab.open(f"{address}#/scenarios")
    lab.wait_for("Truncation")
    lab.open(shared)
    lab.wait_for("Step 5 of 5")
    assert "m0 is acknowledged at 0" in lab.text
    lab.value("document.querySelector('.lab input.time').value = 1")
    lab.value("document.querySelector('.lab input.time').dispatchEvent(new Event('input'))")
    lab.wait_for("Step 1 of 5")
    lab.value(
        "(() => { const rule = document.querySelector('[aria-label^=\"A replica that comes\"]'); "
        "rule.value = 'high-watermark'; rule.dispatchEvent(new Event('change')); })()"
    )
    lab.wait_until("location.hash.includes('truncate%3Dhigh-watermark')")
    lab.wait_for("Step 5 of 5")
    assert not lab.complaints


def test_it_runs_by_itself_and_says_what_is_refused(lab: Tab) -> None:
    press(lab, "Run")
    lab.wait_until("Number(document.querySelector('.lab input.time').max) > 2")
    lab.value(
        "[...document.querySelectorAll('button')].find((e) => e.textContent === 'Halt').click()"
    )
    lab.wait_until("[...document.querySelectorAll('button')].some((e) => e.textContent === 'Run')")
    lab.value("document.querySelector('textarea').value += 'fly A\\n'")
    lab.value(
        "[...document.querySelectorAll('button')].find((e) => e.textContent === 'Play it').click()"
    )
    lab.wait_for("There is no verb 'fly'.")
    press(lab, "Step")
    assert "There is no verb" not in lab.text
    assert not lab.complaints


def test_scenarios_come_along(lab: Tab, address: str) -> None:
    lab.open(f"{address}#/scenarios")
    lab.wait_for("high watermark truncation loses a record")
    lab.open(f"{address}#/scenarios/x-3")
    lab.wait_for("Step 0 of 36")
    lab.press("End")
    lab.wait_for("I-23 is broken")
    assert "#/lab/title" in lab.value("document.querySelector('main a[href^=\"#/lab\"]').href")
    assert not lab.complaints


def test_it_fits_a_narrow_screen_in_light_and_dark(lab: Tab, address: str) -> None:
    press(lab, "Produce", "Step", "B Kill", "Step")
    for dark in (False, True):
        lab.size(360, 740, dark=dark)
        assert lab.overflow == 0
    lab.size(1200, 800)


def test_it_works_without_a_network(directory: Path, tab: Tab) -> None:
    with files(directory) as address:
        tab.open(f"{address}#/lab")
        tab.wait_for("Step 0 of 0")
        tab.wait_until("navigator.serviceWorker.controller !== null")
    tab.value("location.reload()")
    tab.wait_for("Step 0 of 0")
    press(tab, "Produce", "Step")
    tab.wait_for("m0")


def test_a_lesson_is_gone_through_by_acting(lab: Tab, address: str) -> None:
    lab.open(f"{address}#/lessons/en")
    lab.wait_for("What a high watermark is")
    lab.open(f"{address}#/lessons/en/high-watermark")
    lab.wait_for("Step 1 of 5")
    assert lab.value(NEXT + ".disabled")
    press(lab, "Consume")
    lab.wait_for("That is it.")
    lab.value(NEXT + ".click()")
    lab.wait_for("The consumer got nothing")
    press(lab, "Step")  # another way to the same end
    lab.wait_for("That is it.")
    show = f"{NEXT}.nextElementSibling"
    for number in (3, 4):
        lab.value(f"{NEXT}.click()")
        lab.wait_for(f"Step {number} of 5")
        lab.wait_until(f"!{show}.disabled")
        lab.value(f"{show}.click()")
        lab.wait_until(f"!{NEXT}.disabled")
    lab.value(f"{NEXT}.click()")
    lab.wait_for("The lesson is over.")
    lab.wait_for("The next lesson: Why acks=all waits")
    assert not lab.complaints


def test_a_view_that_comes_late_is_not_drawn_over_the_next_one(lab: Tab, address: str) -> None:
    """What the list of lessons is made of is held back until the lab is there."""
    lab.value(
        "window.plain = fetch, window.asked = 0, window.gate = new Promise((go) => window.go = go),"
        "window.fetch = (...what) => (window.asked++, window.gate.then(() => plain(...what))), 0"
    )
    lab.open(f"{address}#/lessons/en")
    lab.wait_until("window.asked >= 2")
    lab.open(f"{address}#/lab/")
    lab.wait_for("Step 0 of 0")
    # The same list once more, at a place of its own: when it is there, so is the one before.
    lab.value(
        "window.go(), import(new URL('./lessons.js', document.querySelector('script').src).href)"
        ".then(({ lessonList }) => lessonList(document.createElement('div'), 'en'))"
        ".then(() => { window.fetch = window.plain; })"
    )
    assert "Step 0 of 0" in lab.text
    lab.open(f"{address}#/lessons/en")
    lab.wait_for("What a high watermark is")


def test_lessons_are_told_in_chinese_on_a_narrow_screen(lab: Tab, address: str) -> None:
    lab.size(360, 740, dark=True)
    lab.open(f"{address}#/lessons/zh")
    lab.wait_for("\u8bfe\u7a0b")
    lab.open(f"{address}#/lessons/zh/acks-all")
    lab.wait_for("\u7b2c 1 \u6b65")
    lab.wait_until("document.querySelectorAll('.replica').length === 3")
    assert lab.overflow == 0
    assert lab.value("document.querySelector('.lesson').closest('[lang]').lang") == "zh"
    lab.size(1200, 800)
    assert not lab.complaints


def test_axe_finds_nothing_wrong_with_lab_and_lessons(lab: Tab, address: str) -> None:
    """Narrow, in light and dark by turns. The live page has a test of its own."""
    wrong = {}
    for number, (view, text) in enumerate(
        (
            ("lab/", "Step 0 of 0"),
            ("lessons/zh", "高水位"),
            ("lessons/en/high-watermark", "Step 1 of"),
            ("lessons/zh/last-stable-offset", "最后稳定偏移量"),
        )
    ):
        lab.size(360, 900, dark=number % 2 == 1)
        lab.open(f"{address}#/{view}")
        lab.wait_for(text)
        if found := violations(lab):
            wrong[view] = found
        assert lab.overflow == 0, view
    lab.size(1200, 800)
    assert wrong == {}


def test_buttons_speak_the_language_of_the_lesson(address: str, tab: Tab) -> None:
    """With the English word beside, by which texts and scripts name them."""
    tab.open(f"{address}#/lessons/zh/high-watermark")
    tab.wait_for("走一步 Step")
    tab.wait_for("A 领导者 leader, 同步 in sync")
    tab.open(f"{address}#/lessons/en/high-watermark")
    tab.wait_for("A leader, in sync")
    assert "走一步" not in tab.text


def test_what_is_loaded_is_told_in_the_language_of_the_lesson(directory: Path, tab: Tab) -> None:
    """While the server holds back the memory of the node code, and when it has none."""
    with late_files(directory, "/python.memory") as (address, refuse):
        said = "document.getElementById('said')"
        tab.open(f"{address}#/lessons/zh/high-watermark")
        tab.wait_for("正在加载节点代码")
        assert "Loading the node code" not in tab.text
        assert tab.value(f"{said}.lang") == "zh"
        tab.open(f"{address}#/lessons/en/high-watermark")
        tab.wait_for("Loading the node code")
        assert tab.value(f"{said}.lang") == "en"
        tab.open(f"{address}#/lessons/zh/high-watermark")
        tab.wait_for("正在加载节点代码")
        refuse()
        tab.wait_for("无法加载节点代码")
    tab.complaints.clear()  # the browser's own word for the file that was refused


def test_a_chinese_lesson_says_in_chinese_what_happened_and_why(lab: Tab, address: str) -> None:
    """Each sentence of each lesson, as the page would tell it; which ones there are is no guess."""
    said: set[str] = set()
    for moment in moments():
        for run in Answers().play(moment.after)["runs"]:
            for frame in run["frames"]:
                said |= {*frame["events"], *frame["violations"], frame.get("meaning", "")}
            for told in run["why"]["brokers"].values():
                for found in told["findings"]:
                    said |= {found["title"], found["cause"], found["remedy"], *found["evidence"]}
    lab.open(f"{address}#/lessons/zh/acks-all")
    lab.wait_for("控制器\uff1a领导者 A\uff0c纪元 0\uff0c同步副本 ABC")
    lab.value(f"window.said = {json.dumps(sorted(said - {'', None}))}")
    untold = (
        "import('./sentences.js').then(({ found }) => said.filter((each) => found(each) === null))"
    )
    assert lab.value(untold) == []
    told = "import('./sentences.js').then(({ found }) => said.map(found))"
    # Nor is a part of a sentence left in English: two words in a row, outside of code.
    english = re.compile(r"\b[a-z]{3,} [a-z]{2,}\b")
    assert [each for each in lab.value(told) if english.search(re.sub("`.*`", "", each))] == []
    assert len(said) > 60
    lab.wait_for("高水位停在 0")
    assert not lab.complaints
