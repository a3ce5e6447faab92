"""What `strandline table status` and `verify` show of tables that queries fill."""

from __future__ import annotations

import click

from strandline.cli.output import counted, print_json, print_table, size_text, time_text
from strandline.cli.table_options import typed
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.progress import ROWS, held_in
from strandline.lakehouse.results.proof import ResultReport, prove, written_by
from strandline.lakehouse.tables.presence import absent_files
from strandline.lakehouse.tables.store import TableStore


def show_status(store: TableStore, *, as_json: bool) -> None:
    """How many rows there are, and how far each query is that wrote them."""
    spec, state = store.spec, store.state()
    held = held_in(store)[ROWS]
    counts, missing = held.counts(), len(absent_files(held.files))
    queries = written_by(store.history())
    if as_json:
        print_json(
            {
                "table": spec.name,
                "topics": [],
                "location": spec.location,
                "format": spec.format,
                "keys": list(spec.keys),
                "commits": state.sequence,
                "version": state.version,
                "held": {ROWS: {"missing": missing, **counts}},
                "queries": [
                    {
                        "query_id": each.query_id,
                        "batch_id": each.batch_id,
                        "mode": each.kind,
                        "time": time_text(each.at_ms),
                    }
                    for each in queries
                ],
            }
        )
        return
    by_key = f" by {', '.join(spec.keys)}" if spec.keys else ""
    click.echo(f"Table {spec.name} of queries: {spec.format}, {spec.mode}{by_key}")
    click.echo(f"  in           {spec.location}")
    click.echo(
        f"  rows         {counts['rows']:,} in {counted(counts['files'], 'file')}, "
        f"{size_text(counts['bytes'])}"
    )
    if missing:
        click.echo(
            f"  MISSING      {counted(missing, 'file')} of these not there, or not whole: see "
            f"{typed(f'strandline table verify {spec.name}')}"
        )
    click.echo(f"  commits      {state.sequence}")
    if queries:
        click.echo()
        print_table(
            ("QUERY", "LAST BATCH", "AT", "ROWS"),
            ((each.query_id, each.batch_id, time_text(each.at_ms), each.rows) for each in queries),
        )


def show_proof(store: TableStore, checkpoint: str | None, *, as_json: bool) -> None:
    """Prove and tell. Ends the command with 1 if something is wrong; raises `click.UsageError`."""
    try:
        place = None
        if checkpoint is not None:
            place = Location.parse(checkpoint, setting="checkpoint")
        report: ResultReport = prove(store, place)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    if as_json:
        print_json(report.as_json())
    else:
        print_table(("QUERY", "FROM BATCH", "TO", "BATCHES"), report.queries)
        for sentence in report.sentences():
            click.echo(sentence)
    if not report.is_good:
        raise click.exceptions.Exit(1)
