"""`strandline groups`: groups of consumers, what they have read, and how to set them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click

from strandline.cli import share_groups
from strandline.cli.connecting import bootstrap_option, json_option, open_cluster
from strandline.cli.group_reset import parse_target
from strandline.cli.output import print_json, print_table, shown_text
from strandline.cli.scope import parse_scope
from strandline.cli.sentences import sentence_of
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin_groups import SHARE, GroupAdmin, GroupDescription, PartitionLag
from strandline.client.admin_share_groups import ShareGroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.group_positions import GroupPositions
from strandline.client.group_reset import NoStoredOffset, Target, check_is_idle, new_offsets
from strandline.errors import ProtocolError
from strandline.types import TopicPartition


@click.group(cls=SentencesGroup)
def groups() -> None:
    """Show, reset, delete consumer groups and share groups."""


@groups.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str | None, as_json: bool) -> None:
    """List all groups with their states."""
    with open_cluster(bootstrap) as client:
        found = GroupAdmin(client).list_all()
    if as_json:
        print_json(
            [
                {
                    "group": each.group,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                    "type": each.group_type,
                }
                for each in found
            ]
        )
    elif found:
        print_table(("GROUP", "STATE", "TYPE"), ((g.group, g.state, g.group_type) for g in found))


@groups.command()
@click.argument("group")
@bootstrap_option
@json_option
def describe(group: str, bootstrap: str | None, as_json: bool) -> None:
    """Show the members of GROUP, what they read, and how far they have come."""
    with open_cluster(bootstrap) as client:
        admin = GroupAdmin(client)
        found = admin.describe(group)
        if found.group_type == SHARE:
            _describe_share_group(client, found, as_json=as_json)
            return
        owners = {
            partition: member.member_id for member in found.members for partition in member.assigned
        }
        lags = admin.lag(group, owners)
    if as_json:
        print_json(_as_json(found, lags, owners))
        return
    _print_head(found)
    if found.members:
        click.echo()
        _print_members(found)
    if lags:
        click.echo()
        print_table(
            ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"),
            (
                (
                    *each.partition,
                    None if each.committed is None else each.committed.offset,
                    each.end,
                    each.lag,
                    owners.get(each.partition),
                )
                for each in lags
            ),
        )


def _describe_share_group(client: ClusterClient, found: GroupDescription, *, as_json: bool) -> None:
    offsets = ShareGroupAdmin(client).offsets(found.group)
    if as_json:
        described = _as_json(found, [], {})
        print_json({**described, "partitions": share_groups.offsets_as_json(offsets)})
        return
    _print_head(found)
    if found.members:
        click.echo()
        share_groups.print_members(found)
    if offsets:
        click.echo()
        share_groups.print_offsets(offsets)


def _print_head(found: GroupDescription) -> None:
    epochs = (
        ""
        if found.epoch is None
        else f"epoch {found.epoch}  assignment epoch {found.assignment_epoch}  "
    )
    click.echo(
        f"Group {shown_text(found.group)}  type {found.group_type}  state {found.state}  {epochs}"
        f"assignor {shown_text(found.assignor or '-')}  "
        f"coordinator {found.coordinator}  members {len(found.members)}"
    )


def _print_members(found: GroupDescription) -> None:
    if found.epoch is None:
        print_table(
            ("MEMBER", "CLIENT", "HOST", "PARTITIONS"),
            (
                (each.member_id, each.client_id, each.host, _listed(each.assigned))
                for each in found.members
            ),
        )
        return
    print_table(
        ("MEMBER", "CLIENT", "HOST", "PROTOCOL", "EPOCH", "PARTITIONS", "TO GIVE UP", "TO COME"),
        (
            (
                each.member_id,
                each.client_id,
                each.host,
                each.protocol,
                each.epoch,
                _listed(each.assigned),
                _listed(each.to_give_up),
                _listed(each.to_come),
            )
            for each in found.members
        ),
    )


def _listed(partitions: Iterable[TopicPartition]) -> str | None:
    return " ".join(map(str, partitions)) or None


@groups.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str | None) -> None:
    """Delete groups without members, with all of their offsets.

    Ends with 1 if one of them could not be deleted; the others are.
    """
    with open_cluster(bootstrap) as client:
        admin = GroupAdmin(client)
        outcomes = [
            _is_done(
                partial(admin.delete, name),
                f"Deleted group '{name}'.",
                f"Group '{name}' was not deleted",
            )
            for name in dict.fromkeys(names)
        ]
    if not all(outcomes):
        raise click.exceptions.Exit(1)


@groups.command("delete-offsets")
@click.argument("group")
@click.option(
    "--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="Repeatable."
)
@bootstrap_option
def delete_offsets(group: str, topics: tuple[str, ...], bootstrap: str | None) -> None:
    """Have GROUP forget where it is in topics: it begins there like a new group.

    Ends with 1 if it could not forget one of them; the others are forgotten.
    """
    with open_cluster(bootstrap) as client:
        found = GroupAdmin(client).describe(group)
        positions = GroupPositions(client, group, found)
        # Of share groups the broker says itself which topics they do not have.
        known = None if found.group_type == SHARE else {at.topic for at in positions.stored()}
        outcomes = []
        for topic in dict.fromkeys(topics):
            if known is not None and topic not in known:
                click.echo(f"Group '{group}' has no offsets of topic '{topic}'.", err=True)
                outcomes.append(False)
            else:
                done = f"Group '{group}' has forgotten topic '{topic}'."
                refused = f"Group '{group}' has not forgotten topic '{topic}'"
                outcomes.append(_is_done(partial(positions.forget, topic), done, refused))
    if not all(outcomes):
        raise click.exceptions.Exit(1)


def _is_done(act: Callable[[], object], done: str, refused: str) -> bool:
    """Act on one of several things, and say what came of it: a refusal stops no other."""
    try:
        act()
    except ProtocolError as error:
        click.echo(f"{refused}: {sentence_of(error)}", err=True)
        return False
    click.echo(done)
    return True


@groups.command()
@click.argument("group")
@click.option(
    "--topic", "scopes", metavar="TOPIC[:P,...]", multiple=True, help="Which. Repeatable."
)
@click.option("--all-topics", is_flag=True, help="All that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To where the log begins.")
@click.option("--to-latest", is_flag=True, help="To where the log ends.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To the first record at or after it: an ISO 8601 time, or milliseconds since 1970.",
)
@click.option("--by-duration", metavar="ISO-DURATION", help="To so long ago, such as PT1H.")
@click.option("--shift-by", type=int, metavar="N", help="N forward, or back if negative.")
@click.option("--execute", is_flag=True, help="Do it. Without this the plan is only shown.")
@bootstrap_option
@json_option
def reset(
    group: str,
    scopes: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    execute: bool,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Set the offsets of GROUP, which must have no members. Shows the plan unless --execute."""
    if bool(scopes) == all_topics:
        raise click.UsageError("Give either --topic TOPIC or --all-topics.")
    with open_cluster(bootstrap) as client:
        target: Target = parse_target(
            client.clock.wall_ms(),
            to_earliest=to_earliest,
            to_latest=to_latest,
            to_offset=to_offset,
            to_datetime=to_datetime,
            by_duration=by_duration,
            shift_by=shift_by,
        )
        admin = GroupAdmin(client)
        found = check_is_idle(admin, group, may_be_new=bool(scopes))
        positions = GroupPositions(client, group, found)
        stored = positions.stored()
        partitions = sorted(stored) if all_topics else parse_scope(client, scopes)
        before = {each: stored[each] for each in partitions if each in stored}
        try:
            plan = new_offsets(client, partitions, before, target)
        except NoStoredOffset as wrong:
            raise click.UsageError(
                "--shift-by needs an offset to start from, and the group has none of "
                f"{wrong.partition}."
            ) from wrong
        if execute:
            positions.store(plan)
    if as_json:
        print_json(
            {
                "group": group,
                "executed": execute,
                "partitions": [
                    {
                        "topic": each.topic,
                        "partition": each.partition,
                        "before": before.get(each),
                        "after": plan[each],
                    }
                    for each in partitions
                ],
            }
        )
        return
    print_table(
        ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
        ((*each, before.get(each), plan[each]) for each in partitions),
    )
    if not execute:
        click.echo("Nothing was changed; --execute does it.")


def _as_json(
    found: GroupDescription, lags: list[PartitionLag], owners: dict[TopicPartition, str]
) -> dict[str, Any]:
    return {
        "group": found.group,
        "type": found.group_type,
        "state": found.state,
        "epoch": found.epoch,
        "assignment_epoch": found.assignment_epoch,
        "protocol_type": found.protocol_type,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "topics": list(each.subscribed),
                "pattern": each.pattern,
                "protocol": each.protocol,
                "epoch": each.epoch,
                "partitions": [list(partition) for partition in each.assigned],
                "to_give_up": [list(partition) for partition in each.to_give_up],
                "to_come": [list(partition) for partition in each.to_come],
            }
            for each in found.members
        ],
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": None if each.committed is None else each.committed.offset,
                "end": each.end,
                "lag": each.lag,
                "member": owners.get(each.partition),
            }
            for each in lags
        ],
    }
