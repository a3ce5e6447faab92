"""Where schemas come from: files, and a registry that may know nothing, lie, drip or be silent."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidSetting
from strandline.schemas import registry as registry_module
from strandline.schemas.errors import BadSchema, UnknownSchema, Unreadable
from strandline.schemas.folder import SCHEMA_BYTES_MAX, SchemaFolder
from strandline.schemas.places import SchemaPlaces
from strandline.schemas.reading import LOOKUPS_MAX, AvroReader
from strandline.schemas.registry import REFUSAL_KEPT_S, Registry
from strandline.schemas.sources import Schemas
from strandline.schemas.walk import Limits
from tests.schemas.values import LittleRegistry, avro, framed, little_registry

LIMITS = Limits(items=1_000)


@pytest.fixture
def registry() -> Iterator[LittleRegistry]:
    with little_registry() as running:
        yield running


class Clock:
    """Seconds, as a test moves them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# -- A registry --------------------------------------------------------------------------------


def test_a_schema_is_asked_for_once(registry: LittleRegistry) -> None:
    registry.register(7, "long")
    asked = Registry(registry.address)
    assert [asked.text(7), asked.text(7)] == ['"long"', '"long"']
    assert registry.asked == ["/schemas/ids/7"]
    assert "Authorization" not in registry.headers[0]


def test_credentials_go_to_the_registry_and_into_no_sentence(registry: LittleRegistry) -> None:
    asked = Registry(registry.address.replace("http://", "http://reader:s%40cret@") + "/path/")
    with pytest.raises(UnknownSchema) as caught:
        asked.text(7)
    assert registry.asked == ["/path/schemas/ids/7"]
    pair = base64.b64encode(b"reader:s@cret").decode()
    assert registry.headers[0]["Authorization"] == f"Basic {pair}"
    assert "cret" not in str(caught.value)
    assert f"registry at {registry.address}/path (404)" in str(caught.value)


def test_what_is_not_known_is_asked_again_after_a_while(registry: LittleRegistry) -> None:
    clock = Clock()
    asked = Registry(registry.address, clock)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="Schema 7 is not known to the schema registry"):
            asked.text(7)
    assert len(registry.asked) == 1
    registry.register(7, "long")
    clock.now += REFUSAL_KEPT_S
    assert asked.text(7) == '"long"'


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (500, b"", "answers with the status 500"),
        (401, b"", "answers with the status 401"),
        (302, b"file:///etc/hostname", "answers with the status 302"),
        (200, b"<html>", "does not answer with JSON"),
        (200, b"[" * 100_000, "does not answer with JSON"),
        (200, b"[]", "answers without a schema"),
        (200, b'{"schema": 5}', "answers without a schema"),
        (200, b'{"schema": "{}", "schemaType": "PROTOBUF"}', "no Avro schema, but one of PROTOBUF"),
        (200, b'{"schema": "{}", "references": [{}]}', "put one with all of its types into 7.avsc"),
        (200, b" " * (2 * SCHEMA_BYTES_MAX + 1), "answers with over"),
    ],
)
def test_an_answer_that_is_no_schema_is_a_sentence(
    registry: LittleRegistry, status: int, body: bytes, sentence: str
) -> None:
    registry.answers["/schemas/ids/7"] = (status, body)
    with pytest.raises(UnknownSchema, match=sentence):
        Registry(registry.address).text(7)


def test_an_answer_that_drips_is_cut_off(
    registry: LittleRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "WHOLE_S", 0.3)
    ended = threading.Event()

    def drip(stream: Any) -> None:
        stream.write(b"HTTP/1.0 200 OK\r\n\r\n")
        while not ended.wait(0.05):
            try:
                stream.write(b" ")
            except OSError:
                return

    registry.drip = drip
    asked = Registry(registry.address)
    try:
        with pytest.raises(UnknownSchema, match="does not answer: nothing whole came"):
            asked.text(7)
    finally:
        ended.set()
    # No lookup waits for it again so soon, whatever the id.
    with pytest.raises(UnknownSchema, match="does not answer"):
        asked.text(8)
    assert registry.asked == ["/schemas/ids/7"]


def test_a_registry_that_is_not_there_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnknownSchema, match=rf"http://127.0.0.1:{port} does not answer: .*refused"):
        Registry(f"http://127.0.0.1:{port}").text(1)


@pytest.mark.parametrize(
    "url",
    ["", "host:8081", "ftp://host", "file:///etc/hostname", "http://", "http://host:x",
    "http://h:0",
     "http://host/?a=b", "http://host/#a", "http://host/a b", "http://user:secret@"],
)  # fmt: skip
def test_what_is_no_address_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Registry(url)
    assert "secret" not in str(caught.value)


