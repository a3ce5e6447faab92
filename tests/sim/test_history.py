"""The checker finds each anomaly in the smallest history that has it, and nothing in a good one."""

from __future__ import annotations

import random

import pytest

from strandline.sim.history.checker import Checker, MalformedHistory, check
from strandline.sim.history.operations import (
    Acknowledged,
    Assigned,
    Compacted,
    Deleted,
    EndSeen,
    Erased,
    Event,
    Gone,
    Partition,
    Polled,
    Refused,
    Sent,
    StartSeen,
    Value,
)
from strandline.sim.history.report import LOSS_KINDS, AnomalyKind, Report

A, B = "p", "q"


def sent(*values: str, producer: str = "one", partition: str = A) -> list[Event]:
    return [Sent(producer, partition, value) for value in values]


def acked(partition: str = A, /, **offsets: int | None) -> list[Event]:
    return [Acknowledged(partition, value, offset) for value, offset in offsets.items()]


def polled(*records: tuple[int, str], consumer: str = "reader", partition: str = A) -> list[Event]:
    return [Polled(consumer, partition, records)]


def start(consumer: str = "reader", partition: str = A, offset: int | None = 0) -> list[Event]:
    return [Assigned(consumer, partition, offset)]


def kinds(*events: list[Event]) -> list[AnomalyKind]:
    return sorted(anomaly.kind for anomaly in judged(*events).anomalies)


def judged(*events: list[Event]) -> Report:
    return check([event for part in events for event in part])


def keyed(producer: str = "one", /, **keys: str) -> list[Event]:
    return [Sent(producer, A, value, key) for value, key in keys.items()]


def test_of_a_compacted_partition_the_newest_value_of_a_key_is_enough() -> None:
    written = [*keyed(a="k", b="k", c="l"), *acked(a=0, b=1, c=2)]
    read = [*start(), *polled((1, "b"), (2, "c"))]
    assert kinds(written, read, [Compacted(A)]) == []
    assert AnomalyKind.LOST in kinds(written, read)


def test_the_newest_value_of_a_key_must_be_there() -> None:
    written = [*keyed(a="k", b="k", c="l"), *acked(a=0, b=1, c=2)]
    read = [*start(), *polled((0, "a"), (2, "c"))]
    assert kinds(written, read, [Compacted(A)]) == [AnomalyKind.LOST]
    assert kinds(written, read, [Compacted(A), Erased(A, "l")]) == [AnomalyKind.LOST]
    assert kinds(written, read, [Compacted(A), Erased(A, "k")]) == []


def test_records_without_a_key_go_when_their_topic_becomes_a_compacted_one() -> None:
    """Seed 108100476: a transaction's, written before `cleanup.policy` was changed."""
    written = [*sent("a"), *keyed(b="k"), *acked(a=0, b=1)]
    read = [*start(), *polled((1, "b"))]
    assert AnomalyKind.LOST in kinds(written, read)
    assert kinds(written, read, [Compacted(A)]) == []


def test_nothing_is_wrong_with_nothing() -> None:
    report = check([])
    assert report.anomalies == ()
    assert (report.sent, report.read) == (0, 0)


def test_what_was_acknowledged_and_read_in_order_is_fine() -> None:
    report = judged(
        start(),
        sent("a", "b"),
        acked(a=0, b=1),
        polled((0, "a")),
        polled((1, "b")),
        sent("c"),
        acked(c=2),
        polled((2, "c")),
    )
    assert report.anomalies == ()
    assert (report.sent, report.acknowledged, report.refused, report.read) == (3, 3, 0, 3)


def test_an_unknown_outcome_may_be_in_the_log_or_not() -> None:
    report = judged(start(), sent("a", "b", "c"), acked(c=1), polled((0, "b"), (1, "c")))
    assert report.anomalies == ()
    assert report.unknown == 2


def test_lost_record_whose_offset_holds_nothing() -> None:
    assert kinds(sent("a", "b"), acked(a=0, b=1), polled((1, "b"))) == [AnomalyKind.LOST]


def test_lost_record_in_the_place_of_which_another_lies() -> None:
    report = judged(start(), sent("a", "b"), acked(a=0), polled((0, "b")))
    assert report.counts == {AnomalyKind.LOST: 1, AnomalyKind.INCONSISTENT_OFFSETS: 1}
    assert "'a' acknowledged at offset 0 is not there" in str(report)


