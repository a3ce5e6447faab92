"""Record batches as columns: the compiled builder and its twin, on sound and on damaged bytes.

Both builders run on the same input in each test and must agree on everything that can be seen of
them; what the rows must be comes from the one reader of records, or is written down here.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.records._kernels import compiled
from strandline.records.batch import (
    HEADER,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    parse_header,
    set_crc,
)
from strandline.records.builder import build_batch, build_control_batch, rebuild_batch
from strandline.records.codec import Codec
from strandline.records.columns import (
    BYTES_MAX,
    BuilderLimits,
    ColumnBuilder,
    Columns,
    PythonColumnBuilder,
    VariableColumn,
    new_builder,
    whole_batches,
    whole_batches_in_python,
)
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record, read_records
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId

kernel = compiled("decode")
needs_kernel = pytest.mark.skipif(kernel is None, reason="the compiled kernels are not built")
Make = Callable[[BuilderLimits], ColumnBuilder]
Seen = tuple[list[int], int, int, int, str | None]
"""Where a builder stopped; its rows, bytes and next offset; the error at which it ended."""

BUILDERS: list[Make] = [PythonColumnBuilder]
if kernel is not None:
    BUILDERS.append(kernel.ColumnBuilder)

FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELD), max_size=4).map(tuple)
RECORD = st.builds(
    Record, timestamp=st.integers(-1, 2**61), key=FIELD, value=FIELD, headers=HEADERS
)
BATCH = st.tuples(st.lists(RECORD, min_size=1, max_size=8), st.sampled_from(Codec))


class Row(NamedTuple):
    """What a builder makes of a record."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] | None


def rows_of(columns: Columns) -> list[Row]:
    """The rows, read by the layout that the module describes."""
    headers: list[tuple[tuple[bytes, bytes | None], ...] | None] = [None] * columns.rows
    if columns.headers is not None:
        table = columns.headers
        pairs = list(
            zip(
                (key or b"" for key in values_of(table.key, table.pairs)),
                values_of(table.value, table.pairs),
                strict=True,
            )
        )
        bounds = array("i", bytes(table.offsets))  # type: ignore[call-overload]
        for row in range(columns.rows):
            if is_there(table.validity, row):
                headers[row] = tuple(pairs[bounds[row] : bounds[row + 1]])
            else:
                assert bounds[row] == bounds[row + 1]
    return [
        Row(*fields)
        for fields in zip(
            array("q", bytes(columns.offset)),  # type: ignore[call-overload]
            array("q", bytes(columns.timestamp)),  # type: ignore[call-overload]
            array("i", bytes(columns.timestamp_type)),  # type: ignore[call-overload]
            values_of(columns.key, columns.rows),
            values_of(columns.value, columns.rows),
            headers,
            strict=True,
        )
    ]


def values_of(column: VariableColumn, count: int) -> list[bytes | None]:
    bounds = array("i", bytes(column.offsets))  # type: ignore[call-overload]
    data = bytes(column.data)  # type: ignore[call-overload]
    assert len(bounds) == count + 1
    assert bounds[0] == 0
    assert bounds[-1] == len(data)
    return [
        data[bounds[at] : bounds[at + 1]] if is_there(column.validity, at) else None
        for at in range(count)
    ]


