"""Values for messages: strategies that fill every field a version has, and tell which exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st

from strandline.errors import ErrorCode
from strandline.protocol import apis
from strandline.protocol.declare import Field, Scalar, shape_of
from strandline.protocol.messages import (
    consumer_groups_topic,
    consumer_protocol,
    offsets_topic,
    share_group_state_topic,
    share_groups_topic,
)

_NUMBERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just("x" * 130)
_OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids() | st.just(UUID(int=0)),
    "string": _TEXT,
    "bytes": st.binary(max_size=5) | st.just(b"b" * 130),
    "records": (st.binary(max_size=20) | st.just(b"r" * 200)).map(
        lambda content: memoryview(content)
    ),
}


def scalar_values(element: Scalar[Any], name: str) -> st.SearchStrategy[Any]:
    """Values of a scalar; error codes and times are real ones, as kio insists."""
    if element.name == "int16" and name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if element.name == "int64" and "time" in name:
        return st.integers(0, 2**41)
    if element.name in _NUMBERS:
        return st.integers(*_NUMBERS[element.name])
    return _OTHERS[element.name]


def field_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Values of a field in a version that has it."""
    element = field.element
    if isinstance(element, Scalar):
        values = scalar_values(element, field.name)
    else:
        values = structure_values(element, version)
    if field.is_array:
        values = st.lists(values, max_size=2)
    if field.nullable.covers(version):
        values = st.none() | values
    elif field.tag is not None and not isinstance(element, Scalar) and not field.is_array:
        values = st.none() | values.filter(lambda value: value != value.__class__())
    return values


def structure_values(declared: Any, version: int) -> st.SearchStrategy[Any]:
    """Instances in which every field that the version has is filled, all others at default."""
    filled = {
        field.name: field_values(field, version)
        for field in shape_of(declared).fields
        if field.versions.covers(version)
    }
    return st.builds(declared, **filled)


@pytest.fixture(scope="session")
def values_of() -> Callable[[Any, int], st.SearchStrategy[Any]]:
    """(class, version) to a strategy; made once, since making them is slow."""
    known: dict[tuple[Any, int], st.SearchStrategy[Any]] = {}

    def strategy(declared: Any, version: int) -> st.SearchStrategy[Any]:
        key = (declared, version)
        if key not in known:
            known[key] = structure_values(declared, version)
        return known[key]

    return strategy


def all_messages() -> Iterator[type]:
    """Every top-level class."""
    for api in apis.KNOWN.values():
        yield api.request_class
        yield api.response_class
    for module in (
        consumer_protocol,
        offsets_topic,
        consumer_groups_topic,
        share_groups_topic,
        share_group_state_topic,
    ):
        for found in vars(module).values():
            own = isinstance(found, type) and found.__module__ == module.__name__
            if own and shape_of(found).top_level:
                yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `declared` runs once per message class."""
    if "declared" in metafunc.fixturenames:
        found = list(all_messages())
        metafunc.parametrize("declared", found, ids=[each.__name__ for each in found])