def test_a_record_that_was_read_once_and_is_gone_at_the_end_is_lost() -> None:
    events = [
        *sent("a", "b"),
        *acked(a=0, b=1),
        *polled((0, "a"), (1, "b")),
        *start("last"),
        *polled((0, "a"), consumer="last"),
    ]
    assert check(events).anomalies == ()
    assert check(events, last_readers={"last"}).counts == {AnomalyKind.UNSEEN: 1}
    events += [*sent("c"), *acked(c=2), *polled((2, "c"), consumer="last")]
    found = check(events, last_readers={"last"})
    assert found.counts == {AnomalyKind.LOST: 1, AnomalyKind.POLL_SKIP: 1}
    assert "it had been read before" in str(found)
    assert found.read == 3


def test_unseen_record_at_the_end() -> None:
    assert kinds(sent("a", "b"), acked(a=0, b=1), polled((0, "a"))) == [AnomalyKind.UNSEEN]


def test_unseen_record_of_unknown_offset() -> None:
    assert kinds(sent("a", "b"), acked(a=None, b=1), polled((1, "b"))) == [AnomalyKind.UNSEEN]


def test_a_record_acknowledged_without_an_offset_is_fine_once_it_was_read() -> None:
    assert kinds(start(), sent("a"), acked(a=None), polled((0, "a"))) == []


def test_duplicate_seen_by_one_reader() -> None:
    found = kinds(start(), sent("a"), acked(a=0), polled((0, "a"), (1, "a")))
    assert found == [AnomalyKind.DUPLICATE]


def test_duplicate_of_a_send_with_unknown_outcome() -> None:
    assert kinds(sent("a"), polled((3, "a"), (7, "a"))) == [AnomalyKind.DUPLICATE]


def test_duplicate_between_an_acknowledgement_and_a_reader() -> None:
    assert kinds(sent("a"), acked(a=4), polled((5, "a"))) == [AnomalyKind.DUPLICATE]


def test_inconsistent_offsets_between_two_readers() -> None:
    found = kinds(
        sent("a", producer="one"),
        sent("b", producer="two"),
        polled((0, "a"), consumer="first"),
        polled((0, "b"), consumer="second"),
    )
    assert found == [AnomalyKind.INCONSISTENT_OFFSETS]


def test_one_contradiction_is_reported_once_however_many_read_it() -> None:
    readers = [polled((0, "b"), consumer=str(number)) for number in range(10)]
    report = judged(sent("b", "a"), acked(a=0), *readers)
    assert report.counts[AnomalyKind.INCONSISTENT_OFFSETS] == 1


def test_reordered_within_one_producer() -> None:
    found = kinds(start(), sent("a", "b"), acked(a=1, b=0), polled((0, "b"), (1, "a")))
    assert found == [AnomalyKind.REORDERED]


def test_a_retry_that_is_appended_again_behind_a_deletion_is_not_reordered() -> None:
    """Seed 118002400: a leader that forgot the producer took it (KIP-360)."""
    first = [*sent("a", "b"), *acked(b=1)]
    read = polled((2, "a"))
    assert kinds(first, [StartSeen("one", A, 2)], acked(a=2), read) == []
    assert AnomalyKind.REORDERED in kinds(first, [StartSeen("one", A, 1)], acked(a=2), read)
    assert AnomalyKind.REORDERED in kinds(first, acked(a=2), [StartSeen("one", A, 2)], read)


def test_reordered_within_one_producer_without_any_acknowledgement() -> None:
    assert kinds(start(), sent("a", "b"), polled((0, "b"), (1, "a"))) == [AnomalyKind.REORDERED]


def test_two_producers_at_the_same_time_may_be_in_any_order() -> None:
    found = kinds(
        start(),
        sent("a", producer="one"),
        sent("b", producer="two"),
        acked(a=1, b=0),
        polled((0, "b"), (1, "a")),
    )
    assert found == []


def test_reordered_between_producers_when_one_was_acknowledged_first() -> None:
    found = kinds(
        start(),
        sent("a", producer="one"),
        acked(a=1),
        sent("b", producer="two"),
        acked(b=0),
        polled((0, "b"), (1, "a")),
    )
    assert found == [AnomalyKind.REORDERED]


