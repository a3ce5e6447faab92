"""Addresses of tables."""

from __future__ import annotations

import os
import pickle

import pytest

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import credentials
from strandline.lakehouse.locations.credentials import public_settings, take_settings
from strandline.lakehouse.locations.errors import sentence
from strandline.lakehouse.locations.location import Location


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("s3://lake/bronze/", "s3://lake/bronze"),
        ("s3a://lake//bronze", "s3://lake/bronze"),
        ("S3://lake", "s3://lake/"),
        ("gs://lake/a b", "gs://lake/a b"),
        ("abfss://c@acct.dfs.core.windows.net/x", "abfs://c@acct.dfs.core.windows.net/x"),
        ("az://c/x", "abfs://c/x"),
        ("hdfs://head:8020/x", "hdfs://head:8020/x"),
        ("file:///a%20b", "/a b"),
        ("/a b", "/a b"),
        ("/ä é/[x]+&='", "/ä é/[x]+&='"),
        ("/of/earlier/releases/C#/100%/why?", "/of/earlier/releases/C#/100%/why?"),
    ],
)
def test_addresses(given: str, means: str) -> None:
    place = Location.parse(given)
    assert str(place) == means
    assert Location.parse(str(place)) == place
    assert Location.parse(place.uri) == place


def test_readers_take_what_stands_behind_the_scheme_as_it_is() -> None:
    assert Location.parse("/my läke/t").uri == "file:///my läke/t"
    assert Location.parse("s3://lake/a b").uri == "s3://lake/a b"
    assert Location.parse("/of/earlier/C#").uri == "file:///of/earlier/C%23", "it has files so"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("s3://key:word@lake/t", "keys and users do not belong into a location"),
        ("s3://la ke/t", "the name of a bucket"),
        ("s3:///t", "the name of a bucket"),
        ("abfs://key:word@acct.blob/t", "CONTAINER@ACCOUNT"),
        ("s3://lake/t?secret=word", "letters, digits"),
        ("s3://lake/../t", "letters, digits"),
        ("ftp://host/t", "expected a directory, or a URI"),
        (os.fsdecode(b"/lake/\xff"), "not UTF-8"),
    ],
)
def test_what_is_no_address_is_refused_and_no_secret_repeated(given: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as raised:
        Location.parse(given, setting="--tables")
    assert str(raised.value).startswith("--tables cannot be ")
    assert "word" not in str(raised.value)


def test_going_down_and_up() -> None:
    place = Location.parse("s3://lake/t") / "data" / "x.parquet"
    assert (str(place), place.name, str(place.parent)) == (
        "s3://lake/t/data/x.parquet",
        "x.parquet",
        "s3://lake/t/data",
    )
    assert place.relative_to(Location.parse("s3://lake/t")) == "data/x.parquet"
    with pytest.raises(ValueError, match="not below"):
        place.relative_to(Location.parse("s3://other/t"))
    with pytest.raises(TypeError, match="no path of this machine"):
        os.fspath(place)


def test_tasks_are_told_where_a_store_is_and_never_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-word")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "very-secret-word")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://head:9000")
    told = public_settings()
    assert b"very-secret-word" not in pickle.dumps(told)
    assert told["AWS_ENDPOINT_URL"] == "http://head:9000"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://nearer:9000")
    # What was set is taken back at the end; what was only deleted, and was not there, would stay.
    for name in {*told, "AWS_PROFILE"} - {"AWS_ENDPOINT_URL"}:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    take_settings({**told, "AWS_PROFILE": "lake"})
    assert public_settings()["AWS_ENDPOINT_URL"] == "http://nearer:9000"
    assert public_settings()["AWS_PROFILE"] == "lake"


def test_a_duration_is_no_status() -> None:
    """As the client of the store says it: 403 milliseconds and 503, Service Unavailable."""
    error = OSError(
        "Error performing PUT http://127.0.0.1:401/lake/t in 403.935281ms, after 3 retries - "
        "Server returned non-2xx status code: 503 Service Unavailable"
    )
    said = sentence(Location.parse("s3://lake/t"), "read", error)
    assert "the store is too busy, or broken" in said


def test_a_text_of_a_library_that_says_nothing_known_is_passed_on() -> None:
    place = Location.parse("s3://lake/t")
    assert sentence(place, "read", OSError("odd\n thing")) == (
        "s3://lake/t could not be read: odd thing."
    )


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("AZURE_STORAGE_ACCOUNT_KEY", "adls.account-key"),
        ("AZURE_STORAGE_SAS_TOKEN", "adls.sas-token"),
    ],
)
def test_iceberg_opens_azure_with_the_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    place = Location.parse("abfs://lake@account.dfs.core.windows.net/bronze")
    for each in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(each, raising=False)
    assert name not in credentials.for_iceberg(place)
    monkeypatch.setenv(variable, "very-secret-word")
    assert credentials.for_iceberg(place)[name] == "very-secret-word"
