"""One S3 server for the tests of a process; each test has a bucket of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.lakehouse.locations.s3_server import S3Server

_numbers = count(1)


@pytest.fixture(scope="session")
def one_s3_server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def s3(one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, which behaves, and whose address is in the environment."""
    for name, value in one_s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    one_s3_server.plant()
    yield one_s3_server
    one_s3_server.plant()


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A bucket of the test's own."""
    return s3.bucket(f"lake-{next(_numbers)}")
