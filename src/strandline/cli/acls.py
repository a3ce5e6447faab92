"""`strandline acls`: who may do what, in the words of kafka-acls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, product
from typing import Any, Final

import click

from strandline.authorization.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    of_word,
)
from strandline.authorization.filters import AclFilter, exactly
from strandline.cli.acl_matching import why_never
from strandline.cli.confirming import confirm
from strandline.cli.connecting import F, bootstrap_option, json_option, open_cluster
from strandline.cli.output import counted, print_json, print_table
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin_acls import Acl, AclAdmin

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID: Final = ResourceType.TRANSACTIONAL_ID
_PRODUCER: Final = {
    _TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    _ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER: Final = {_TOPIC: (Operation.READ, Operation.DESCRIBE), _GROUP: (Operation.READ,)}
"""What --producer and --consumer stand for, as in kafka-acls."""


@click.group(cls=SentencesGroup)
def acls() -> None:
    """Show and change who may do what; the broker needs an authorizer."""


@dataclass(frozen=True, slots=True)
class _Resources:
    """The resources that the options name."""

    names: dict[ResourceType, tuple[str, ...]]
    pattern: PatternType

    def __bool__(self) -> bool:
        return any(self.names.values())

    def patterns(self, kind: ResourceType) -> Iterator[ResourcePattern]:
        """Those of one type. The cluster has one name, which is no prefix."""
        for name in self.names[kind]:
            pattern = PatternType.LITERAL if kind is _CLUSTER else self.pattern
            yield ResourcePattern(kind, name, pattern)

    def all(self) -> Iterator[ResourcePattern]:
        return chain.from_iterable(self.patterns(kind) for kind in self.names)


def _resource_options(command: F) -> F:
    for option, metavar, meaning in reversed(
        (
            ("--topic", "NAME", "A topic; * for all. Repeatable, as the next ones."),
            ("--group", "NAME", "A consumer group."),
            ("--transactional-id", "ID", "A transactional id."),
            ("--delegation-token", "TOKEN", "A delegation token."),
            ("--user-principal", "USER", "A user, whose tokens may be made or seen."),
        )
    ):
        command = click.option(option, metavar=metavar, multiple=True, help=meaning)(command)
    return click.option("--cluster", is_flag=True, help="The cluster.")(command)


def _pattern_option(*allowed: PatternType) -> Callable[[F], F]:
    return click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice([each.word.lower() for each in allowed]),
        default=PatternType.LITERAL.word.lower(),
        show_default=True,
        help="Whether names are whole names or prefixes; match: whatever covers the name.",
    )


def _entry_options(command: F) -> F:
    for option, metavar, meaning in reversed(
        (
            ("--allow-principal", "TYPE:NAME", "Who may: User:alice, or User:* for everyone."),
            ("--deny-principal", "TYPE:NAME", "Who may not, which is stronger."),
            ("--allow-host", "ADDRESS", "From where they may; everywhere if left out."),
            ("--deny-host", "ADDRESS", "From where they may not; from nowhere if left out."),
            ("--operation", "NAME", "Read, Write, ..., or All, which is the default."),
        )
    ):
        command = click.option(option, metavar=metavar, multiple=True, help=meaning)(command)
    command = click.option(
        "--producer", is_flag=True, help="What producers to --topic need; --transactional-id, too."
    )(command)
    command = click.option(
        "--consumer", is_flag=True, help="What consumers of --topic in --group need."
    )(command)
    return click.option(
        "--idempotent", is_flag=True, help="With --producer: IdempotentWrite of the cluster."
    )(command)


@acls.command(name="list")
@_resource_options
@_pattern_option(PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)
@click.option("--principal", metavar="TYPE:NAME", help="Only those of one principal.")
@bootstrap_option
@json_option
def list_acls(
    pattern: str, principal: str | None, bootstrap: str | None, as_json: bool, **options: Any
) -> None:
    """List ACLs: all of them, or those of the resources that are named."""
    resources = _resources(pattern, options)
    filters = [AclFilter(*each, principal=principal) for each in resources.all()]
    with open_cluster(bootstrap) as client:
        admin = AclAdmin(client)
        found = [
            binding
            for each in filters or [AclFilter(principal=principal)]
            for binding in admin.describe(each)
        ]
    _print(dict.fromkeys(found), as_json=as_json)


@acls.command()
@_resource_options
@_pattern_option(PatternType.LITERAL, PatternType.PREFIXED)
@_entry_options
@bootstrap_option
def add(pattern: str, bootstrap: str | None, **options: Any) -> None:
    """Allow or deny principals operations on resources."""
    wanted = list(dict.fromkeys(_bindings(_resources(pattern, options), options)))
    for never in filter(None, map(why_never, wanted)):
        raise click.UsageError(never)
    with open_cluster(bootstrap) as client:
        outcomes = AclAdmin(client).create(wanted)
    refused = [error for error in outcomes if error is not None]
    if refused:
        raise refused[0]
    click.echo(f"Added {counted(len(wanted), 'ACL')}.")


@acls.command()
@_resource_options
@_pattern_option(PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)
@_entry_options
@click.option("--yes", is_flag=True, help="Do not ask before all ACLs of a resource are removed.")
@bootstrap_option
@json_option
def remove(pattern: str, yes: bool, bootstrap: str | None, as_json: bool, **options: Any) -> None:
    """Remove ACLs: those that the options describe, or, without a principal, all of a resource."""
    resources = _resources(pattern, options)
    if options["allow_principal"] or options["deny_principal"]:
        bindings = _bindings(resources, options)
        filters = [exactly(each) for each in bindings]
    else:
        if not resources:
            raise click.UsageError("Name a resource: --topic, --group, --cluster, ...")
        filters = [AclFilter(*each) for each in resources.all()]
        if not yes:
            confirm("Remove all ACLs of these resources?")
    with open_cluster(bootstrap) as client:
        removed = AclAdmin(client).delete(filters)
    if as_json:
        _print(removed, as_json=True)
    else:
        click.echo(f"Removed {counted(len(removed), 'ACL')}.")


def _resources(pattern: str, options: dict[str, Any]) -> _Resources:
    return _Resources(
        {
            _TOPIC: options["topic"],
            _GROUP: options["group"],
            _CLUSTER: (CLUSTER_NAME,) if options["cluster"] else (),
            _ID: options["transactional_id"],
            ResourceType.DELEGATION_TOKEN: options["delegation_token"],
            ResourceType.USER: options["user_principal"],
        },
        of_word(PatternType, pattern),
    )


def _bindings(resources: _Resources, options: dict[str, Any]) -> Iterator[AclBinding]:
    """The ACLs that the options describe. Raises `click.UsageError`."""
    entries = list(_who(options))
    if not entries:
        raise click.UsageError("Say who: --allow-principal User:NAME or --deny-principal.")
    for resource, operation in _what(resources, options):
        for principal, host, permission in entries:
            yield AclBinding(resource, AclEntry(principal, host, operation, permission))


def _who(options: dict[str, Any]) -> Iterator[tuple[str, str, Permission]]:
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals, hosts = options[f"{word}_principal"], options[f"{word}_host"]
        if hosts and not principals:
            raise click.UsageError(f"--{word}-host is of --{word}-principal.")
        for principal, host in product(principals, hosts or (WILDCARD,)):
            yield principal, host, permission


def _what(
    resources: _Resources, options: dict[str, Any]
) -> Iterator[tuple[ResourcePattern, Operation]]:
    roles = [
        role
        for role, is_wanted in ((_PRODUCER, options["producer"]), (_CONSUMER, options["consumer"]))
        if is_wanted
    ]
    if roles and options["operation"]:
        raise click.UsageError("--producer and --consumer say which operations: leave them out.")
    if roles and options["deny_principal"]:
        raise click.UsageError("--producer and --consumer allow: they go with --allow-principal.")
    if options["idempotent"] and not options["producer"]:
        raise click.UsageError("--idempotent is of --producer.")
    if options["consumer"] and not (resources.names[_TOPIC] and resources.names[_GROUP]):
        raise click.UsageError("--consumer needs --topic and --group.")
    if options["producer"] and not resources.names[_TOPIC]:
        raise click.UsageError("--producer needs --topic.")
    if roles:
        for role in roles:
            for kind, operations in role.items():
                yield from product(resources.patterns(kind), operations)
        if options["idempotent"]:
            yield ResourcePattern(_CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE
        return
    if not resources:
        raise click.UsageError("Name a resource: --topic, --group, --cluster, ...")
    try:
        asked = [of_word(Operation, each) for each in options["operation"]]
    except ValueError as error:
        raise click.UsageError(f"--operation: {error}") from None
    yield from product(resources.all(), asked or [Operation.ALL])


def _print(found: Iterable[AclBinding], *, as_json: bool) -> None:
    rows = sorted(map(Acl.of, found), key=lambda each: (each.resource_type, each.resource, each))
    if as_json:
        print_json([asdict(each) for each in rows])
        return
    if not rows:
        click.echo("There are no such ACLs.")
        return
    print_table(
        ("RESOURCE", "PATTERN", "NAME", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"),
        (
            (
                each.resource_type,
                each.pattern.lower(),
                each.resource,
                each.principal,
                each.host,
                each.operation,
                each.permission.lower(),
            )
            for each in rows
        ),
    )
