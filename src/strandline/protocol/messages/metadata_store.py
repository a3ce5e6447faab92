"""What a broker and the metadata store in another process of its machine say to each other.

Not one of Kafka's protocols (design note 0045). A frame is a size (int32), the kind of the message
(int8), and the message. Paths, contents and texts are bytes: a string of the protocol ends at
32,767. Both ends are of one release, so there is one version of everything.
"""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    binary,
    boolean,
    int8,
    int32,
    int64,
    message,
    one,
    structure,
)


@structure
class Stat:
    """What the store knows of a node beside its data."""

    created_zxid: int = int64()
    modified_zxid: int = int64()
    version: int = int32()
    owner: int = int64()


@structure
class Operation:
    """One operation of a multi. The kinds are numbered in `broker/store_messages`."""

    kind: int = int8()
    path: bytes = binary()
    data: bytes = binary()
    version: int = int32(default=-1)
    is_ephemeral: bool = boolean()
    is_sequential: bool = boolean()


@structure
class Change:
    """What happened to one node."""

    kind: int = int8()
    path: bytes = binary()
    data: bytes = binary()
    stat: Stat = one(Stat)


@structure
class Result:
    """What one operation came to."""

    kind: int = int8()
    path: bytes = binary()
    stat: Stat = one(Stat)


@message("0", flexible="0+")
class Hello:
    """A broker connects: with its session if it has one, else 0."""

    broker_id: int = int32()
    session: int = int64()
    session_timeout_ms: int = int32()


@message("0", flexible="0+")
class Multi:
    """Do all operations or none. `number` comes back with the outcome."""

    number: int = int64()
    operations: list[Operation] = array(Operation)


@message("0", flexible="0+")
class Ping:
    """The sender lives. A broker's is answered with one."""


@message("0", flexible="0+")
class Bye:
    """The broker ends its session. Answered when what it owned is deleted."""

    number: int = int64()


@message("0", flexible="0+")
class Welcome:
    """Answers `Hello`: the session, which is a new one if the number is new. The tree follows."""

    session: int = int64()


@message("0", flexible="0+")
class Told:
    """What changed. Behind `Welcome` the whole tree, as nodes made; `is_more` until its end."""

    zxid: int = int64()
    is_more: bool = boolean()
    changes: list[Change] = array(Change)


@message("0", flexible="0+")
class Outcome:
    """What came of a multi or a farewell. Without error there is one result per operation."""

    number: int = int64()
    error: int = int8()
    index: int = int32()
    path: bytes = binary()
    text: bytes = binary()
    results: list[Result] = array(Result)