def test_poll_skip_between_two_polls() -> None:
    found = kinds(
        start(),
        sent("a", "b", "c"),
        acked(a=0, b=1, c=2),
        polled((0, "a")),
        polled((2, "c")),
        start("other"),
        polled((0, "a"), (1, "b"), (2, "c"), consumer="other"),
    )
    assert found == [AnomalyKind.POLL_SKIP]


def test_poll_skip_inside_one_poll_and_at_the_start() -> None:
    found = kinds(
        start("inside"),
        sent("a", "b", "c"),
        polled((0, "a"), (2, "c"), consumer="inside"),
        start("start"),
        polled((1, "b"), (2, "c"), consumer="start"),
    )
    assert found == [AnomalyKind.POLL_SKIP, AnomalyKind.POLL_SKIP]


def test_a_gap_that_holds_no_record_is_no_skip() -> None:
    found = kinds(start(), sent("a", "b"), acked(a=3, b=7), polled((3, "a")), polled((7, "b")))
    assert found == []


def test_a_new_assignment_may_begin_anywhere() -> None:
    everything = [(0, "a"), (1, "b"), (2, "c")]
    found = kinds(
        sent("a", "b", "c"),
        polled(*everything, consumer="other"),
        start(),
        polled((0, "a"), (1, "b")),
        start(offset=None),
        polled((1, "b"), (2, "c")),
    )
    assert found == []


def test_nonmonotonic_poll() -> None:
    found = kinds(start(), sent("a", "b"), polled((0, "a"), (1, "b")), polled((1, "b")))
    assert found == [AnomalyKind.NONMONOTONIC_POLL]


def test_refused_record_that_was_read() -> None:
    found = kinds(start(), sent("a"), [Refused(A, "a")], polled((0, "a")))
    assert found == [AnomalyKind.REFUSED_READ]


def test_phantom() -> None:
    assert kinds(start(), polled((0, "a"))) == [AnomalyKind.PHANTOM]


def test_a_record_in_another_partition_is_a_phantom_there() -> None:
    found = kinds(sent("a"), acked(a=0), polled((0, "a")), polled((0, "a"), partition=B))
    assert found == [AnomalyKind.PHANTOM]


def test_end_that_went_back() -> None:
    ends: list[Event] = [EndSeen("x", A, 4), EndSeen("y", A, 2), EndSeen("x", A, 4)]
    assert kinds(ends) == []
    assert kinds(ends, [EndSeen("x", A, 3)]) == [AnomalyKind.END_WENT_BACK]


def test_the_caller_says_what_a_run_may_lose() -> None:
    report = judged(sent("a", "b"), acked(a=0, b=1), polled((0, "a"), (0, "a")))
    assert report.counts.keys() == {AnomalyKind.UNSEEN, AnomalyKind.NONMONOTONIC_POLL}
    beyond = report.beyond({AnomalyKind.UNSEEN, AnomalyKind.LOST})
    assert [anomaly.kind for anomaly in beyond] == [AnomalyKind.NONMONOTONIC_POLL]


# -- deletion, weak acknowledgements, histories that are still being made ------------------------


@pytest.mark.parametrize("event", [StartSeen("reader", A, 1), Deleted(A, 1)])
def test_what_lies_before_the_log_may_be_gone(event: Event) -> None:
    gone = [*sent("a", "b"), *acked(a=0, b=1), *start(offset=1), *polled((1, "b"))]
    assert check(gone).counts == {AnomalyKind.LOST: 1}
    assert check([*gone, event]).anomalies == ()


def test_of_a_partition_that_was_deleted_nothing_need_be_left() -> None:
    events = [*sent("a"), *acked(a=0), Gone(A)]
    assert check(events[:-1]).counts == {AnomalyKind.UNSEEN: 1}
    assert check(events).anomalies == ()
    assert check([*events, *polled((0, "b"))]).counts.keys() >= {AnomalyKind.PHANTOM}


def test_a_record_of_unknown_offset_may_be_gone_if_it_can_have_been_before_the_log() -> None:
    head = [*sent("a"), *acked(a=0)]
    later = [*sent("b"), *acked(b=None), *sent("c"), *acked(c=2), *polled((2, "c"))]
    assert check([*head, *later, StartSeen("reader", A, 2)]).anomalies == ()
    assert check([*head, *later, StartSeen("reader", A, 1)]).counts == {AnomalyKind.UNSEEN: 1}


