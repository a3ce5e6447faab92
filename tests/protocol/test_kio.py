"""Our codecs against kio, an independent implementation of the same schemas.

Our bytes are read by kio, compared field by field, written by kio again, and must be the same
bytes. Only what both know takes part; kio's field names and richer types are folded into ours.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import kio.schema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from strandline.protocol import apis, schema
from strandline.protocol.declare import shape_of

FEW = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _known_to_both() -> Iterator[Any]:
    """Kio's modules are looked for, and imported by the tests: all processes collect these."""
    schemas = Path(kio.schema.__file__).parent
    for api in apis.KNOWN.values():
        for version in range(api.versions.lowest, api.versions.highest + 1):
            for declared in (api.request_class, api.response_class):
                kind = declared.__name__.removeprefix(api.name).lower()
                if (schemas / api.module / f"v{version}" / f"{kind}.py").exists():
                    module = f"kio.schema.{api.module}.v{version}.{kind}"
                    name = f"{declared.__name__}-v{version}"
                    yield pytest.param(declared, version, module, id=name)


@pytest.mark.parametrize(("ours", "version", "module"), list(_known_to_both()))
@FEW
@given(data=st.data())
def test_kio_reads_and_writes_the_same(
    ours: Any, version: int, module: str, values_of: Any, data: Any
) -> None:
    theirs = getattr(import_module(module), ours.__name__)
    message = data.draw(values_of(ours, version))
    encoded = schema.encode(message, version)
    read, size = entity_reader(theirs)(encoded, 0)
    assert size == len(encoded)
    _same(message, read, version)
    written = io.BytesIO()
    entity_writer(theirs)(written, read)
    assert written.getvalue() == encoded


def _same(ours: Any, theirs: Any, version: int) -> None:
    """Compare field by field, in wire order."""
    present = [each for each in shape_of(ours).fields if each.versions.covers(version)]
    fields = dataclasses.fields(theirs)
    assert [_plain(each.name) for each in present] == [_plain(each.name) for each in fields]
    for our_field, their_field in zip(present, fields, strict=True):
        mine, other = getattr(ours, our_field.name), _folded(getattr(theirs, their_field.name))
        if mine is None and dataclasses.is_dataclass(other):
            mine = our_field.element()  # type: ignore[operator]  # an absent tagged structure
        _same_value(mine, other, version)


def _same_value(mine: Any, other: Any, version: int) -> None:
    if isinstance(mine, list):
        assert len(mine) == len(other)
        for one, another in zip(mine, other, strict=True):
            _same_value(one, _folded(another), version)
    elif hasattr(mine, "__shape__"):
        _same(mine, other, version)
    else:
        assert mine == (UUID(int=0) if isinstance(mine, UUID) and other is None else other)


def _plain(name: str) -> str:
    return name.removesuffix("_ms").replace("_", "")


def _folded(value: Any) -> Any:
    """kio's times as the milliseconds that are on the wire."""
    if isinstance(value, datetime.datetime):
        value -= datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return value
