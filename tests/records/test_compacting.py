"""The filter of compaction: the rules for records, and the compiled kernel beside its twin."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import CorruptRecords
from strandline.records import compacting
from strandline.records._kernels import compiled
from strandline.records.batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    iterate_headers,
    parse_header,
    set_crc,
)
from strandline.records.builder import build_batch, join_batch, rebuild_batch
from strandline.records.codec import Codec
from strandline.records.compacting import FilterRules, IndexEntry, Stop
from strandline.records.record import Record, payload_of, read_records
from strandline.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.records.lies import LIES, LOOSE_LIES, ODDITIES

NOW_MS = 1_700_000_000_000
HORIZON_MS = NOW_MS + 1000
SECRET = bytes(range(16))
BIG = 1 << 40
KERNEL = compiled("compact")
KINDS = [compacting] if KERNEL is None else [compacting, KERNEL]


@pytest.fixture(params=KINDS, ids=["twin", "kernel"][: len(KINDS)])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def batch(offset: int, *records: tuple[Any, Any], **options: Any) -> bytes:
    """A batch of (key, value) pairs from `offset` on."""
    return build_batch(
        [
            Record(timestamp=NOW_MS + i, key=key, value=value)
            for i, (key, value) in enumerate(records)
        ],
        base_offset=Offset(offset),
        leader_epoch=LeaderEpoch(5),
        **options,
    )


def clean(
    kind: Any, log: bytes, rules: FilterRules, *, memory: int = 24 * 100, last_end: int = -1
) -> tuple[bytes, Any]:
    keys = kind.KeyMap(memory, 0.9, SECRET)
    assert keys.add_batches(log, 0, len(log), 0)[1] in (Stop.END, Stop.FULL)
    copier = kind.BatchFilter(keys, rules)
    assert copier.filter(log, 0, len(log), last_end) == (len(log), Stop.END)
    return copier.take()[0], copier


def contents(log: bytes) -> list[tuple[int, Any, Any]]:
    return [
        (record.offset, record.key, record.value)
        for position, _ in iterate_headers(log)
        for record in read_records(log, position)
    ]


RULES = FilterRules(now_ms=NOW_MS, horizon_ms=HORIZON_MS)


def test_the_newest_record_of_each_key_stays(kind: Any) -> None:
    log = batch(0, (b"a", b"1"), (b"b", b"1")) + batch(2, (b"a", b"2")) + batch(3, (b"c", b"1"))
    out, copier = clean(kind, log, RULES)
    assert contents(out) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]
    assert (copier.records_read, copier.records_kept) == (4, 3)
    assert out.endswith(batch(2, (b"a", b"2")) + batch(3, (b"c", b"1"))), "these are copied as is"


def test_a_record_without_a_key_goes(kind: Any) -> None:
    assert contents(clean(kind, batch(0, (None, b"x"), (b"a", b"1")), RULES)[0]) == [
        (1, b"a", b"1")
    ]


def test_a_tombstone_gets_a_horizon_and_goes_after_it(kind: Any) -> None:
    log = batch(0, (b"a", b"1"), (b"b", b"1")) + batch(2, (b"a", None))
    once, _ = clean(kind, log, RULES)
    assert contents(once) == [(1, b"b", b"1"), (2, b"a", None)]
    horizons = [header.delete_horizon_ms for _, header in iterate_headers(once)]
    assert horizons == [None, HORIZON_MS]
    record = next(iter(read_records(once, list(iterate_headers(once))[1][0])))
    assert record.timestamp == NOW_MS, "timestamps survive the change of their base"

    early = RULES._replace(now_ms=HORIZON_MS - 1, horizon_ms=HORIZON_MS + 999)
    assert clean(kind, once, early)[0] == once, "the horizon is set once"
    late = RULES._replace(now_ms=HORIZON_MS)
    assert contents(clean(kind, once, late)[0]) == [(1, b"b", b"1")]


def test_what_lies_behind_the_map_stays(kind: Any) -> None:
    log = batch(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")) + batch(3, (b"a", b"2"), (None, b"x"))
    keys = kind.KeyMap(24 * 3, 0.7, SECRET)
    assert keys.entries_max == 2
    assert keys.add_batches(log, 0, len(log), 0) == (0, Stop.FULL)
    assert (keys.entries, keys.latest_offset) == (2, 1)
    copier = kind.BatchFilter(keys, RULES)
    copier.filter(log, 0, len(log), -1)
    assert copier.take()[0] == log


def test_only_what_is_new_comes_into_the_map(kind: Any) -> None:
    log = batch(0, (b"a", b"1")) + batch(1, (b"b", b"1"), (b"c", b"1"), (None, b"x"))
    keys = kind.KeyMap(24 * 10, 0.9, SECRET)
    assert keys.add_batches(log, 0, len(log), 2) == (len(log), Stop.END)
    assert [keys.offset_of(key) for key in (b"a", b"b", b"c")] == [-1, -1, 2]
    assert keys.latest_offset == 3
    keys.advance_to(10)
    keys.advance_to(7)
    assert keys.latest_offset == 10


def test_r22_r27_emptied_batches_that_stay(kind: Any) -> None:
    own = {"producer_id": ProducerId(9), "producer_epoch": ProducerEpoch(0), "base_sequence": 4}
    log = batch(0, (b"a", b"1"), **own) + batch(1, (b"a", b"2")) + batch(2, (None, b"x"))
    assert contents(clean(kind, log, RULES)[0]) == [(1, b"a", b"2")]
    rules = RULES._replace(producer_ids=(3, 9, 11), last_offsets=(0, 0, 0))
    first, second, last = (
        h for _, h in iterate_headers(clean(kind, log, rules, last_end=len(log))[0])
    )
    assert (first.record_count, second.record_count, last.record_count) == (0, 1, 0)
    assert (first.base_offset, first.last_sequence, first.producer_id) == (0, 4, 9)
    assert last.last_offset == 2


def test_special_batches_and_cut_off_ones_stop_the_walk(kind: Any) -> None:
    plain = batch(0, (b"a", b"1"))
    for options in ({"codec": Codec.LZ4}, {"is_transactional": True, "producer_id": ProducerId(1)}):
        log = plain + batch(1, (b"b", b"1"), **options)
        keys = kind.KeyMap(2400, 0.9, SECRET)
        assert keys.add_batches(log, 0, len(log), 0) == (len(plain), Stop.SPECIAL)
        assert kind.BatchFilter(keys, RULES).filter(log, 0, len(log), -1)[1] is Stop.SPECIAL
    for cut in range(len(plain)):
        keys = kind.KeyMap(2400, 0.9, SECRET)
        assert keys.add_batches(plain, 0, cut, 0) == (0, Stop.END)
        assert keys.add_batches(plain[:cut], 0, len(plain), 0) == (0, Stop.END)


def test_damage_is_not_copied(kind: Any) -> None:
    whole = batch(0, (b"key", b"value"), (b"other", b"value"))
    for position in range(16, len(whole)):
        log = bytearray(whole)
        log[position] ^= 0x10
        keys = kind.KeyMap(2400, 0.9, SECRET)
        if position == ATTRIBUTES_AT + 1:
            # It is a transactional batch now, and those are the caller's to check.
            assert keys.add_batches(bytes(log), 0, len(log), 0) == (0, Stop.SPECIAL)
            continue
        with pytest.raises(CorruptRecords):
            keys.add_batches(bytes(log), 0, len(log), 0)
        with pytest.raises(CorruptRecords):
            kind.BatchFilter(keys, RULES).filter(bytes(log), 0, len(log), -1)


def read_by_all(log: bytes) -> list[Any]:
    """What each kind of map and filter makes of a batch: None if it is refused.

    Of the copy its records count: the twin writes null as -1, the kernel as it was.
    """
    found: list[Any] = []
    for kind in KINDS:
        keys = kind.KeyMap(2400, 0.9, SECRET)
        copier = kind.BatchFilter(kind.KeyMap(2400, 0.9, SECRET), RULES)
        try:
            keys.add_batches(log, 0, len(log), -BIG)
        except CorruptRecords:
            with pytest.raises(CorruptRecords):
                copier.filter(log, 0, len(log), -1)
            found.append(None)
        else:
            stop = copier.filter(log, 0, len(log), -1)
            out, entries = copier.take()
            copied = [list(read_records(out, at)) for at, _ in iterate_headers(out)]
            found.append((keys.entries, keys.latest_offset, stop, copied, entries))
    return found


@given(payload=st.binary(max_size=60), count=st.integers(-1, 5))
@settings(max_examples=150, deadline=None)
def test_any_payload_is_read_alike_or_refused(payload: bytes, count: int) -> None:
    """A right checksum does not make the records right."""
    header = parse_header(batch(0, *[(b"k", b"v")] * 4))
    damaged = bytearray(HEADER_BYTES) + payload
    header = header._replace(record_count=count, length=len(damaged) - 12)
    HEADER.pack_into(damaged, 0, *header)
    set_crc(damaged, 0, len(damaged))
    found = read_by_all(bytes(damaged))
    assert found == [found[0]] * len(KINDS)


@pytest.mark.parametrize("name", [*LIES, *LOOSE_LIES, *ODDITIES])
def test_batches_that_lie_are_read_alike(name: str) -> None:
    found = read_by_all({**LIES, **LOOSE_LIES, **ODDITIES}[name].batch(NOW_MS))
    assert found == [found[0]] * len(KINDS)


def test_damage_is_found_in_a_batch_whose_keys_have_no_room(kind: Any) -> None:
    whole = batch(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    header = parse_header(whole)
    torn = bytes(join_batch(header, whole[HEADER_BYTES:-1]))
    keys = kind.KeyMap(24 * 2, 0.9, SECRET)
    with pytest.raises(CorruptRecords):
        keys.add_batches(torn, 0, len(torn), 0)
    assert (keys.entries, keys.latest_offset) == (0, -1)


@pytest.mark.parametrize("is_stamped", [False, True])
@pytest.mark.parametrize("base", [NOW_MS, 2**63 - 2, -(2**63)])
def test_every_single_changed_byte_is_read_alike(base: int, is_stamped: bool) -> None:
    """Among them are headers that do not end with their record, and times beyond 64 bits."""
    records = [
        Record(timestamp=NOW_MS + i, key=b"k%d" % i, value=b"v", headers=(("h", b"x"), ("i", None)))
        for i in range(3)
    ]
    whole = build_batch(records, log_append_time_ms=NOW_MS if is_stamped else None)
    header = parse_header(whole)._replace(base_timestamp=base)
    for at in range(HEADER_BYTES, len(whole)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            log = bytearray(whole)
            log[at] = byte
            found = read_by_all(bytes(join_batch(header, bytes(log[HEADER_BYTES:]))))
            assert found == [found[0]] * len(KINDS), (at, byte)


KEYS = st.sampled_from([None, *[b"%d" % n for n in range(6)], b"a longer key than the others"])
VALUES = st.one_of(st.none(), st.binary(max_size=12))
HEADERS = st.lists(
    st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2
)
STAMPS = st.one_of(st.just(-1), st.integers(NOW_MS - 10_000, NOW_MS + 10_000), st.integers(0, BIG))


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches in order, some with gaps that an earlier round left, some with a horizon."""
    found: list[bytes] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 8))):
        records = [
            Record(Offset(offset + i), draw(STAMPS), draw(KEYS), draw(VALUES), tuple(draw(HEADERS)))
            for i in range(draw(st.integers(1, 5)))
        ]
        with_producer = draw(st.booleans())
        made = build_batch(
            records,
            base_offset=Offset(offset),
            producer_id=ProducerId(draw(st.integers(0, 2)) if with_producer else -1),
            producer_epoch=ProducerEpoch(0 if with_producer else -1),
            base_sequence=0 if with_producer else -1,
            log_append_time_ms=draw(st.one_of(st.none(), st.just(NOW_MS))),
        )
        header = parse_header(made)
        if draw(st.booleans()):
            survivors = [r for r in read_records(made) if draw(st.booleans())]
            horizon = draw(st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + 1]))
            made = rebuild_batch(header, survivors, delete_horizon_ms=horizon)
        found.append(made)
        offset = header.next_offset + draw(st.integers(0, 2))
    return found


