"""Faults caused by a person at the page: clicks and keys, and what the page shows then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from tests.cli.conftest import Serving
from tests.ui.browser import Tab
from tests.ui.faulty import bootstrap, said, serving_in
from tests.ui.server import Page

pytestmark = pytest.mark.xdist_group("ui-faults")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving_in(tmp_path_factory.mktemp("ui-faults-browser")) as serving:
        with ClusterClient(bootstrap(serving)) as client:
            Admin(client).topics.create("orders", partitions=1, replication_factor=3)
        yield serving


@pytest.fixture
def load(serving: Serving) -> Iterator[None]:
    """A producer writes all the time."""
    ended = threading.Event()

    def write() -> None:
        with ClusterClient(bootstrap(serving)) as client:
            producer = Producer(client)
            while not ended.wait(0.02):
                producer.send("orders", b"written", partition=0)
                producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    yield
    ended.set()
    writer.join()


@pytest.fixture
def overview(serving: Serving, tab: Tab) -> Iterator[Tab]:
    """The cluster's view, where every broker runs; nothing is wrong with the page at the end."""
    tab.complaints.clear()
    tab.size(1200, 900)
    tab.open(f"{said(serving, 'page')}#/")
    tab.wait_until("document.querySelectorAll('.faults li[data-life=running]').length === 3")
    yield tab
    assert not tab.complaints


def row(broker: int) -> str:
    return f"document.querySelectorAll('.faults li')[{broker - 1}]"


def button(name: str) -> str:
    """A button that is there, by the name that a screen reader says."""
    return (
        "[...document.querySelectorAll('button')].find((each) => each.checkVisibility() && "
        f"(each.getAttribute('aria-label') ?? each.innerText) === '{name}')"
    )


def click(tab: Tab, name: str) -> None:
    tab.wait_until(f"{button(name)} && {button(name)}.getAttribute('aria-disabled') !== 'true'")
    tab.value(f"{button(name)}.click()")


def text(tab: Tab, script: str) -> str:
    found: Any = tab.value(f"{script}.innerText")
    return str(found)


def wait_for_state(tab: Tab, broker: int, words: str) -> None:
    tab.wait_until(f"{row(broker)}.querySelector('.states').innerText.includes('{words}')")


def test_the_leader_is_killed_from_the_page_and_restarted(
    serving: Serving, overview: Tab, load: None
) -> None:
    tab, page = overview, said(serving, "page")
    tab.open(f"{page}#/topics/orders/0")
    tab.wait_until("document.querySelectorAll('.strip .cell').length > 3")
    shown = "document.querySelector('main .card p').innerText"
    leader = int(text(tab, "document.querySelector('main .card p')").split()[1].rstrip(","))
    epoch = int(tab.value(f"{shown}.match(/epoch (\\d+)/)[1]"))
    tab.value("document.querySelector('details.accidents').open = true")
    tab.wait_until(f"{row(leader)}.innerText.includes('leader')")
    click(tab, f"Kill broker {leader}")
    wait_for_state(tab, leader, "down")
    tab.wait_until(f"!/Leader ({leader}|none),/.test({shown})")
    tab.wait_until(f"document.querySelectorAll('.cell.e{(epoch + 1) % 6}').length > 0")
    # The overview says so as well.
    tab.value("location.hash = '#/'")
    wait_for_state(tab, leader, "down")
    tab.wait_for("1 under-replicated")
    click(tab, f"Restart broker {leader}")
    tab.wait_for(f"Started broker {leader}.")
    wait_for_state(tab, leader, "runs")
    tab.value("location.hash = '#/topics/orders/0'")
    tab.wait_for("in sync 1 2 3")


