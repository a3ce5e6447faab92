"""The page in a real browser, beside a real cluster to which things happen."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.tables.spec import save_spec
from strandline.testing import Cluster
from tests.lakehouse.results.result_world import ResultWorld
from tests.lakehouse.tables.table_world import TableWorld
from tests.ui.axe import violations
from tests.ui.browser import Tab
from tests.ui.server import Page

pytestmark = pytest.mark.xdist_group("ui")


@pytest.fixture
def load(cluster: Cluster) -> Iterator[None]:
    """A producer writes all the time."""
    ended = threading.Event()

    def write() -> None:
        with ClusterClient(cluster.bootstrap_servers) as client:
            producer = Producer(client)
            while not ended.wait(0.02):
                producer.send("orders", b"written", partition=0)
                producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    yield
    ended.set()
    writer.join()


def text_of(tab: Tab, selector: str) -> str:
    found: str = tab.value(f"document.querySelector({selector!r})?.innerText ?? ''")
    return found


def test_a_leader_dies_while_the_page_is_open(
    cluster: Cluster, page: Page, tab: Tab, load: None
) -> None:
    tab.complaints.clear()
    leader = cluster.leader_of("orders", 0)
    tab.open(f"{page.address}#/topics/orders/0")
    tab.wait_for(f"Leader {leader}, epoch ")
    tab.wait_until("document.querySelectorAll('.replica').length === 3")
    tab.wait_until("document.querySelectorAll('.strip .cell').length > 3")
    epochs = int(text_of(tab, "main .card p").split("epoch ")[1].split(",")[0])
    cluster.kill(leader)
    tab.wait_until(
        f"!document.querySelector('main .card p').innerText.startsWith('Leader {leader},') && "
        f"!document.querySelector('main .card p').innerText.startsWith('Leader none')"
    )
    tab.wait_until(f"document.querySelectorAll('.cell.e{(epochs + 1) % 6}').length > 0")
    cluster.restart(leader)
    cluster.wait_until_in_sync("orders")
    tab.wait_for("in sync 1 2 3")
    # The time line goes back to when the old leader led.
    tab.wait_until("Number(document.querySelector('input.time').max) > 2")
    tab.value(
        "(() => { const slider = document.querySelector('input.time'); slider.value = 0; "
        "slider.dispatchEvent(new Event('input')); })()"
    )
    tab.wait_for("seen at")
    tab.wait_for("What changed, and why")
    assert not tab.complaints


def test_a_scenario_is_played_by_keys(page: Page, tab: Tab) -> None:
    tab.complaints.clear()
    tab.open(f"{page.address}#/scenarios/x-3")
    tab.wait_for("Step 0 of 36")
    tab.press("ArrowRight")
    tab.wait_for("Step 1 of 36")
    tab.wait_for("produce A m0 acks=all")
    tab.press("End")
    tab.wait_for("Step 36 of 36")
    tab.wait_for("I-23 is broken")
    tab.wait_for("No invariant was broken.")
    tab.press("ArrowLeft")
    tab.wait_for("Step 35 of 36")
    assert not tab.complaints


def test_a_script_is_typed_and_played(page: Page, tab: Tab) -> None:
    tab.open(f"{page.address}#/scenarios/own")
    tab.wait_until("document.querySelector('textarea')")
    tab.value("document.querySelector('textarea').value = 'title: t\\nreplicas: A B\\n\\nfly B\\n'")
    tab.value("document.querySelector('textarea').parentElement.querySelector('button').click()")
    tab.wait_for("There is no verb 'fly'.")
    tab.value(
        "document.querySelector('textarea').value = 'title: Mine\\nreplicas: A B\\n\\nfetch B\\n'"
    )
    tab.value("document.querySelector('textarea').parentElement.querySelector('button').click()")
    tab.wait_for("Step 0 of 1")


def test_the_lab_is_played_by_the_server_as_well(page: Page, tab: Tab) -> None:
    tab.complaints.clear()
    tab.open(f"{page.address}#/lab")
    tab.wait_for("Step 0 of 0")
    for label, told in (
        ("Produce", "Step 1 of 1"),
        ("Step", "Step 2 of 2"),
        ("Step", "is acknowledged"),
    ):
        tab.value(
            f"[...document.querySelectorAll('.lab button')].find((each) => each.textContent === "
            f"{label!r}).click()"
        )
        tab.wait_for(told)
    assert not tab.complaints


def test_records_are_shown_as_text_only(cluster: Cluster, page: Page, tab: Tab) -> None:
    """What is in a record can do nothing to the page."""
    tab.complaints.clear()
    cluster.create_topic("hostile", partitions=1, replication_factor=1)
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        producer.send("hostile", b"<img src=x onerror=document.title=1>")
        producer.flush()
    tab.open(f"{page.address}#/topics/hostile/0/records")
    tab.wait_for("<img src=x onerror=document.title=1>")
    assert tab.value("document.title") == "Strandline"
    assert tab.value("document.querySelectorAll('main img').length") == 0


def test_a_page_without_a_cluster_shows_a_scenario(tab: Tab) -> None:
    tab.complaints.clear()
    with page_of("play", "x-3", "--ui") as address:
        tab.open(address)
        tab.wait_for("Step 0 of 36")
        assert "Scenarios" in text_of(tab, "header nav")
        assert "Groups" not in text_of(tab, "header nav")
        tab.open("about:blank")
    assert not tab.complaints


@contextmanager
def page_of(*command: str) -> Iterator[str]:
    """The address that a command prints first; it ends with the block as by Ctrl-C."""
    child = subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *command],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        yield child.stdout.readline().strip()
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate()
    assert child.returncode == 0


def test_tables_beside_their_logs(cluster: Cluster, tab: Tab, tmp_path: Path) -> None:
    """Frontier and log end, commits, dead letters with their reasons; kept up to date."""
    tab.complaints.clear()
    cluster.create_topic("flights", partitions=1, replication_factor=3)
    world = TableWorld(tmp_path / "flights")
    save_spec(world.spec)
    with ClusterClient(cluster.bootstrap_servers) as client, Producer(client) as producer:
        for _ in range(7):
            producer.send("flights", b'{"n": 1}')
        producer.flush().raise_failure()
    world.batch("q", 0, [{"n": 1}, b"{"])
    ResultWorld(path="results", tables=str(tmp_path)).batch("q", 0, [("B", 1)])
    bootstrap = cluster.bootstrap_servers
    with page_of(
        "ui", "--port", "0", "--bootstrap", bootstrap, "--tables", str(tmp_path)
    ) as address:
        tab.open(f"{address}#/tables")
        tab.wait_for("5 behind")
        said = text_of(tab, "main")
        for expected in (
            "Frontier, beside the log's end",
            "Last commits",
            "1 BadValue",
            "of queries",
        ):
            assert expected in said
        tab.size(360, 740)
        assert tab.overflow == 0
        assert shutil.which("npm") is None or violations(tab) == []
        tab.value("document.querySelector('main details summary').click()")
        world.batch("q", 1, [{"n": 1}] * 5, start=2)
        tab.wait_for("nothing is missing")
        assert tab.value("document.querySelector('main details').open") is False
        tab.size(1200, 800)
        tab.open("about:blank")
    assert not tab.complaints


def test_one_cause_of_many_things_is_told_once(page: Page, tab: Tab) -> None:
    """A broker that died is the cause in hundreds of partitions."""
    tab.complaints.clear()
    tab.open(f"{page.address}#/why")
    tab.wait_for("What is refused or waits")
    finding = {
        "rule": "not-in-sync", "title": "A replica is not in sync", "errors": [], "settings": [],
        "cause": "broker 2 is gone", "since_wall_ms": 1000, "evidence": ["it is"],
        "remedy": "`strandline why` tells more.",
    }  # fmt: skip
    findings = [{**finding, "about": f"t-{number}"} for number in range(150)]
    shown = json.dumps({"brokers": {"1": {"findings": findings}}})
    tab.value(f"""import("/static/lists.js").then(({{ answers }}) => {{
        window.shown = answers({shown});
        document.getElementById("main").replaceChildren(window.shown);
    }})""")
    tab.wait_for("A replica is not in sync: t-0 … (150)")
    assert tab.value("shown.querySelectorAll('article').length") == 1
    assert tab.value("shown.querySelector('code').innerText") == "strandline why"
    tab.value("shown.querySelector('details').open = true")
    tab.wait_for("50 more are not shown.")
    assert "`" not in tab.text
    assert not tab.complaints


def test_the_stream_is_asked_for_again_after_an_answer_that_was_an_error(
    page: Page, tab: Tab
) -> None:
    """As of a proxy whose server is being started anew. A browser then ends the stream for good."""
    tab.open(f"{page.address}#/ledger")
    tab.wait_for("Nothing was cut off.")
    tab.value("""import("/static/picture.js").then(({ Live }) => {
        window.asked = 0;
        window.EventSource = class extends EventTarget {
            static CLOSED = 2;
            constructor() {
                super();
                window.asked += 1;
                this.readyState = window.asked === 1 ? 2 : 1;
                setTimeout(() => (window.asked === 1 ? this.onerror() : this.onopen()));
            }
            close() {}
        };
        window.other = new Live();
        other.start();
    })""")
    tab.wait_until("asked === 2 && other.isConnected")
    tab.open("about:blank")  # the next test has the browser's own streams


def test_the_focus_stays_in_the_list_of_brokers(page: Page, tab: Tab) -> None:
    """It is drawn anew twice a second."""
    tab.complaints.clear()
    tab.size(390, 800)
    tab.open(f"{page.address}#/")
    brokers = "document.querySelector('main .scroll')"
    tab.wait_until(f"{brokers}.querySelectorAll('tbody tr').length >= 3")
    tab.value(f"{brokers}.focus()")
    tab.value("""import("/static/picture.js").then(({ Live }) => {
        const live = new Live();
        live.start();
        live.listen(() => { window.seen = live.head?.number; });
    })""")
    tab.wait_until("seen > 0")
    first = tab.value("seen")
    tab.wait_until(f"seen > {first} + 2")
    assert tab.value(f"document.activeElement === {brokers}")
    assert not tab.complaints