@given(
    log=logs(),
    slots=st.integers(2, 40),
    first=st.integers(0, 20),
    producers=st.dictionaries(st.integers(0, 3), st.integers(-1, 30), max_size=3),
    interval=st.sampled_from([0, 100, 4096]),
    keeps_last=st.booleans(),
)
@settings(max_examples=150, deadline=None)
@pytest.mark.skipif(KERNEL is None, reason="the compiled kernel was not built")
def test_the_kernel_does_what_its_twin_does(
    log: list[bytes],
    slots: int,
    first: int,
    producers: dict[int, int],
    interval: int,
    keeps_last: bool,
) -> None:
    rules = FilterRules(
        NOW_MS,
        HORIZON_MS,
        tuple(sorted(producers)),
        tuple(producers[p] for p in sorted(producers)),
        interval,
        notes_gone=True,
    )
    chunk = b"".join(log)
    outcomes = []
    for kind in KINDS:
        keys = kind.KeyMap(24 * slots, 0.9, SECRET)
        seen: list[Any] = [keys.add_batches(chunk, 0, len(chunk), first)]
        seen += [keys.entries, keys.entries_max, keys.latest_offset, keys.records_read]
        copier = kind.BatchFilter(keys, rules)
        copier.start_segment(0)
        seen.append(copier.filter(chunk, 0, len(chunk), len(chunk) if keeps_last else -1))
        seen += [copier.waiting_bytes, copier.take(), copier.take(), copier.take_gone()]
        seen += [copier.records_read, copier.records_kept]
        seen += [copier.max_timestamp, copier.max_timestamp_offset]
        for made in log:
            header = parse_header(made)
            payload = payload_of(header, made)
            seen += [copier.survivors(header, payload), copier.is_last_of_producer(header)]
            seen.append(keys.add_records(header, payload, first))
        copier.emit(log[0])
        copier.count_kept(parse_header(log[0]))
        for made in log:
            copier.count_gone(parse_header(made))
        seen += [copier.take(), copier.take_gone(), copier.records_read, copier.records_kept]
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]
    assert isinstance(outcomes[1][7][1], list)
    assert all(isinstance(entry, IndexEntry) for entry in outcomes[1][7][1])


def test_the_horizon_bit_is_what_the_header_says() -> None:
    header: BatchHeader = parse_header(
        rebuild_batch(
            parse_header(batch(0, (b"a", None))),
            [Record(Offset(0), NOW_MS, b"a", None)],
            delete_horizon_ms=HORIZON_MS,
        )
    )
    assert header.attributes & DELETE_HORIZON_BIT
