"""The entry: the table of commands, and how errors reach the person at the terminal.

Exit codes: 0 done; 1 it did not work, with one sentence that says why; 2 the command line or a
setting is wrong; 3 a result of its own, of those commands whose help says so; 130 interrupted.
"""

from __future__ import annotations

import io
import os
import stat
import sys

from strandline.cli import started  # first: it takes the time

import click  # isort: skip

from strandline.cli.client_config import client_config_option
from strandline.cli.lazy import LazyCommand, LazyGroup
from strandline.cli.sentences import sentence_of
from strandline.errors import CannotBeHad, InvalidSetting, StrandlineError
from strandline.version import VERSION

__all__ = ["cli", "main", "started"]

USAGE = 2
INTERRUPTED = 130

COMMANDS = {
    "serve": LazyCommand("strandline.cli.serve:serve", "Run a broker, or several."),
    "broker": LazyCommand("strandline.cli.broker:broker", "Run one broker over ZooKeeper."),
    "topics": LazyCommand("strandline.cli.topics:topics", "Create, list, move, delete topics."),
    "produce": LazyCommand("strandline.cli.produce:produce", "Send lines or JSON to a topic."),
    "consume": LazyCommand("strandline.cli.consume:consume", "Print the records of a topic."),
    "groups": LazyCommand("strandline.cli.groups:groups", "Show, reset, delete consumer groups."),
    "transactions": LazyCommand(
        "strandline.cli.transactions:transactions", "Show transactions, end those that hang."
    ),
    "acls": LazyCommand("strandline.cli.acls:acls", "Show and change who may do what."),
    "tokens": LazyCommand("strandline.cli.tokens:tokens", "Make and end tokens that log in."),
    "configs": LazyCommand("strandline.cli.configs:configs", "Show and change settings."),
    "quotas": LazyCommand("strandline.cli.quotas:quotas", "Limit what clients write and read."),
    "status": LazyCommand("strandline.cli.status:status", "Show brokers and replicas live."),
    "why": LazyCommand("strandline.cli.why:why", "Explain refusals and what stands still."),
    "ledger": LazyCommand("strandline.cli.ledger:ledger", "Show and recover removed records."),
    "fault": LazyCommand("strandline.cli.fault:fault", "Cause accidents on a local cluster."),
    "cluster": LazyCommand("strandline.cli.cluster:cluster", "Show brokers and their disks."),
    "explain": LazyCommand(
        "strandline.cli.explain:explain", "Tell why records stay, and when they go."
    ),
    "compact": LazyCommand("strandline.cli.compact:compact", "Compact a topic now."),
    "dump": LazyCommand("strandline.cli.dump:dump", "Print and check files of a data directory."),
    "audit": LazyCommand("strandline.cli.audit:audit", "Compare the log directories of replicas."),
    "table": LazyCommand("strandline.cli.table:table", "Bring topics into tables, exactly once."),
    "tables": LazyCommand("strandline.cli.tables:tables", "Run many tables from one file."),
    "demo": LazyCommand("strandline.cli.demo:demo", "Watch a topic become a table."),
    "sim": LazyCommand("strandline.cli.sim:sim", "Try whole clusters in simulated time."),
    "ui": LazyCommand("strandline.cli.ui:ui", "Serve the live page of a cluster."),
    "learn": LazyCommand(
        "strandline.cli.learn:learn", "Learn replication in a browser tab, with a cluster in it."
    ),
    "play": LazyCommand(
        "strandline.cli.play:play", "Replay the classical accidents, step by step."
    ),
    "record": LazyCommand("strandline.cli.record:record", "Record what happens to a partition."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT,...",
    envvar="STRANDLINE_BOOTSTRAP",
    default="localhost:9092",
    show_default=True,
    show_envvar=True,
    help="Brokers to ask first. May also stand behind the command.",
)
@client_config_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, asked: _show_version(context, asked=asked),
    help="Show the version, and whether the compiled kernels are there.",
)
def cli(bootstrap: str) -> None:
    """A replicated commit log that speaks the Kafka protocol, and tools for any Kafka cluster."""
    del bootstrap


def _show_version(context: click.Context, *, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    from strandline.records._kernels import are_switched_off, missing, sentence_about

    click.echo(f"strandline, version {VERSION}")
    without = missing()
    if without:
        click.echo(sentence_about(without, switched_off=are_switched_off()))
    else:
        click.echo("with its compiled kernels")
    context.exit()


def _open_what_is_closed() -> None:
    """Have all three standard streams. A closed one has nothing to read and cannot be written, and
    no file or socket gets its descriptor, into which a library may write."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            taken = os.open(os.devnull, os.O_RDONLY)  # which makes writing an error
            if taken != number:
                os.dup2(taken, number)
                os.close(taken)
            # Without a buffer, of which Python would try to write the rest at its end.
            raw = io.FileIO(number, mode, closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, write_through=True))


def main() -> None:
    """Run the command line and exit."""
    _open_what_is_closed()
    # Without a umask new directories would be writable for every user of the machine.
    os.umask(os.umask(stat.S_IWOTH) | stat.S_IWOTH)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every terminal has every letter of a name
            stream.reconfigure(errors="backslashreplace")
    try:
        # Commands return nothing; what comes back is the code of an `Exit`.
        code = cli.main(standalone_mode=False, prog_name="strandline")
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except (StrandlineError, OSError) as error:
        from strandline.cli.output import shown_text

        lines = f"strandline: {sentence_of(error)}".split("\n")
        click.echo("\n".join(map(shown_text, lines)), err=True)  # it may have names of others
        is_wrong = isinstance(error, InvalidSetting) and not isinstance(error, CannotBeHad)
        sys.exit(USAGE if is_wrong else 1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
