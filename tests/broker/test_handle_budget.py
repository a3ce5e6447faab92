"""Who gets the descriptors of a process, and what is refused when they are used up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strandline.broker.handle_budget import FILES_MAX, HandleBudget
from strandline.storage.files import File


@pytest.mark.parametrize("limit", [40, 100, 256, 1024, 4096, 1 << 20])
@pytest.mark.parametrize("brokers", [1, 3])
def test_nothing_is_promised_twice(limit: int, brokers: int) -> None:
    """Sockets and files together never get more than the process has, however many come."""
    budget = HandleBudget(limit, brokers=brokers, already_open=10)
    accepted = 0
    while budget.may_accept(("127.0.0.1", accepted)) and accepted < 20_000:
        budget.opened()
        accepted += 1
        assert budget.handles.limit >= 1
        if limit >= 100:
            assert accepted + budget.handles.limit + 10 < limit
    assert accepted >= (limit // 3 if 256 <= limit < 20_000 else 1)
    assert budget.use.refused_connections == (0 if accepted == 20_000 else 1)


def test_files_have_what_sockets_leave(tmp_path: Path) -> None:
    budget = HandleBudget(256, brokers=3)
    files = budget.files()
    opened: list[File] = []
    for number in range(300):
        opened.append(files.open(f"{tmp_path}/{number}", create=True))
        opened[-1].append(b"x")
    alone = budget.use.files
    assert alone == budget.handles.limit > 64
    while budget.may_accept(("127.0.0.1", budget.sockets)):
        budget.opened()
    assert budget.use.files == budget.handles.limit < alone
    assert budget.sockets + budget.use.files < 256
    while budget.sockets:
        budget.closed()
    assert budget.handles.limit == alone
    for file in opened:
        file.close()


def test_links_between_brokers_of_one_process_are_let_in_always() -> None:
    budget = HandleBudget(100, brokers=3)
    while budget.may_accept(("127.0.0.1", budget.sockets)):
        budget.opened()
    budget.dialled(("127.0.0.1", 55_555))
    assert budget.may_accept(("127.0.0.1", 55_555))
    assert not budget.may_accept(("127.0.0.1", 55_556))
    budget.hung_up(("127.0.0.1", 55_555))
    assert not budget.may_accept(("127.0.0.1", 55_555))


def test_files_are_never_more_than_useful() -> None:
    budget = HandleBudget(1 << 20, brokers=1)
    assert budget.handles.limit == FILES_MAX
    assert not budget.is_tight
    assert HandleBudget(1024, brokers=1).is_tight


@pytest.mark.parametrize(("soft", "hard", "then"), [(64, 300, 300), (300, 300, 300)])
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int, then: int) -> None:
    code = (
        "import resource, sys\n"
        "from strandline.broker.handle_budget import HandleBudget, raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))\n"
        "raise_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], HandleBudget.of_process().limit)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(soft), str(hard)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [str(then), str(then)]


def test_a_system_that_allows_less_than_it_says_gets_what_it_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS has no hard limit and refuses more than OPEN_MAX."""
    import resource as limits

    from strandline.broker import handle_budget

    tried: list[int] = []

    def set_limit(what: int, limit: tuple[int, int]) -> None:
        tried.append(limit[0])
        if limit[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(limits, "getrlimit", lambda what: (256, limits.RLIM_INFINITY))
    monkeypatch.setattr(limits, "setrlimit", set_limit)
    handle_budget.raise_limit()
    assert tried == [handle_budget.USEFUL_MAX, 10_240]
