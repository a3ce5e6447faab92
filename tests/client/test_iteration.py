"""`for record in consumer`: one record at a time, and what counts as read is what the loop had."""

from __future__ import annotations

from itertools import islice

import strandline
from strandline.types import TopicPartition
from tests.client.conftest import BrokerThread
from tests.client.test_api import read, settings, write


def test_records_come_one_by_one_in_the_order_of_their_partition(
    broker: BrokerThread, name: str
) -> None:
    write(broker, name, 10)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    with strandline.Consumer(settings(broker, auto_offset_reset="earliest")) as consumer:
        consumer.assign([first])
        for number, record in enumerate(consumer):
            assert (record.offset, record.value) == (number, b"%d" % (2 * number))
            assert consumer.position(first) == number + 1
            if number == 1:
                break
        assert [each.offset for each in consumer.poll()] == [2, 3, 4], "what the loop left"
        consumer.seek(first, 1)
        assert next(iter(consumer)).offset == 1
        consumer.seek(first, 4)
        assert next(iter(consumer)).offset == 4, "nothing is left of before"
        consumer.assign([second])
        assert [each.value for each in islice(consumer, 5)] == [b"1", b"3", b"5", b"7", b"9"]


def test_a_group_goes_on_behind_the_record_at_which_a_loop_was_left(
    broker: BrokerThread, name: str
) -> None:
    """The other records of the same answer are read by the member that comes next."""
    write(broker, name, 10)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest")
    seen: list[bytes] = []
    with strandline.Consumer(mine) as consumer:
        consumer.subscribe([name])
        for record in consumer:
            seen.append(record.value or b"")
            if len(seen) == 3:
                break
    with strandline.Consumer(mine) as consumer:
        consumer.subscribe([name])
        kept = iter(consumer)  # a program may keep the loop, and close the consumer before it
        seen += [next(kept).value or b"" for _ in range(2)]
        consumer.commit()
        committed = consumer.committed(consumer.partitions_for(name))
        assert sum(committed.values()) == 5
        seen.append(next(kept).value or b"")
    with strandline.Consumer(mine) as consumer:
        consumer.subscribe([name])
        seen += [each.value or b"" for each in read(consumer, 4)]
    assert sorted(seen) == [b"%d" % number for number in range(10)]
