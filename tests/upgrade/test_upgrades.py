"""`strandline table upgrade`: tables that 0.1.0 made get the names of today, and it keeps off them.

What can happen to an upgrade is tried in tests/lakehouse/tables/test_upgrading.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from strandline.cli.main import cli
from strandline.lakehouse.deadletters.listing import list_letters
from strandline.lakehouse.tables.committing import COMMITTED, REPLAYED
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.names import FIRST, NAMES
from strandline.lakehouse.tables.spec import load_spec, save_spec
from strandline.lakehouse.tables.store import TableStore, open_store
from strandline.lakehouse.tables.writing import BatchWriter
from tests.upgrade import old_tables
from tests.upgrade.test_tables import BATCH, earlier, write

__all__ = ["earlier"]


def commit(store: TableStore, first: int) -> str:
    """The batch from that offset on, as the older program names it; what became of it."""
    batch = old_tables.records(first)
    writer = BatchWriter(store.spec, store.state(), "0")
    writer.write(batch)
    ranges = (OffsetRange(old_tables.TOPIC, 0, first, first + batch.num_rows),)
    return store.commit(BatchIdentity(f"q{first}", 0, ranges), [writer.finish()]).outcome


def offsets(store: TableStore) -> list[int]:
    return sorted(store.dataset().to_table().column("kafka_offset").to_pylist())


@pytest.mark.parametrize(
    ("table_format", "is_divided"), [("delta", True), ("delta", False), ("iceberg", False)]
)
def test_a_table_of_that_release_goes_on_under_the_names_of_today(
    earlier: Path, tmp_path: Path, table_format: str, *, is_divided: bool
) -> None:
    directory = tmp_path / "t"
    if not is_divided:
        made = TableSpec(
            "t",
            (old_tables.TOPIC,),
            str(directory),
            format=table_format,
            version=1,
            field_names="exact",
        )
        save_spec(made)
    write(earlier, directory, table_format, "append", 0)
    before = open_store(load_spec(directory)).dataset().to_table().to_pylist()
    definition = (directory / "table.json").read_text()
    upgrade = ["table", "upgrade", "t", "--tables", str(tmp_path)]
    told = CliRunner().invoke(cli, upgrade)
    assert (told.exit_code, told.output) == (
        0,
        "Table t has the columns kafka_topic, kafka_partition, kafka_offset now; 2 files written "
        "again.\n",
    )
    store = open_store(load_spec(directory))
    names = FIRST.renamed(NAMES)
    assert sorted(store.dataset().to_table().to_pylist(), key=str) == sorted(
        ({names.get(name, name): value for name, value in row.items()} for row in before), key=str
    )

    # As if 0.1.0 had read the definition before the upgrade, or this had ended in the middle.
    upgraded = (directory / "table.json").read_text()
    (directory / "table.json").write_text(definition)
    with pytest.raises(AssertionError, match=r"names of version 2\), and its definition says"):
        write(earlier, directory, table_format, "append", BATCH)
    (directory / "table.json").write_text(upgraded)

    assert commit(store, 0) == REPLAYED
    assert commit(store, BATCH) == COMMITTED
    late = {BATCH + 4} if is_divided else set()
    assert offsets(store) == sorted({0, 2, 3, 4, 5, 7, 8, 9} - late)
    assert {each.offset for each in list_letters(store)} == {1, 6}
    again = CliRunner().invoke(cli, upgrade)
    assert "Table t has the names of today: kafka_topic" in again.output
    assert sorted(os.listdir(directory)) == sorted(
        {"data", "dead_letters", "made.txt", "table.json"}
        | ({"late"} if is_divided else set())
        | ({"catalog.db"} if table_format == "iceberg" else set())
    )