def is_there(validity: object | None, at: int) -> bool:
    return validity is None or bool(bytes(validity)[at // 8] >> at % 8 & 1)  # type: ignore[call-overload]


def row_of(record: Record, timestamp_type: int = 0) -> Row:
    headers = tuple(
        (key.encode("utf-8", "surrogateescape"), value) for key, value in record.headers
    )
    timestamp = min(record.timestamp, (2**63 - 1) // 1000)
    return Row(
        record.offset,
        timestamp * 1000,
        timestamp_type,
        record.key,
        record.value,
        headers or None,
    )


def outcome(make: Make, data: bytes, limits: BuilderLimits) -> tuple[list[list[Row]], Seen]:
    """Everything that can be seen of a builder that is fed until the end or the first error."""
    builder = make(limits)
    position = 0
    error = None
    batches: list[list[Row]] = []
    stops: list[int] = []
    while error is None:
        position = builder.take_plain(data, position, stops_at_transactions=True)
        stops.append(position)
        if builder.size_bytes >= limits.bytes_max:
            batches.append(rows_of(builder.columns()))
            continue
        try:
            if len(data) - position < HEADER_BYTES:
                break
            header = parse_header(data, position)
            builder.take_batch(header, data, position)
            position += header.size_bytes
        except CorruptRecords as raised:
            error = str(raised)
    seen = (stops, builder.rows, builder.size_bytes, builder.next_offset, error)
    return [*batches, rows_of(builder.columns())], seen


def agreed(
    data: bytes,
    limits: BuilderLimits = BuilderLimits(with_headers=True),  # noqa: B008
) -> tuple[list[list[Row]], Seen]:
    """The outcome, which must be the same of all builders."""
    first, *others = [outcome(make, data, limits) for make in BUILDERS]
    for other in others:
        assert other == first
    return first


def join(batches: Iterable[tuple[list[Record], Codec]]) -> bytes:
    data, offset = b"", 0
    for records, codec in batches:
        data += build_batch(
            records, base_offset=Offset(offset), leader_epoch=LeaderEpoch(2), codec=codec
        )
        offset += len(records)
    return data


@needs_kernel
def test_the_compiled_builder_is_the_one_in_use() -> None:
    assert type(new_builder(BuilderLimits())).__name__ == "ColumnBuilder"


def test_the_twin_is_in_use_where_the_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_PURE_PYTHON", "1")
    assert isinstance(new_builder(BuilderLimits()), PythonColumnBuilder)
    assert whole_batches(b"") == (0, -1)


@given(st.lists(BATCH, min_size=1, max_size=4), st.booleans(), st.data())
def test_rows_are_the_records_of_the_range(
    batches: list[tuple[list[Record], Codec]], with_headers: bool, data: st.DataObject
) -> None:
    encoded = join(batches)
    count = sum(len(records) for records, _ in batches)
    start = data.draw(st.integers(0, count))
    end = data.draw(st.integers(start, count + 2))
    limits = BuilderLimits(start=start, end=end, with_headers=with_headers)
    expected = [
        row_of(record._replace(offset=Offset(at)))
        for at, record in enumerate(record for records, _ in batches for record in records)
        if start <= at < end
    ]
    if not with_headers:
        expected = [row._replace(headers=None) for row in expected]
    first, *others = [outcome_of_range(make, encoded, limits) for make in BUILDERS]
    assert first == expected
    assert all(other == expected for other in others)


def outcome_of_range(make: Make, data: bytes, limits: BuilderLimits) -> list[Row]:
    builder = make(limits)
    position = 0
    while True:
        position = builder.take_plain(data, position, stops_at_transactions=False)
        if (
            len(data) == position
            or (header := parse_header(data, position)).base_offset >= limits.end
        ):
            return rows_of(builder.columns())
        assert header.is_compressed
        builder.take_batch(header, data, position)
        position += header.size_bytes


def records(count: int, size: int = 10) -> list[Record]:
    return [
        Record(timestamp=1000 + n, key=b"k%d" % n, value=bytes([n % 256]) * size)
        for n in range(count)
    ]


def test_a_full_builder_stops_and_begins_anew_behind_the_batch() -> None:
    data = join([(records(10, 100), Codec.NONE) for _ in range(6)])
    batches, (stops, *_, error) = agreed(data, BuilderLimits(bytes_max=2500))
    assert error is None
    assert [len(rows) for rows in batches] == [20, 20, 20, 0]
    assert [row.offset for rows in batches for row in rows] == list(range(60))
    assert stops[-1] == len(data)


def test_what_was_handed_over_does_not_change_when_the_builder_goes_on() -> None:
    data = join([(records(3), Codec.NONE), (records(3, 500), Codec.NONE)])
    for make in BUILDERS:
        builder = make(BuilderLimits(bytes_max=1))
        position = builder.take_plain(data, 0, stops_at_transactions=False)
        first = builder.columns()
        before = rows_of(first)
        builder.take_plain(data, position, stops_at_transactions=False)
        del builder
        assert rows_of(first) == before
        assert len(before) == 3


def test_a_batch_that_is_cut_off_is_left() -> None:
    whole = join([(records(2), Codec.NONE)])
    data = whole + join([(records(2), Codec.NONE)])
    for cut in range(len(whole) + 1):
        for make in BUILDERS:
            builder = make(BuilderLimits())
            part = data[: len(whole) + cut] if cut < len(whole) else whole
            assert builder.take_plain(part, 0, stops_at_transactions=False) == len(whole)
            assert builder.rows == 2


def transactional(first: int, producer: int, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        records(2),
        base_offset=Offset(first),
        leader_epoch=LeaderEpoch(1),
        codec=codec,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    return build_control_batch(
        EndTransactionMarker(kind, 0),
        timestamp=5,
        base_offset=Offset(offset),
        leader_epoch=LeaderEpoch(1),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
    )


@pytest.mark.parametrize("make", BUILDERS)
def test_transactions_stop_a_reader_that_must_decide_and_no_other(make: Make) -> None:
    data = transactional(0, 7) + marker(2, 7, ControlType.COMMIT)
    data += build_batch(records(1), base_offset=Offset(3), leader_epoch=LeaderEpoch(1))
    plain = make(BuilderLimits())
    assert plain.take_plain(data, 0, stops_at_transactions=False) == len(data)
    assert [row.offset for row in rows_of(plain.columns())] == [0, 1, 3]
    assert plain.next_offset == 4
    deciding = make(BuilderLimits())
    assert deciding.take_plain(data, 0, stops_at_transactions=True) == 0
    deciding.pass_batch(parse_header(data))
    position = parse_header(data).size_bytes
    assert deciding.take_plain(data, position, stops_at_transactions=True) == position
    deciding.pass_batch(parse_header(data, position))
    position += parse_header(data, position).size_bytes
    assert deciding.take_plain(data, position, stops_at_transactions=True) == len(data)
    assert [row.offset for row in rows_of(deciding.columns())] == [3]


@pytest.mark.parametrize("make", BUILDERS)
def test_later_leader_epochs_stop_the_builder(make: Make) -> None:
    data = build_batch(records(2), base_offset=Offset(0), leader_epoch=LeaderEpoch(3))
    size = len(data)
    data += build_batch(records(2), base_offset=Offset(2), leader_epoch=LeaderEpoch(4))
    builder = make(BuilderLimits(leader_epoch_max=3))
    assert builder.take_plain(data, 0, stops_at_transactions=False) == size
    below = make(BuilderLimits(start=4, leader_epoch_max=2))
    assert below.take_plain(data, 0, stops_at_transactions=False) == len(data)


@pytest.mark.parametrize("make", BUILDERS)
def test_offsets_that_go_back_are_refused(make: Make) -> None:
    data = build_batch(records(2), base_offset=Offset(5), leader_epoch=LeaderEpoch(1))
    again = data + build_batch(records(2), base_offset=Offset(6), leader_epoch=LeaderEpoch(1))
    builder = make(BuilderLimits())
    assert builder.take_plain(again, 0, stops_at_transactions=False) == len(data)
    header = parse_header(again, len(data))
    with pytest.raises(CorruptRecords, match="7 is the least that can follow"):
        builder.take_batch(header, again, len(data))
    with pytest.raises(CorruptRecords, match="7 is the least that can follow"):
        builder.pass_batch(header)
    assert (builder.rows, builder.next_offset) == (2, 7)


@pytest.mark.parametrize("make", BUILDERS)
def test_compacted_batches_keep_their_gaps_and_may_be_empty(make: Make) -> None:
    data = build_batch(records(6), base_offset=Offset(0), leader_epoch=LeaderEpoch(1))
    header = parse_header(data)
    kept = [each for each in read_records(data) if each.offset in (1, 4)]
    some = bytes(rebuild_batch(header, kept))
    none = bytes(rebuild_batch(header, []))
    builder = make(BuilderLimits())
    assert builder.take_plain(some, 0, stops_at_transactions=False) == len(some)
    assert [row.offset for row in rows_of(builder.columns())] == [1, 4]
    assert builder.next_offset == 6
    empty = make(BuilderLimits())
    assert empty.take_plain(none, 0, stops_at_transactions=False) == len(none)
    assert (empty.rows, empty.next_offset) == (0, 6)


def test_times_of_the_append_and_times_beyond_microseconds() -> None:
    far = 2**61
    data = bytearray(join([([Record(timestamp=far), Record(timestamp=-1)], Codec.NONE)]))
    (rows,), _ = agreed(bytes(data))
    assert [row.timestamp for row in rows] == [(2**63 - 1) // 1000 * 1000, -1000]
    stamped = build_batch(
        records(2),
        base_offset=Offset(0),
        leader_epoch=LeaderEpoch(1),
        log_append_time_ms=77,
    )
    assert parse_header(stamped).attributes & TIMESTAMP_TYPE_BIT
    (rows,), _ = agreed(stamped)
    assert [(row.timestamp, row.timestamp_type) for row in rows] == [(77_000, 1), (77_000, 1)]


@pytest.mark.parametrize(("field", "value"), [(8, -1), (8, 5000), (12, -(2**31)), (12, 2**31 - 1)])
def test_counts_and_deltas_that_lie_are_refused_before_memory_is_taken(
    field: int, value: int
) -> None:
    data = bytearray(join([(records(3), Codec.NONE)]))
    fields = list(HEADER.unpack_from(data))
    fields[field if field == 12 else 6] = value
    HEADER.pack_into(data, 0, *fields)
    set_crc(data, 0, len(data))
    _, (*_, error) = agreed(bytes(data))
    assert (error is None) == (value == 5000)


def test_a_builder_must_have_a_size() -> None:
    for wrong in (0, -1, BYTES_MAX + 1):
        with pytest.raises(InvariantViolated):
            new_builder(BuilderLimits(bytes_max=wrong))


SEEDS = range(24)


@needs_kernel
@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_bytes_have_the_same_outcome(seed: int) -> None:
    """Mutated batches whose checksums fit, so that their records are looked at."""
    chance = random.Random(seed)
    for _ in range(150):
        data = bytearray()
        for at in range(chance.randint(1, 3)):
            codec = chance.choice([Codec.NONE, Codec.NONE, *Codec])
            batch = bytearray(
                build_batch(
                    some_records(chance),
                    base_offset=Offset(at * 10),
                    leader_epoch=LeaderEpoch(1),
                    codec=codec,
                    is_transactional=chance.random() < 0.1,
                )
            )
            mutate(chance, batch)
            data += batch
        if chance.random() < 0.3:
            mutate_anywhere(chance, data)
        limits = BuilderLimits(
            start=chance.choice([0, 0, 3]),
            end=chance.choice([2**63 - 1, 7]),
            bytes_max=chance.choice([1, 300, 10_000]),
            with_headers=chance.random() < 0.7,
            checks_crc=chance.random() < 0.9,
        )
        agreed(bytes(data), limits)
        assert whole_batches(bytes(data)) == whole_batches_in_python(bytes(data), 0)


def some_records(chance: random.Random) -> list[Record]:
    def field() -> bytes | None:
        return (
            None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 1, 5, 70, 200]))
        )

    return [
        Record(
            timestamp=chance.choice([0, 1000, 10**13, 2**62]),
            key=field(),
            value=field(),
            headers=tuple(("h" * n, field()) for n in range(chance.choice([0, 0, 1, 3]))),
        )
        for _ in range(chance.randint(1, 6))
    ]


def mutate(chance: random.Random, batch: bytearray) -> None:
    """Damage the records of a batch, or its header, and let the checksum fit again."""
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        at = chance.randrange(21 if chance.random() < 0.3 else HEADER_BYTES, len(batch))
        batch[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    set_crc(batch, 0, len(batch))


def mutate_anywhere(chance: random.Random, data: bytearray) -> None:
    if chance.random() < 0.5:
        data[chance.randrange(len(data))] = chance.randrange(256)
    else:
        del data[chance.randrange(len(data)) :]
