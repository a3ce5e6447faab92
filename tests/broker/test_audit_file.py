"""The file of the audit log: who may read it, what is in it, and what if it cannot be."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from strandline.broker.audit_file import close_audit_file, open_audit_file
from strandline.errors import InvalidSetting
from strandline.testing import Cluster

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
FULL = Path("/dev/full")
AUDIT = logging.getLogger("strandline.audit")


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


def test_a_file_made_by_rotation_is_for_the_same_eyes(path: Path) -> None:
    open_audit_file(str(path))
    path.rename(path.with_suffix(".1"))
    AUDIT.info("after the rotation")
    assert path.read_text("utf-8") == "after the rotation\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_made_anew_costs_no_client_its_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    path.parent.mkdir()
    settings = {"authorizer.class.name": AUTHORIZER, "strandline.audit.log.path": str(path)}
    try:
        with Cluster(brokers=1, settings={**settings, "super.users": "User:root"}) as cluster:
            path.parent.rename(tmp_path / "gone")
            client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            found = client.list_topics("t", 10)
            assert "Topic authorization failed" in str(found.topics["t"].error)
            assert f"The audit log {path} cannot be written: [Errno 2]" in caplog.text
            (tmp_path / "gone").rename(path.parent)
            client.list_topics("u", 10)
            assert '"resource": "u"' in path.read_text("utf-8")
    finally:
        close_audit_file(str(path))


@pytest.mark.skipif(not FULL.exists(), reason="This system has no disk that is always full.")
def test_a_full_disk_is_a_sentence_in_the_log_of_the_broker(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    open_audit_file(str(FULL))
    try:
        AUDIT.info("a decision")
    finally:
        close_audit_file(str(FULL))
    assert caplog.messages == [
        "The audit log /dev/full cannot be written: [Errno 28] No space left on device"
    ]
    assert capsys.readouterr().err == ""
