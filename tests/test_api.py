"""The public interface: what `import strandline` offers, and its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import strandline
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from tests import api_page

ROOT = Path(__file__).parents[1]
LIGHT = "import sys, strandline; print([each for each in sys.modules if 'strandline.' in each])"


def test_the_page_is_generated() -> None:
    assert (ROOT / "docs/api.md").read_text("utf-8") == api_page.page()


def test_every_name_is_on_a_shelf_of_the_page_and_can_be_imported() -> None:
    shown = {name for names in api_page.SHELVES.values() for name in names}
    assert shown == {name for name in strandline.__all__ if name != "__version__"}
    assert all(getattr(strandline, name).__name__ == name for name in shown)


def test_shells_can_offer_the_names() -> None:
    assert set(strandline.__all__) <= set(dir(strandline))


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ControllerLoop'"):
        _ = strandline.ControllerLoop


def test_importing_the_package_imports_nothing_of_it() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert printed.strip() == "['strandline.version']"


def test_a_table_from_a_program(tmp_path: Path) -> None:
    """The example of the page of tables, with a cluster of the same package."""
    spec = strandline.TableSpec(name="orders", topics=("orders",), location=str(tmp_path / "t"))
    with strandline.Cluster(brokers=1) as cluster:
        cluster.create_topic("orders", partitions=2)
        with ClusterClient(cluster.bootstrap_servers) as client, Producer(client) as producer:
            for number in range(10):
                producer.send("orders", json.dumps({"n": number}).encode())
        table = strandline.Table.create(spec)
        events: list[object] = []
        stopped = table.run(cluster.bootstrap_servers, on_event=events.append)
        assert (stopped.rows, stopped.lag and stopped.lag.records) == (10, 0)
        assert [type(each) for each in events][-2:] == [strandline.Committed, strandline.Stopped]
        assert table.run(cluster.bootstrap_servers).rows == 0
        again = strandline.Table.open(tmp_path / "t")
        assert again.verify(cluster.bootstrap_servers).is_good
    assert sorted(again.dataset().to_table()["n"].to_pylist()) == list(range(10))
    assert [each.spec for each in strandline.Table.defined_in(tmp_path)] == [spec]
