"""`strandline topics elect | move | moves | move-logs`: who leads, and where the replicas are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import click

from strandline.cli.connecting import DESCRIBING_MS, bootstrap_option, json_option, open_cluster
from strandline.cli.output import counted, print_json, print_table, size_text
from strandline.cli.scope import parse_scope
from strandline.cli.unanswered import tell_brokers
from strandline.client.admin import Admin
from strandline.client.admin_log_dirs import LogDirAdmin
from strandline.client.admin_replicas import Election, Move, Outcomes, ReplicaAdmin
from strandline.errors import ErrorCode, StrandlineError
from strandline.numerals import INT32_MAX, whole_number
from strandline.types import BrokerId, TopicPartition

_LOOK_AGAIN_S: Final = 0.5


@click.command()
@click.argument("scopes", metavar="[TOPIC[:P,...]]...", nargs=-1)
@click.option("--all", "all_topics", is_flag=True, help="All partitions of all topics.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect any live replica where none in sync is alive. Records may be lost.",
)
@bootstrap_option
def elect(scopes: tuple[str, ...], all_topics: bool, unclean: bool, bootstrap: str | None) -> None:
    """Elect the preferred leaders, which are the first replicas, where others lead."""
    if bool(scopes) == all_topics:
        raise click.UsageError("Say which partitions, or --all.")
    election = Election.UNCLEAN if unclean else Election.PREFERRED
    with open_cluster(bootstrap) as client:
        partitions = None if all_topics else parse_scope(client, scopes)
        outcomes = ReplicaAdmin(client).elect(partitions, election)
    needless = [
        each
        for each, error in outcomes.items()
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    for each in needless:
        del outcomes[each]
        click.echo(f"{each} needs no election.")
    if not outcomes and not needless:
        click.echo("No partition needs an election.")
    _print_outcomes(outcomes, done="Elected the leader of {}.", failed="{} has no new leader")


@click.command()
@click.argument("scopes", metavar="TOPIC[:P,...]...", nargs=-1, required=True)
@click.option("--to", "targets", metavar="ID,...", help="The brokers that are to hold replicas.")
@click.option("--cancel", is_flag=True, help="Call moves off: replicas stay where they were.")
@click.option("--wait", is_flag=True, help="Return when the moves are finished.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Per second and broker at most; with --wait until the moves are finished.",
)
@bootstrap_option
def move(
    scopes: tuple[str, ...],
    targets: str | None,
    cancel: bool,
    wait: bool,
    throttle: int | None,
    bootstrap: str | None,
) -> None:
    """Move partitions to other brokers, or change how many replicas they have.

    Partitions are led by the brokers in turn: the second partition prefers the second broker.
    Nothing is lost and clients go on meanwhile. Without --wait the command only begins the moves;
    `topics moves` shows those under way, and a --throttle stays until the same command with --wait
    has seen their end.
    """
    if (targets is None) != cancel:
        raise click.UsageError("Say --to ID,... or --cancel.")
    if cancel and throttle is not None:
        raise click.UsageError("A move that is called off needs no --throttle.")
    brokers = [] if targets is None else _parse_brokers(targets)
    with open_cluster(bootstrap) as client:
        partitions = parse_scope(client, scopes)
        if cancel:
            outcomes = ReplicaAdmin(client).move(dict.fromkeys(partitions))
            done, failed = "Called the move of {} off.", "The move of {} was not called off"
            _print_outcomes(outcomes, done=done, failed=failed)
        else:
            placed = {each: _placed(each, brokers) for each in partitions}
            _move(Admin(client), placed, throttle, wait=wait)


def _move(
    admin: Admin,
    targets: dict[TopicPartition, list[BrokerId]],
    bytes_per_s: int | None,
    *,
    wait: bool,
) -> None:
    if bytes_per_s is not None:
        admin.throttles.begin(targets, bytes_per_s)
    try:
        outcomes = admin.replicas.move(targets)
    except StrandlineError:
        if bytes_per_s is not None:
            admin.throttles.end(targets)
        raise
    if bytes_per_s is not None:
        admin.throttles.end([each for each, refusal in outcomes.items() if refusal is not None])
    _print_outcomes(outcomes, done="Moving {}.", failed="{} is not moved")
    if bytes_per_s is not None:
        click.echo(f"Each broker sends and receives at most {size_text(bytes_per_s)} per second.")
    if wait:
        _wait(admin.replicas, list(targets))
        if bytes_per_s is not None:
            admin.throttles.end(targets)
        click.echo(f"Moved {counted(len(targets), 'partition')}.")


@click.command("move-logs")
@click.argument("scopes", metavar="TOPIC[:P,...]...", nargs=-1, required=True)
@click.option("--broker", type=int, metavar="ID", required=True, help="Whose replicas are moved.")
@click.option("--to", "path", metavar="DIR", required=True, help="One of the broker's log.dirs.")
@click.option("--wait", is_flag=True, help="Return when the moves are finished.")
@bootstrap_option
def move_logs(
    scopes: tuple[str, ...], broker: int, path: str, wait: bool, bootstrap: str | None
) -> None:
    """Move replicas to another log directory of their broker, for example to a new disk.

    The log is copied while it is served, and the copy then takes its place. To move it to where it
    lies calls a move off. `strandline cluster describe` names the directories, and `topics moves
    --logs` shows what is under way. How fast logs are copied:
    `replica.alter.log.dirs.io.max.bytes.per.second`.
    """
    with open_cluster(bootstrap) as client:
        admin = LogDirAdmin(client)
        partitions = parse_scope(client, scopes)
        outcomes = admin.move(partitions, BrokerId(broker), path)
        _print_outcomes(outcomes, done="Moving {}.", failed="{} is not moved")
        if wait:
            _wait_for_logs(admin, set(partitions), BrokerId(broker))
            click.echo(f"Moved {counted(len(partitions), 'log')}.")


@click.command()
@click.option("--logs", is_flag=True, help="Moves between the log directories of a broker instead.")
@bootstrap_option
@json_option
def moves(logs: bool, bootstrap: str | None, as_json: bool) -> None:
    """List the moves of partitions that are under way.

    With --logs it ends with 1 if a broker does not tell its moves within some seconds.
    """
    if logs:
        _list_log_moves(bootstrap, as_json=as_json)
        return
    with open_cluster(bootstrap) as client:
        found = ReplicaAdmin(client).moves()
    if as_json:
        print_json([_as_json(each) for each in found])
    elif found:
        print_table(
            ("PARTITION", "REPLICAS", "COMING", "GOING"),
            (
                (
                    each.partition,
                    _ids(each.replicas),
                    _ids(each.adding) or None,
                    _ids(each.removing) or None,
                )
                for each in found
            ),
        )


def _list_log_moves(bootstrap: str | None, *, as_json: bool) -> None:
    with open_cluster(bootstrap, patience_ms=DESCRIBING_MS) as client:
        told = LogDirAdmin(client).moves()
    found = told.found
    if as_json:
        print_json(
            [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "broker": each.broker,
                    "path": each.path,
                    "size_bytes": each.size_bytes,
                    "lag": each.lag,
                }
                for each in found
            ]
        )
    elif found:
        print_table(
            ("PARTITION", "BROKER", "TO", "COPIED", "BEHIND"),
            (
                (each.partition, each.broker, each.path, size_text(each.size_bytes), each.lag)
                for each in found
            ),
        )
    tell_brokers(told.unanswered, "its moves")
    if told.unanswered:
        raise click.exceptions.Exit(1)


def _wait_for_logs(admin: LogDirAdmin, partitions: set[TopicPartition], broker: BrokerId) -> None:
    while True:
        told = admin.moves([broker])
        for error in told.unanswered.values():
            raise error
        if not any(each.partition in partitions for each in told.found):
            return
        time.sleep(_LOOK_AGAIN_S)


def _placed(partition: TopicPartition, brokers: Sequence[BrokerId]) -> list[BrokerId]:
    """The brokers, beginning with another one for each partition, so that all of them lead some."""
    if not brokers:
        return []
    first = partition.partition % len(brokers)
    return [*brokers[first:], *brokers[:first]]


def _wait(admin: ReplicaAdmin, partitions: Sequence[TopicPartition]) -> None:
    while admin.moves(partitions):
        time.sleep(_LOOK_AGAIN_S)


def _parse_brokers(text: str) -> list[BrokerId]:
    brokers = []
    for item in text.split(","):
        number = whole_number(item.strip(), INT32_MAX)
        if number is None:
            raise click.UsageError(f"--to takes the ids of brokers, as in 1,2,3, not '{text}'.")
        brokers.append(BrokerId(number))
    return brokers


def _print_outcomes(outcomes: Outcomes, *, done: str, failed: str) -> None:
    """One line per partition; ends the command if one was refused."""
    for partition, error in outcomes.items():
        if error is None:
            click.echo(done.format(partition))
        else:
            click.echo(f"{failed.format(partition)}: {error.message}", err=True)
    if any(error is not None for error in outcomes.values()):
        raise click.exceptions.Exit(1)


def _ids(brokers: Sequence[BrokerId]) -> str:
    return ",".join(map(str, brokers))


def _as_json(move: Move) -> object:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
    }
