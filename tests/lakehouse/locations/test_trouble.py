"""What a store can do to a table, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.tables.spec import list_specs, load_spec, save_spec
from tests.lakehouse.locations.s3_server import Fault, S3Server
from tests.lakehouse.tables.table_world import TableWorld

BUSY = "the store is too busy, or broken"
FORBIDDEN = "the store does not permit it"


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    place = "s3://no-such-bucket/t"
    for attempt in (
        lambda: load_spec(place),
        lambda: list_specs(place),
        lambda: save_spec(TableWorld.spec_in(place)),
        lambda: TableWorld(place),
    ):
        with pytest.raises(StoreTrouble, match="the bucket no-such-bucket is not there"):
            attempt()


def test_a_store_that_cannot_be_reached(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for attempt in (lambda: load_spec("s3://lake/t"), lambda: TableWorld("s3://lake/t")):
        with pytest.raises(StoreTrouble, match="cannot be reached"):
            attempt()


@pytest.mark.parametrize(("status", "said"), [(503, BUSY), (403, FORBIDDEN)])
@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT|POST", "/data/part-"), ("PUT", "/data/_delta_log/"), ("HEAD|GET", ".")],
    ids=["files", "commit", "reading"],
)
def test_trouble_leaves_the_table_as_it_was_until_it_ends(
    s3: S3Server, bucket: str, status: int, said: str, method: str, path: str
) -> None:
    table = TableWorld(f"s3://{bucket}/t")
    table.batch("q", 0, [{"a": 0}, b"bad"])
    s3.plant(Fault(method, path, times=-1, status=status))
    with pytest.raises(StoreTrouble, match=said) as raised:
        table.batch("q", 1, [{"a": 1}, b"bad"], start=2)
    assert f"s3://{bucket}/t" in str(raised.value)
    assert len(str(raised.value)) < 400
    s3.plant()
    assert (table.offsets(), table.letters()) == ([0], [1])
    table.batch("q", 1, [{"a": 1}, b"bad"], start=2)
    assert (table.offsets(), table.letters()) == ([0, 2], [1, 3])


def test_keys_come_from_a_profile(
    s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through each of the three libraries that open a store."""
    (tmp_path / "credentials").write_text(
        "[lake]\naws_access_key_id = key-of-the-profile\naws_secret_access_key = hidden\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3.plant()
    table = TableWorld(f"s3://{bucket}/t")
    save_spec(table.spec)
    table.batch("q", 0, [{"a": 0}])
    assert table.offsets() == [0]
    assert s3.keys_used() == {"key-of-the-profile"}
