"""`strandline consume --value avro`: Avro records in a pipe, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from tests.cli.conftest import run_here
from tests.schemas.values import avro, framed, little_registry

Run = Callable[..., Any]
VALUE = {"type": "record", "name": "V", "fields": [{"name": "n", "type": "int"}]}


def test_avro_is_printed_as_json(address: str, spawn: Run, name: str, tmp_path: Path) -> None:
    value = avro(VALUE, {"n": 5})
    with ClusterClient(address) as client:
        producer = Producer(client)
        producer.send(name, framed(7, value), key=avro("string", "é"))
        producer.send(name, framed(8, b"bytes"), key=None)
        producer.send(name, framed(8, b"more"), key=None)
        producer.send(name, None, key=avro("string", "gone"))
        producer.flush()
    (tmp_path / f"{name}-key.avsc").write_text('"string"')
    with little_registry() as registry:
        registry.register(7, VALUE)
        found = spawn(
            "consume", name, "-e", "--key", "avro", "--value", "avro", "--format", "%k %s\\n",
            "--schema-registry", registry.address, "--schemas", str(tmp_path),
        )  # fmt: skip
    assert found.code == 0
    assert found.out.splitlines() == [
        '"é" {"n": 5}',
        " \0\0\0\0\x08bytes",
        " \0\0\0\0\x08more",
        '"gone" ',
    ]
    (told,) = found.err.splitlines()
    assert told.startswith("Value at offset 1: Schema 8 is not known to the schema registry at")
    as_json = spawn("consume", name, "--max", "1", "--format", "json", "--value", "bytes")
    assert json.loads(as_json.out)["offset"] == 0


def test_what_is_no_registry_is_refused(spawn: Run, name: str) -> None:
    found = spawn("consume", name, "--value", "avro", "--schema-registry", "ftp://me:secret@host")
    assert found.code == 2
    assert "--schema-registry: The schema registry is named by http://HOST:PORT" in found.err
    assert "secret" not in found.err


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    for command in ("ui", "consume"):
        arguments = [command, "--schema-registry", "http://localhost:1"]
        more = ["t", "--value", "avro"] if command == "consume" else []
        found = run_here([*arguments, *more])
        assert found.code == 1
        assert "pip install 'strandline[avro]'" in found.err
