"""JSON values in Confluent's framing: their columns have the types that their JSON Schemas give.

JSON says by itself which fields it has. So the schema of an id decides about types only (a time is
no text), and one that columns cannot be made of (`oneOf`, `$ref`) leaves them to be inferred.
"""

from __future__ import annotations

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.values.decoding import (
    BAD_VALUE,
    UNKNOWN_SCHEMA,
    Decoded,
    Fault,
    Unfit,
)
from strandline.lakehouse.values.framing import unframe
from strandline.lakehouse.values.json_forms import JsonForms
from strandline.lakehouse.values.json_schema import read_json_schema
from strandline.lakehouse.values.json_values import JsonDecoder
from strandline.lakehouse.values.registered import REFUSED_MAX, client_of, joined
from strandline.schemas.errors import UnknownSchema

_KIND = "JSON"


class RegisteredJsonDecoder:
    """Reads JSON objects behind ids. `columns` are the table's."""

    name = "json by id"

    def __init__(self, spec: TableSpec, columns: pa.Schema, forms: JsonForms) -> None:
        self._spec = spec
        self._forms = forms
        self._columns = columns
        self._client = client_of(spec.registry or "")
        self._taken: set[int] = set()
        self._refused: dict[int, Unfit] = {}
        self._json = self._decoder()

    def decode(self, values: pa.Array) -> Decoded:
        """As `Decoder.decode`; raises RegistryDown."""
        faults: list[Fault] = []
        rows: list[int] = []
        payloads: list[bytes | None] = []
        before = self._columns
        for row, value in enumerate(values.to_pylist()):
            try:
                payload = None if value is None else self._unframed(value)
            except Unfit as unfit:
                faults.append(Fault(row, unfit.kind, unfit.sentence))
                continue
            rows.append(row)
            payloads.append(payload)
        if self._columns is not before:
            self._json = self._decoder()
        decoded = self._json.decode(pa.array(payloads, pa.binary()))
        at = pa.array(rows, pa.int64())
        faults += [fault._replace(row=rows[fault.row]) for fault in decoded.faults]
        return Decoded(decoded.columns, at.take(decoded.rows), sorted(faults))

    def _unframed(self, value: bytes) -> bytes:
        number, payload = unframe(value)
        if number in self._refused:
            raise self._refused[number]
        if number not in self._taken:
            if len(self._refused) >= REFUSED_MAX:
                raise Unfit(
                    UNKNOWN_SCHEMA,
                    f"Schema {number} is not looked up: {REFUSED_MAX} others were in vain.",
                )
            try:
                self._take(number)
            except Unfit as unfit:
                self._refused[number] = unfit
                raise
        return payload

    def _take(self, number: int) -> None:
        try:
            schema = self._client.by_id(number)
        except UnknownSchema as unknown:
            raise Unfit(UNKNOWN_SCHEMA, str(unknown)) from None
        if schema.kind != _KIND:
            raise Unfit(
                BAD_VALUE, f"Schema {number} is one of {schema.kind}, and the table's are {_KIND}."
            )
        self._taken.add(number)
        if not self._spec.evolve:
            return
        try:
            self._columns = joined(self._spec, self._columns, read_json_schema(schema.text).columns)
        except (InvalidSetting, Unfit):
            return  # the values themselves say what they need

    def _decoder(self) -> JsonDecoder:
        spec = self._spec
        return JsonDecoder(
            self._columns, evolve=spec.evolve, reserved=spec.reserved, forms=self._forms
        )
