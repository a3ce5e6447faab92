"""Running brokers in the foreground: start, report, wait for a signal, stop.

This file starts, reports and stops; everything else is the brokers'. It must not import what
serving does not need: the client stays outside.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

import click

from strandline.broker.event_loop import BrokerLoop
from strandline.broker.settle import import_later, look_for_less_garbage, settle
from strandline.broker.start_report import StartReport
from strandline.cli.output import counted
from strandline.cli.serving_signals import StopSignals
from strandline.cli.started import STARTED_S
from strandline.cluster.store import StoreError
from strandline.config.listeners import ANY_INTERFACE, Listener, host_and_port
from strandline.config.loopback import IPV6, loopback
from strandline.errors import (
    CannotBeHad,
    CannotListen,
    InvalidSetting,
    StorageError,
    StrandlineError,
)
from strandline.records._kernels import are_switched_off, missing, sentence_about
from strandline.storage.files import LockHeld
from strandline.version import VERSION

log = logging.getLogger(__name__)

_ANY_HOSTS: Final = (ANY_INTERFACE, "0.0.0.0", "::")  # noqa: S104 - recognised, not bound
_WRONG_PLACE: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS),  # not to be written, or another user's
        *(errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),  # not a directory
        *(errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL),  # without locks
    }
)
"""What the operating system says of a place where no data can be kept."""


class RunningBrokers(Protocol):
    """Brokers that run."""

    @property
    def reports(self) -> Mapping[int, StartReport]:
        """What their starts found, by the ids of the brokers."""

    @property
    def notice(self) -> str | None:
        """What the cluster lacks although these brokers run."""

    async def until_unfit(self) -> str:
        """Wait until they must not go on, which may never be, and say why."""

    async def stop(self) -> bool:
        """Stop all of them; whether all shutdowns were clean."""


Beside: TypeAlias = Callable[[RunningBrokers], AbstractAsyncContextManager[str]]
"""Something that runs beside the brokers from their start to their stop; gives lines to print."""


def run_until_stopped(
    start: Callable[[], Awaitable[RunningBrokers]],
    beside: Beside | None = None,
    *,
    has_brokers: bool = True,
) -> None:
    """Start brokers, say so, and stop them at Ctrl-C, SIGTERM, or the end of their terminal
    (SIGHUP), also while they start. `has_brokers` tells whether they are in this process."""
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        wrong = runner.run(_run(start, beside, has_brokers=has_brokers))
    _forget_what_cannot_be_written()
    if wrong:
        raise click.ClickException(" ".join(wrong))


async def _run(
    start: Callable[[], Awaitable[RunningBrokers]], beside: Beside | None, *, has_brokers: bool
) -> list[str]:
    """Start, wait for a signal, stop; sentences about what went wrong after the start."""
    signals = StopSignals()
    signals.listen()  # before the start: the first process of a container has no default for them
    look_for_less_garbage()
    running = await _start_unless_stopped(start, signals.stop)
    if running is None:
        _tell("Stopped before the start was done; the next start begins it again.")
        return []
    settle()
    imports = import_later() if has_brokers else None
    try:
        async with beside(running) if beside is not None else nullcontext("") as more:
            _tell("\n".join(report_lines(running.reports, running.notice, more)))
            wrong = await _until_to_be_stopped(running, signals.stop)
    except (InvalidSetting, OSError) as error:
        wrong = [str(error)]
    finally:  # whatever fails beside the brokers, it is no crash of theirs
        if imports is not None:
            imports.cancel()
        was_clean = await _stop(running)
    if not was_clean:
        wrong.append("The shutdown was not clean; the next start recovers.")
    return wrong


async def _stop(running: RunningBrokers) -> bool:
    _tell("Stopping. Ctrl-C again stops at once.")
    begun = time.monotonic()
    was_clean = await running.stop()
    log.info("The shutdown took %.2f s", time.monotonic() - begun)
    if was_clean:
        _tell("Stopped cleanly.")
    return was_clean


def _tell(sentence: str) -> None:
    """Print it, unless what would show it is gone: `| tee` ends with the same Ctrl-C, and after
    SIGHUP the terminal fails every write (EIO)."""
    try:
        click.echo(sentence)
    except OSError as error:
        log.info("Standard output cannot be written: %s", error.strerror)
        _forget_what_cannot_be_written()


def _forget_what_cannot_be_written() -> None:
    """What is in the buffers of a terminal that is gone must not fail again at the exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