def test_what_is_kept_is_bounded(registry: LittleRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "KEPT_BYTES_MAX", 20)
    for number in range(4):
        registry.register(number, "x" * 6)  # 8 bytes as JSON
    asked = Registry(registry.address)
    for number in (0, 1, 2, 3, 3, 0):
        asked.text(number)
    assert [path[-1] for path in registry.asked] == ["0", "1", "2", "3", "0"]


# -- Files -------------------------------------------------------------------------------------


def test_files_are_read_as_they_are_now(tmp_path: Path) -> None:
    schemas = Schemas.at(SchemaPlaces(str(tmp_path)))
    with pytest.raises(UnknownSchema, match=r"there is no 7\.avsc in the directory of schemas"):
        schemas.by_id(7)
    (tmp_path / "7.avsc").write_text('"long"')
    assert schemas.by_id(7).avro.read(b"\x04", LIMITS) == 2
    (tmp_path / "7.avsc").write_text('"string"')
    assert schemas.by_id(7).avro.read(b"\x02a", LIMITS) == "a"
    (tmp_path / "7.avsc").write_text("{")
    with pytest.raises(Unreadable, match="Schema 7 is no use: The Avro schema cannot be read"):
        schemas.by_id(7)


def test_only_regular_files_of_the_directory_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "x-value.avsc").write_text('"long"')
    os.mkfifo(inside / "pipe")
    (inside / "large").write_bytes(b" " * (SCHEMA_BYTES_MAX + 1))
    (inside / "latin").write_bytes(b"\xe9")
    folder = SchemaFolder(inside)
    for name in ("../x-value.avsc", "pipe", "", "..", "/etc/hostname"):
        assert folder.text(name) is None
    schemas = Schemas(folder)
    assert schemas.of_topic("../x", "value") is None
    for name, sentence in (
        ("large", "is longer than"),
        ("latin", "is not UTF-8"),
        ("x" * 300, "cannot be read: File name too long"),
    ):
        with pytest.raises(BadSchema, match=f"{name} {sentence}"):
            folder.text(name)


def test_files_come_before_the_registry(tmp_path: Path, registry: LittleRegistry) -> None:
    (tmp_path / "7.avsc").write_text('"long"')
    registry.register(7, "string")
    registry.register(8, "string")
    schemas = Schemas.at(SchemaPlaces(str(tmp_path), registry.address))
    reader = AvroReader(schemas, "t", "value", LIMITS)
    assert reader.read(framed(7, b"\x04")) == ("schema 7", 2)
    assert reader.read(framed(8, b"\x02a")) == ("schema 8", "a")
    assert registry.asked == ["/schemas/ids/8"]


# -- Both, for the values of a topic -----------------------------------------------------------


def test_a_topics_own_schema_is_for_plain_values(tmp_path: Path) -> None:
    (tmp_path / "t-value.avsc").write_text(json.dumps({"type": "array", "items": "long"}))
    (tmp_path / "7.avsc").write_text('"string"')
    schemas = Schemas.at(SchemaPlaces(str(tmp_path)))
    values = AvroReader(schemas, "t", "value", LIMITS)
    keys = AvroReader(schemas, "t", "key", LIMITS)
    assert values.read(b"\x02\x04\x00") == ("t-value.avsc", [2])
    assert values.read(framed(7, b"\x02a")) == ("schema 7", "a")
    with pytest.raises(Unreadable, match="After the Avro value, 4 bytes are left"):
        values.read(framed(8, b""))
    with pytest.raises(Unreadable, match=r"begin with a schema id.*put t-key.avsc into"):
        keys.read(b"\x02\x04\x00")
    assert keys.read(framed(7, b"\x02a")) == ("schema 7", "a")


def test_what_is_missing_is_said() -> None:
    reader = AvroReader(Schemas(), "t", "value", LIMITS)
    with pytest.raises(UnknownSchema, match=r"Schema 7 .*no schema registry was named \(--schema"):
        reader.read(framed(7, b""))
    with pytest.raises(Unreadable, match=r"name a directory with t-value.avsc: --schemas DIR"):
        reader.read(b"x")


def test_garbage_that_looks_like_many_ids_is_asked_for_in_bounds(registry: LittleRegistry) -> None:
    reader = AvroReader(Schemas(registry=Registry(registry.address)), "t", "value", LIMITS)
    for number in range(2 * LOOKUPS_MAX):
        with pytest.raises(Unreadable, match=f"Schema {number} is not"):
            reader.read(framed(number, b""))
    assert len(registry.asked) == LOOKUPS_MAX


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data = framed(7, avro("long", 2))
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(Unreadable, match=r"install strandline\[avro\]"):
        AvroReader(Schemas(), "t", "value", LIMITS).read(data)
