"""The file of the audit log: who may read it, what is in it, and what if it cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from strandline.broker.audit_file import close_audit_file
from strandline.errors import InvalidSetting
from strandline.testing import Cluster

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "audit.jsonl"
    close_audit_file(str(tmp_path / "audit.jsonl"))


def test_denials_go_to_the_file(path: Path) -> None:
    settings = {"authorizer.class.name": AUTHORIZER, "strandline.audit.log.path": str(path)}
    with Cluster(brokers=1, settings={**settings, "super.users": "User:root"}) as cluster:
        found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("t", 10)
        assert "Topic authorization failed" in str(found.topics["t"].error)
    [line] = [json.loads(each) for each in path.read_text("utf-8").splitlines()]
    assert (line["principal"], line["host"]) == ("User:ANONYMOUS", "127.0.0.1")
    assert (line["operation"], line["resource"], line["allowed"]) == ("Describe", "t", False)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    lost = tmp_path / "missing" / "audit.jsonl"
    settings = {"authorizer.class.name": AUTHORIZER, "strandline.audit.log.path": str(lost)}
    with (
        pytest.raises(InvalidSetting, match=r"audit\.log\.path.*cannot be written: No such file"),
        Cluster(brokers=1, settings=settings),
    ):
        pass
