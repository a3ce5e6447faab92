"""The keys of a batch: how equal ones are found, and kept in so much memory and no more.

Theory: keys are compared as numbers that equal keys share. Each column of a key is encoded, structs
by their fields, and null is a value like any other. A batch may have more keys than memory should
hold: then they are divided by a hash into slices, which lie in a file of this machine and are read
one by one. Equal keys are in the same slice, so each can be asked by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SLICE_ROWS: Final = 250_000
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_TOP_BITS: Final = np.uint64(32)


class BatchKeys:
    """The keys of a batch in slices of about `SLICE_ROWS`. A context manager.

    `rows` is how many there will be at most; they come from `batches`, in columns of `schema`.
    """

    def __init__(self, rows: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._schema = schema
        self._slices = -(-rows // SLICE_ROWS) or 1
        self._held: list[pa.Table] = []
        self._spilled: list[_Spilled] = []
        if self._slices == 1:
            self._held = [pa.Table.from_batches(list(batches), schema=schema)]
        else:
            self._spill(batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._spilled:
            each.close()

    def __iter__(self) -> Iterator[pa.Table]:
        """The slices, of which one is in memory at a time."""
        yield from self._held
        for each in self._spilled:
            yield each.read()

    def _spill(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._spilled = [_Spilled(self._schema) for _ in range(self._slices)]
        for batch in batches:
            places = slice_numbers(pa.Table.from_batches([batch]), self._slices)
            order = np.argsort(places, kind="stable")
            sorted_rows = batch.take(pa.array(order))
            starts = np.searchsorted(places[order], np.arange(self._slices + 1))
            for number, spilled in enumerate(self._spilled):
                start, end = int(starts[number]), int(starts[number + 1])
                if end > start:
                    spilled.write(sorted_rows.slice(start, end - start))
        for each in self._spilled:
            each.finish()


class _Spilled:
    """Keys in a file of this machine that has no name, and goes with this process."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by `close`
        self._writer = pa.ipc.new_stream(self._file, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def finish(self) -> None:
        self._writer.close()

    def read(self) -> pa.Table:
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as stream:
            return stream.read_all()

    def close(self) -> None:
        self._file.close()


def met(rows: pa.Table, keys: pa.Table) -> NDArray[np.bool_]:
    """Which of `rows` have one of `keys`."""
    numbers = key_numbers(pa.concat_tables([keys, rows]))
    return np.isin(numbers[keys.num_rows :], numbers[: keys.num_rows])


def doubled(keys: pa.Table) -> dict[str, object] | None:
    """A key that stands in more than one row, if there is one."""
    all_numbers = key_numbers(keys)
    numbers, counts = np.unique(all_numbers, return_counts=True)
    if len(numbers) == keys.num_rows:
        return None
    at = int(np.flatnonzero(all_numbers == numbers[counts > 1][0])[0])
    found: dict[str, object] = keys.slice(at, 1).to_pylist()[0]
    return found


def doubled_keys(keys: pa.Table) -> int:
    """How many keys stand in more than one row."""
    _, counts = np.unique(key_numbers(keys), return_counts=True)
    return int((counts > 1).sum())


def key_numbers(keys: pa.Table) -> NDArray[np.int64]:
    """A number for each row, the same for equal keys."""
    numbers = np.zeros(keys.num_rows, np.int64)
    for column in keys.columns:
        for leaf in _leaves(column.combine_chunks()):
            encoded = pc.dictionary_encode(leaf, null_encoding="encode")
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            numbers = numbers * max(1, len(encoded.dictionary)) + codes
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers


def slice_numbers(keys: pa.Table, slices: int) -> NDArray[np.int64]:
    """A number below `slices` for each row, the same for equal keys in whichever table they are."""
    mixed = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        for leaf in _leaves(column.combine_chunks()):
            encoded = pc.dictionary_encode(leaf, null_encoding="encode")
            values = np.fromiter(
                (crc32(repr(each).encode()) for each in encoded.dictionary.to_pylist()), np.uint64
            )
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            mixed = (mixed ^ values[codes]) * _MIXER
    return ((mixed >> _TOP_BITS) % np.uint64(slices)).astype(np.int64)


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    if not pa.types.is_struct(column.type):
        yield column
        return
    yield column.is_valid()
    for part in column.flatten():  # unlike `field`, null where the struct is
        yield from _leaves(part)