async def _until_to_be_stopped(running: RunningBrokers, stop: asyncio.Event) -> list[str]:
    """Wait for a signal, or for a reason to stop without one, which is returned."""
    signalled = asyncio.ensure_future(stop.wait())
    unfit = asyncio.ensure_future(running.until_unfit())
    await asyncio.wait((signalled, unfit), return_when=asyncio.FIRST_COMPLETED)
    reasons = [unfit.result()] if unfit.done() else []
    signalled.cancel()
    unfit.cancel()
    return reasons


async def _start_unless_stopped(
    start: Callable[[], Awaitable[RunningBrokers]], stop: asyncio.Event
) -> RunningBrokers | None:
    """As `_start`; None if a signal came before the brokers were ready, and now nothing runs."""
    starting = asyncio.ensure_future(_start(start))
    signalled = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, signalled), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not starting.done():
        _tell("Stopping before the start is done. Ctrl-C again stops at once.")
        starting.cancel()
        await asyncio.wait([starting])
    return None if starting.cancelled() else starting.result()


async def _start(start: Callable[[], Awaitable[RunningBrokers]]) -> RunningBrokers:
    """Start; what can go wrong becomes a sentence with a hint."""
    try:
        return await start()
    except CannotListen as error:
        example = f"[{IPV6}]:9092" if loopback() == IPV6 else "HOST:PORT"
        raise click.ClickException(
            f"{error} Choose another address with --listen {example} or the setting listeners."
        ) from error
    except CannotBeHad as error:
        raise click.ClickException(str(error)) from error
    except InvalidSetting as error:
        raise click.UsageError(str(error)) from error
    except LockHeld as error:
        raise click.ClickException(
            f"{error} Is a broker running on this data? Choose other data with --data-dir DIR."
        ) from error
    except (StorageError, StoreError) as error:
        raise click.ClickException(sentence_about_data(error)) from error


def sentence_about_data(error: StrandlineError) -> str:
    """What to tell about data that cannot be used, with the setting if the place is the reason."""
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in _WRONG_PLACE:
        return f"{error} Choose another directory with --data-dir DIR or log.dirs."
    return str(error)


def report_lines(
    reports: Mapping[int, StartReport], lack: str | None = None, beside: str = ""
) -> list[str]:
    """What a person reads when brokers are ready. One broker is not named in every line."""
    several = len(reports) > 1
    any_report = next(iter(reports.values()))
    first = any_report.addresses[0]
    address = client_address(first)

    def of(broker_id: int) -> str:
        return f"  broker {broker_id}" if several else ""

    lines = [f"Strandline {VERSION}"]
    for broker_id, report in reports.items():
        lines += [f"  listening   {each}{of(broker_id)}" for each in report.addresses]
    for report in reports.values():
        lines += [f"  data        {os.path.abspath(each)}" for each in report.log_dirs]
    partitions = counted(any_report.partitions, "partition")
    lines += [
        f"  cluster id  {any_report.cluster_id}",
        f"  topics      {any_report.topics} with {partitions}",
    ]
    for broker_id, report in reports.items():
        whose = f"broker {broker_id}: " if several else ""
        if not report.was_clean:
            lines.append(
                f"  recovery    {whose}the last shutdown was not clean; the logs were checked"
            )
        lines += [f"  notice      {whose}{notice}" for notice in report.notices]
    without = missing()
    if without:
        lines.append(f"  notice      {sentence_about(without, switched_off=are_switched_off())}")
    if lack is not None:
        lines.append(f"  notice      {lack}")
    lines += [f"  {line}" for line in beside.splitlines()]
    return [
        *lines,
        *_examples(first, address),
        f"ready in {time.monotonic() - STARTED_S:.2f} s; Ctrl-C stops",
    ]


def _examples(listener: Listener, address: str) -> list[str]:
    if listener.security_protocol == "PLAINTEXT":
        return [
            f"  try         kcat -b {address} -L",
            f"  try         strandline -b {address} topics list",
        ]
    return [f"  try         strandline -b {address} --client-config FILE topics list"]


def client_address(listener: Listener) -> str:
    """What a client on this machine connects to."""
    host = "localhost" if listener.host in _ANY_HOSTS else listener.host
    return host_and_port(host, listener.port)
