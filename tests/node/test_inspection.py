"""Inspect: subjects are found, arguments read, refusals said, and clients need not know of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from strandline.errors import ErrorCode, ProtocolError
from strandline.node import inspection, inspection_arguments
from strandline.node.inspection import SUBJECTS, Subject, is_loopback
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.inspect import InspectRequest
from tests.node.messages import batch, produce
from tests.node.world import World


def ask(world: World, subject: str, arguments: bytes = b"") -> Any:
    return world.connect().ask(InspectRequest(subject=subject, arguments=arguments), 0)


def test_a_subject_answers_with_its_document(world: World) -> None:
    world.connect().ask(produce(batch(b"a", b"b")), 9)
    answer = ask(world, "status", b'{"topics": ["orders"]}')
    assert (answer.error_code, answer.error_message) == (0, None)
    (replica,) = json.loads(answer.document)["replicas"]
    assert replica["log_end_offset"] == replica["high_watermark"] == 2


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_every_subject_can_be_found(name: str) -> None:
    assert callable(SUBJECTS[name].load())


@pytest.mark.parametrize(
    ("subject", "arguments", "part"),
    [
        ("nonsense", b"", "There is no subject 'nonsense'; there are"),
        ("status", b"[1]", "not a JSON object"),
        ("status", b"{", "not JSON"),
        ("status", b'"' + b"x" * 70_000 + b'"', "65536 are allowed"),
        ("status", b"[" * 30_000, "not JSON"),
        ("why", b'{"topic": "\\udcff"}', "surrogates not allowed"),
        ("status", b'{"topcis": []}', "no argument 'topcis'"),
        ("status", b'{"topics": "orders"}', "list of texts"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    world: World, subject: str, arguments: bytes, part: str
) -> None:
    answer = ask(world, subject, arguments)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert part in answer.error_message
    assert answer.document == b""


def test_a_document_that_is_too_large_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "DOCUMENT_BYTES_MAX", 10)
    assert ask(world, "status").error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_some_subjects_are_for_the_same_machine_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject("strandline.node.status.snapshot:status", is_loopback_only=True)
    monkeypatch.setattr(inspection, "SUBJECTS", {"status": subject})
    answer = ask(world, "status")  # the tests' clients say that they come from `test-host`
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    near = world.connect()
    near.connection.client_host = "127.0.0.1"
    assert near.ask(InspectRequest(subject="status"), 0).error_code == 0


def test_addresses_of_the_same_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("10.0.0.1", "::2", "example.org", "")))


def test_it_is_not_advertised(world: World) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = world.connect().ask(request, 3)
    assert ApiKey.INSPECT not in {each.api_key for each in answer.api_keys}


Reader = Any


@pytest.mark.parametrize(
    ("read", "arguments", "expected"),
    [
        (inspection_arguments.text, {"x": "a"}, "a"),
        (inspection_arguments.text, {}, None),
        (inspection_arguments.text, {"x": 1}, None),
        (inspection_arguments.integer, {"x": 7}, 7),
        (inspection_arguments.integer, {"x": True}, None),
        (inspection_arguments.integer, {}, None),
        (inspection_arguments.flag, {}, False),
        (inspection_arguments.flag, {"x": True}, True),
        (inspection_arguments.flag, {"x": 1}, None),
        (inspection_arguments.optional_texts, {"x": ["a", "b"]}, ["a", "b"]),
        (inspection_arguments.optional_texts, {"x": ["a", 1]}, None),
    ],
)
def test_arguments(read: Reader, arguments: Mapping[str, object], expected: object) -> None:
    if expected is None:
        with pytest.raises(ProtocolError) as refused:
            read(arguments, "x")
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "'x'" in refused.value.message
    else:
        assert read(arguments, "x") == expected