def test_every_fault_has_its_button(overview: Tab) -> None:
    tab = overview
    click(tab, "Pause broker 2")
    wait_for_state(tab, 2, "paused")
    click(tab, "Resume broker 2")
    wait_for_state(tab, 2, "runs")
    click(tab, "Cut off broker 3")
    wait_for_state(tab, 3, "cut off")
    tab.value("document.querySelectorAll('.faults input')[2].value = '7'")
    click(tab, "Slow disk on broker 3")
    wait_for_state(tab, 3, "disk 7 ms slower")
    click(tab, "Heal broker 3")
    tab.wait_until(f"{row(3)}.querySelector('.states').innerText === 'runs'")
    click(tab, "Cut off broker 2")
    wait_for_state(tab, 2, "cut off")
    click(tab, "Heal all")
    tab.wait_until(f"{row(2)}.querySelector('.states').innerText === 'runs'")
    click(tab, "Expire session of broker 2")
    tab.wait_for("The metadata sessions of broker 2 have ended.")


def test_what_is_refused_is_said_in_words(overview: Tab) -> None:
    tab = overview
    tab.value("document.querySelectorAll('.faults input')[0].value = '99999'")
    click(tab, "Slow disk on broker 1")
    tab.wait_until("document.querySelector('[role=alert]').innerText.includes('from 1 to 60000')")
    click(tab, "Cut off broker 1")
    wait_for_state(tab, 1, "cut off")
    tab.wait_until("document.querySelector('[role=alert]').hidden")
    click(tab, "Restart broker 1")
    tab.wait_until("document.querySelector('[role=alert]').innerText.includes('cut off from')")
    click(tab, "Heal broker 1")
    tab.wait_until(f"{row(1)}.querySelector('.states').innerText === 'runs'")
    tab.complaints.clear()  # the two refusals


def test_the_keys_reach_everything_and_the_focus_stays(overview: Tab) -> None:
    tab = overview
    focused = "document.activeElement.getAttribute('aria-label')"
    tab.value(f"{button('Pause broker 2')}.focus()")
    tab.press("Enter")
    tab.wait_until(f"{focused} === 'Resume broker 2'")
    tab.wait_until(f"{button('Resume broker 2')}.getAttribute('aria-disabled') === 'false'")
    assert tab.value("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    tab.press("Enter")
    tab.wait_until(f"{focused} === 'Pause broker 2'")
    names = []
    for _ in range(6):
        tab.press("Tab")
        names.append(tab.value(focused))
    assert names == [
        "Kill broker 2",
        "Restart broker 2",
        "Cut off broker 2",
        "Slow disk on broker 2",
        "Milliseconds that the disk of broker 2 takes longer",
        "Expire session of broker 2",
    ]
    tab.wait_until(f"{button('Kill broker 2')}.getAttribute('aria-disabled') === 'false'")
    tab.value(f"{button('Kill broker 2')}.focus()")
    tab.press("Enter")
    tab.wait_until(f"{focused} === 'Restart broker 2'")
    click(tab, "Restart broker 2")
    tab.wait_for("Started broker 2.")


def test_only_killing_all_asks_first(overview: Tab) -> None:
    tab = overview
    is_open = "document.querySelector('dialog').open"
    click(tab, "Kill all …")
    tab.wait_until(is_open)
    assert tab.value("document.activeElement.innerText") == "Cancel"
    tab.press("Enter")
    tab.wait_until(f"!{is_open}")
    assert tab.value("document.querySelectorAll('li[data-life=running]').length") == 3
    click(tab, "Kill all …")
    tab.wait_until(is_open)
    click(tab, "Kill all")
    tab.wait_until("document.querySelectorAll('li[data-life=down]').length === 3")
    click(tab, "Restart all that are down")
    tab.wait_until("document.querySelectorAll('li[data-life=running]').length === 3")


def test_it_fits_a_narrow_screen_in_light_and_dark(serving: Serving, overview: Tab) -> None:
    tab = overview
    for dark in (False, True):
        tab.size(360, 740, dark=dark)
        click(tab, "Cut off broker 1")
        wait_for_state(tab, 1, "cut off")
        assert tab.overflow == 0
        click(tab, "Heal all")
        tab.wait_until(f"{row(1)}.querySelector('.states').innerText === 'runs'")
    tab.size(1200, 800)


def test_without_the_flag_a_line_says_how(page: Page, tab: Tab) -> None:
    tab.open(f"{page.address}#/")
    tab.wait_for("start it with strandline serve --faults.")
    assert tab.value("document.querySelectorAll('section[aria-label=Faults] li').length") == 0
    assert tab.value(f"{button('Kill all …')} === undefined")
