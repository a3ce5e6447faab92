"""The bytes of ZooKeeper's multis and reads, and what their answers mean."""

from __future__ import annotations

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    NoAuthError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from strandline.broker.zookeeper_requests import (
    Multi,
    NodeRead,
    Read,
    ReadMany,
    Sync,
    Unreadable,
    WatchRecursively,
)
from strandline.broker.zookeeper_session import is_definite, sentence
from strandline.cluster.store import (
    BadVersion,
    Check,
    Checked,
    Create,
    Created,
    DataSet,
    Delete,
    Deleted,
    InvalidPath,
    MultiTooLarge,
    NodeStat,
    Operation,
    SessionId,
    SetData,
    StoreUnavailable,
    Zxid,
)
from strandline.errors import InvariantViolated

STAT = NodeStat(Zxid(5), Zxid(9), version=3, owner=SessionId(77))
STAT_BYTES = wire.stat_struct.pack(5, 9, 0, 0, 3, 0, 0, 77, 0, 2, 0)
OPERATIONS: list[Operation] = [
    Create("/a", b"1", ephemeral=True, sequential=True),
    SetData("/b", b"2", 4),
    Delete("/c", 5),
    Check("/d", 6),
]


def part(kind: int, body: bytes = b"") -> bytes:
    return bytes(wire.multiheader_struct.pack(kind, False, 0)) + body


def answer(*parts: bytes) -> bytes:
    return b"head" + b"".join(parts) + bytes(wire.multiheader_struct.pack(-1, True, -1))


def error(code: int) -> bytes:
    return part(-1, wire.int_struct.pack(code))


def test_a_multi_is_what_kazoo_would_send() -> None:
    same = wire.Transaction(
        [
            wire.Create("/x/a", b"1", OPEN_ACL_UNSAFE, 3),
            wire.SetData("/x/b", b"2", 4),
            wire.Delete("/x/c", 5),
            wire.CheckVersion("/x/d", 6),
        ]
    )
    assert Multi(OPERATIONS, chroot="/x").serialize() == bytes(same.serialize())
    assert Multi.type == wire.Transaction.type
    assert Sync(chroot="/x").serialize() == wire.Sync("/x").serialize()
    assert Sync().serialize() == wire.Sync("/").serialize()


def test_every_result_keeps_its_place() -> None:
    received = answer(
        part(1, wire.write_string("/x/a0000000001")), part(5, STAT_BYTES), part(2), part(13)
    )
    results = Multi.deserialize(received, 4)
    assert results == ["/x/a0000000001", STAT, None, None]
    assert Multi(OPERATIONS).outcome(results) == (
        Created("/x/a0000000001"),
        DataSet(STAT),
        Deleted(),
        Checked(),
    )


def test_the_refused_operation_is_the_one_that_was_tried_and_failed() -> None:
    results = Multi.deserialize(answer(error(0), error(-103), error(-2), error(-2)), 4)
    with pytest.raises(BadVersion) as refused:
        Multi(OPERATIONS).outcome(results)
    assert (refused.value.index, refused.value.path) == (1, "/b")


def test_an_error_that_is_no_refusal_is_unavailable() -> None:
    results = Multi.deserialize(answer(error(0), error(0), error(-6), error(-2)), 4)
    with pytest.raises(StoreUnavailable, match=r"operation 2 on '/c' with its error -6"):
        Multi(OPERATIONS).outcome(results)


@pytest.mark.parametrize("results", [[], ["/a", STAT, None], [STAT, STAT, None, None]])
def test_an_answer_that_does_not_fit_is_noticed(results: list[object]) -> None:
    with pytest.raises(InvariantViolated):
        Multi(OPERATIONS).outcome(results)


def test_what_no_server_takes_is_refused_at_once() -> None:
    with pytest.raises(InvalidPath) as refused:
        Multi([Check("/a"), Create("relative")])
    assert refused.value.index == 1
    with pytest.raises(InvalidPath):
        Multi([Create("/a/", sequential=False)])
    Multi([Create("/a/", sequential=True)])
    size = len(Multi([Create("/a", b"x" * 100)]).serialize()) + 8
    Multi([Create("/a", b"x" * 100)], request_bytes_max=size)
    with pytest.raises(MultiTooLarge, match=f"{size} bytes .* {size - 1}"):
        Multi([Create("/a", b"x" * 100)], request_bytes_max=size - 1)


def test_reads_are_answered_one_by_one() -> None:
    reads = [Read("/a"), Read("/a", children=True), Read("/gone"), Read("/secret"), Read("/")]
    request = ReadMany(reads, chroot="/x").serialize()
    expected = [
        part_of_read(4, "/x/a"),
        part_of_read(8, "/x/a"),
        part_of_read(4, "/x/gone"),
        part_of_read(4, "/x/secret"),
        part_of_read(4, "/x"),
    ]
    assert request == b"".join(expected) + bytes(wire.multiheader_struct.pack(-1, True, -1))
    names = wire.int_struct.pack(2) + wire.write_string("b") + wire.write_string("c")
    received = answer(
        part(4, wire.write_buffer(b"data") + STAT_BYTES),
        part(8, names),
        error(-101),
        error(-102),
        part(4, wire.write_buffer(None) + STAT_BYTES),
    )
    assert ReadMany.deserialize(received, 4) == [
        NodeRead(b"data", STAT, 2),
        ["b", "c"],
        None,
        Unreadable(-102),
        NodeRead(b"", STAT, 2),
    ]


def part_of_read(kind: int, path: str) -> bytes:
    header: bytes = wire.multiheader_struct.pack(kind, False, -1)
    return header + bytes(wire.write_string(path)) + b"\0"


def test_the_watch_covers_the_whole_subtree() -> None:
    request = WatchRecursively("/brokers", chroot="/x").serialize()
    assert request == bytes(wire.write_string("/x/brokers")) + b"\0\0\0\1"
    assert WatchRecursively.type == 106


def test_which_errors_leave_the_outcome_open() -> None:
    for lost in (ConnectionLoss(), SessionExpiredError(), SessionMovedError(), LookupError()):
        assert not is_definite(lost)
    for definite in (NoAuthError(), AuthFailedError()):
        assert is_definite(definite)
    assert sentence(NoAuthError()) == "ZooKeeper answered NoAuthError"
    assert sentence(LookupError("why")) == "There was LookupError: why"
