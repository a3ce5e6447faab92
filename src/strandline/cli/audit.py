"""`strandline audit`: the log directories of all replicas, compared.

This file knows the command line and how findings are shown. What is checked is in
`storage/verify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import counted, listed, print_json, print_table, size_text
from strandline.cli.stopping import ends_with_its_reader
from strandline.errors import InvalidSetting, StrandlineError
from strandline.storage.real_files import RealFiles
from strandline.storage.verify.directories import (
    Inventory,
    find_log_directories,
    take_inventory,
)
from strandline.storage.verify.findings import Finding, PartitionReport

_NAMED_MAX: Final = 3
"""So many partitions are named of which the same is to be said."""


@click.command()
@click.option(
    "--log-dirs",
    "first",
    metavar="DIR...",
    multiple=True,
    required=True,
    help="Log directories, or data directories of several brokers.",
)
@click.argument("more", metavar="[DIR...]", nargs=-1)
@click.option("--topic", "topics", multiple=True, help="Only this topic. May be repeated.")
@click.option("--no-spark", is_flag=True, help="One partition after the other, without Spark.")
@json_option
def audit(
    first: tuple[str, ...],
    more: tuple[str, ...],
    topics: tuple[str, ...],
    no_spark: bool,
    as_json: bool,
) -> None:
    """Compare the replicas in log directories and check each of them.

    Checked are checksums, the order of offsets and leader epochs, indexes, the final values of
    compacted topics, and that replicas are equal below their high watermarks. Nothing is changed.
    Of brokers that run, or crashed, only what lies below the checkpointed high watermark is judged.

    Ends with 0 if nothing was found, and with 1 if something was.
    """
    files = RealFiles()
    try:
        directories = find_log_directories(files, [path for each in first for path in _split(each)])
        directories += find_log_directories(files, more)
        inventory = take_inventory(files, list(dict.fromkeys(directories)), frozenset(topics))
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    missing = set(topics) - {at.topic for at in inventory.partitions}
    if missing:
        raise click.UsageError(f"No directory has a partition of topic '{min(missing)}'.")
    reports = _run(inventory, no_spark)
    findings = [*inventory.findings, *(each for report in reports for each in report.findings)]
    with ends_with_its_reader():
        if as_json:
            _print_json(inventory, reports, findings)
        else:
            _print_text(inventory, reports, findings)
    if findings:
        raise click.exceptions.Exit(1)


def _split(given: str) -> list[str]:
    """As `log.dirs` separates them."""
    return [each.strip() for each in given.split(",") if each.strip()]


def _run(inventory: Inventory, no_spark: bool) -> list[PartitionReport]:
    if no_spark:
        from strandline.storage.verify.partition import audit_here

        return audit_here(inventory, RealFiles())
    try:
        from strandline.lakehouse.audit import audit_on_spark
        from strandline.lakehouse.session import session
    except ModuleNotFoundError as missing:
        raise StrandlineError(
            f"The module '{missing.name}' is not installed: pip install 'strandline[spark]'."
        ) from missing
    with session("strandline-audit") as spark:
        return audit_on_spark(spark, inventory)


def _print_json(
    inventory: Inventory, reports: Sequence[PartitionReport], findings: Sequence[Finding]
) -> None:
    print_json(
        {
            "directories": list(inventory.directories),
            "partitions": [
                {**report.to_json(), "findings": len(report.findings)} for report in reports
            ],
            "findings": [each.to_json() for each in findings],
        }
    )


def _print_text(
    inventory: Inventory, reports: Sequence[PartitionReport], findings: Sequence[Finding]
) -> None:
    print_table(
        ("PARTITION", "BROKERS", "START", "END", "BATCHES", "RECORDS", "SIZE", "FINDINGS"),
        (
            (
                f"{report.topic}-{report.partition}",
                ",".join(map(str, report.brokers)),
                report.start_offset,
                report.end_offset,
                report.batches,
                report.records,
                size_text(report.bytes_read),
                len(report.findings),
            )
            for report in reports
        ),
    )
    for note, partitions in _by_note(reports).items():
        click.echo(f"note  {listed(partitions, _NAMED_MAX)}: {note}")
    for each in findings:
        _print_finding(each)
    directories = len(inventory.directories)
    click.echo(
        f"{counted(len(reports), 'partition')} in {directories:,} log "
        f"{'directory' if directories == 1 else 'directories'}: "
        f"{counted(len(findings), 'finding') if findings else 'no findings'}."
    )


def _by_note(reports: Sequence[PartitionReport]) -> dict[str, list[str]]:
    """Of a broker that runs the same is to be said of most partitions: it is said once."""
    found: dict[str, list[str]] = {}
    for report in reports:
        for note in report.notes:
            found.setdefault(note, []).append(f"{report.topic}-{report.partition}")
    return found


def _print_finding(found: Finding) -> None:
    where = f"{found.topic}-{found.partition}" if found.topic else "directory"
    if found.offset >= 0:
        where += f" at {found.offset}"
    whose = f"broker {','.join(map(str, found.brokers))}" if found.brokers else "a broker"
    more = f" ({found.count} in a row, up to {found.end_offset})" if found.count > 1 else ""
    click.echo(f"{found.kind.value.upper()}  {where}, {whose}: {found.sentence}{more}")
    if found.path:
        click.echo(f"    {found.path}")