def test_a_reader_may_jump_to_the_start_of_the_log_but_not_over_it() -> None:
    values = [*sent("a", "b", "c"), *polled((0, "a"), (1, "b"), (2, "c"), consumer="other")]
    to_start = [*values, *start(), StartSeen("reader", A, 2), *polled((2, "c"))]
    assert check(to_start).anomalies == ()
    over_it = [*values, *start(), StartSeen("reader", A, 1), *polled((2, "c"))]
    (found,) = check(over_it).anomalies
    assert found.kind is AnomalyKind.POLL_SKIP
    assert "over 1 records" in found.sentence


def test_what_was_deleted_is_not_given_to_those_who_ask_later() -> None:
    before = [*sent("a", "b"), *acked(a=0, b=1), Deleted(A, 1)]
    early = Polled("early", A, [(0, "a"), (1, "b")], asked_at=len(before) - 1)
    late = Polled("late", A, [(0, "a"), (1, "b")], asked_at=len(before))
    unknown = Polled("somebody", A, [(0, "a")])
    assert check([*before, early, unknown]).anomalies == ()
    (found,) = check([*before, late]).anomalies
    assert found.kind is AnomalyKind.RESURRECTED
    assert "late was given 'a' at offset 0" in found.sentence


def test_a_deposed_leader_may_not_know_what_was_deleted() -> None:
    """It led before the newest leader of the time at which the deletion was confirmed."""
    before = [*sent("a", "b"), *acked(a=0, b=1), Deleted(A, 1, leader_epoch=2)]
    deposed, present = (
        Polled("late", A, [(0, "a"), (1, "b")], len(before), leader_epoch)
        for leader_epoch in (1, 2)
    )
    assert check([*before, deposed]).anomalies == ()
    assert check([*before, present]).counts == {AnomalyKind.RESURRECTED: 1}


def _weak(event: Sent) -> bool:
    return event.producer != "weak"


def test_a_weak_acknowledgement_is_no_promise() -> None:
    events = [
        *sent("w", producer="weak"),
        *acked(w=0),
        *sent("a"),
        *acked(a=0),
        *start(),
        *polled((0, "a")),
    ]
    assert check(events, is_promise=_weak).anomalies == ()
    assert check(events).counts == {
        AnomalyKind.INCONSISTENT_OFFSETS: 1,
        AnomalyKind.LOST: 1,
    }


def test_a_weak_acknowledgement_is_still_right_about_the_offset() -> None:
    events = [*sent("w", producer="weak"), *acked(w=3), *polled((4, "w"))]
    assert check(events, is_promise=_weak).counts == {AnomalyKind.DUPLICATE: 1}


def test_acks_1_orders_only_the_records_of_its_own_producer() -> None:
    events = [
        *sent("w", producer="weak"),
        *acked(w=5),
        *sent("a"),
        *acked(a=0),
        *polled((0, "a"), (5, "w")),
    ]
    assert check(events, is_promise=_weak).anomalies == ()
    assert check(events).counts == {AnomalyKind.REORDERED: 1}


def test_a_record_may_be_appended_again_behind_its_deletion() -> None:
    """What a broker knows of a producer may go with the records."""
    before = [sent("a", "b"), polled((3, "a"))]
    assert kinds(*before, [Deleted(A, 4)], polled((7, "a"))) == []
    assert kinds(*before, [Deleted(A, 3)], polled((7, "a"))) == [AnomalyKind.DUPLICATE]


def test_loss_explains_some_kinds_and_not_others() -> None:
    report = judged(sent("a", "b"), acked(a=0), [Refused(A, "b")], polled((0, "b")))
    assert [found.kind for found in report.beyond(LOSS_KINDS)] == [AnomalyKind.REFUSED_READ]


@pytest.mark.parametrize("seed", range(3))
def test_a_history_can_be_judged_while_it_is_made(seed: int) -> None:
    events = _without(Model(seed, 300).events, 7)
    checker = Checker()
    for number, event in enumerate(events):
        checker.feed([event])
        if number % 50 == 0:
            checker.report()
    assert checker.report() == check(events)
    checker.feed([])
    assert checker.report() == checker.report()


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (sent("a", "a"), "sent twice"),
        (acked(a=0), "not sent"),
        ([*sent("a"), *acked(a=0), *acked(a=0)], "two outcomes"),
        ([*sent("a"), Refused(A, "a"), *acked(a=0)], "two outcomes"),
    ],
)
def test_a_history_that_contradicts_itself_is_refused(events: list[Event], reason: str) -> None:
    with pytest.raises(MalformedHistory, match=reason):
        check(events)


