"""What `strandline quotas` says of limits that are not set. More is in `tests/client`."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.conftest import Ended

Run = Callable[..., Ended]


def test_only_limits_that_are_set_count_as_removed(strandline: Run, name: str) -> None:
    of = ("--user", name)
    strandline("quotas", "set", *of, "producer_byte_rate=1000", "consumer_byte_rate=1000")
    ended = strandline(
        *("quotas", "remove", *of, "producer_byte_rate", "request_percentage", "no_rate")
    )
    assert (ended.code, ended.out) == (1, f"Removed 1 limit of user {name}.\n")
    assert ended.err.splitlines() == [
        f"There is no limit request_percentage of user {name}.",
        f"There is no limit no_rate of user {name}.",
    ]
    # The same limit of another entity is none of this one's.
    more = strandline("quotas", "remove", *of, "--client-id", "x", "consumer_byte_rate")
    assert (more.code, more.out) == (1, "")
    assert more.err == f"There is no limit consumer_byte_rate of user {name}, client-id x.\n"
    last = strandline("quotas", "remove", *of, "consumer_byte_rate", "consumer_byte_rate")
    assert last == (0, f"Removed 1 limit of user {name}.\n", "")