class Model:
    """A correct log of two partitions with producers and readers, played at random."""

    def __init__(self, seed: int, steps: int) -> None:
        self.events: list[Event] = []
        self._random = random.Random(seed)
        self._logs: dict[Partition, list[Value]] = {A: [], B: []}
        self._under_way: dict[str, list[tuple[Partition, Value]]] = {"one": [], "two": []}
        readers = [(reader, name) for reader in ("r1", "r2") for name in self._logs]
        self._positions = dict.fromkeys(readers, 0)
        self.events += [Assigned(reader, name, 0) for reader, name in readers]
        for number in range(steps):
            self._random.choice([self._send, self._append, self._append, self._read])(number)
        for producer in self._under_way:
            while self._under_way[producer]:
                self._append_of(producer)
        for reader, name in readers:
            self._read_of(reader, name, len(self._logs[name]))

    def _send(self, number: int) -> None:
        producer = self._random.choice(["one", "two"])
        name = self._random.choice([A, B])
        self.events.append(Sent(producer, name, number))
        self._under_way[producer].append((name, number))

    def _append(self, number: int) -> None:
        self._append_of(self._random.choice(["one", "two"]))

    def _append_of(self, producer: str) -> None:
        if not self._under_way[producer]:
            return
        name, value = self._under_way[producer].pop(0)
        fate = self._random.random()
        if fate < 0.05:
            self.events.append(Refused(name, value))
            return
        log = self._logs[name]
        if fate > 0.1:  # else: it never came to the broker, and no client knows
            log.append(value)
        if fate > 0.2:  # else: the answer was lost
            self.events.append(Acknowledged(name, value, len(log) - 1))

    def _read(self, number: int) -> None:
        (reader, name), position = self._random.choice(list(self._positions.items()))
        self._read_of(reader, name, self._random.randint(position, len(self._logs[name])))

    def _read_of(self, reader: str, name: Partition, until: int) -> None:
        position = self._positions[reader, name]
        records = list(enumerate(self._logs[name]))[position:until]
        self.events.append(Polled(reader, name, records))
        self.events.append(EndSeen(reader, name, until))
        self._positions[reader, name] = until


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_log_is_never_accused(seed: int) -> None:
    report = check(Model(seed, 400).events)
    assert report.anomalies == (), str(report)
    assert report.acknowledged > 50
    assert report.unknown > 0
    assert report.refused > 0


def _positions_of(events: list[Event], value: Value) -> list[tuple[int, int]]:
    """Where readers were given the value: (index of the event, index in the poll)."""
    return [
        (index, at)
        for index, event in enumerate(events)
        if isinstance(event, Polled)
        for at, (_, read) in enumerate(event.records)
        if read == value
    ]


def _without(events: list[Event], value: Value) -> list[Event]:
    """No reader is given this value."""
    return [
        event._replace(records=[record for record in event.records if record[1] != value])
        if isinstance(event, Polled)
        else event
        for event in events
    ]


@pytest.mark.parametrize("seed", range(20))
def test_damage_to_a_correct_history_is_found(seed: int) -> None:
    events = Model(seed, 400).events
    chance = random.Random(seed)
    told = [event for event in events if isinstance(event, Acknowledged)]
    victim = chance.choice(told)

    lost = check(_without(events, victim.value)).counts
    assert lost.keys() <= {AnomalyKind.LOST, AnomalyKind.UNSEEN, AnomalyKind.POLL_SKIP}
    assert lost[AnomalyKind.LOST] + lost[AnomalyKind.UNSEEN] == 1

    (where, at), *_ = _positions_of(events, victim.value)
    poll = events[where]
    assert isinstance(poll, Polled)
    twice = [*poll.records[: at + 1], *poll.records[at:]]
    repeated = [*events[:where], poll._replace(records=twice), *events[where + 1 :]]
    assert check(repeated).counts == {AnomalyKind.NONMONOTONIC_POLL: 1}

    offset, _ = poll.records[at]
    moved = [*poll.records[:at], (offset, "never sent"), *poll.records[at + 1 :]]
    changed = [*events[:where], poll._replace(records=moved), *events[where + 1 :]]
    assert AnomalyKind.PHANTOM in check(changed).counts
    assert AnomalyKind.INCONSISTENT_OFFSETS in check(changed).counts
