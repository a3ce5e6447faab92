"""Decisions from ACLs: Kafka's rules one by one, and every mix of them against a naive twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    of_word,
)
from strandline.authorization.authorizer import Authorizer, parse_super_users
from strandline.authorization.filters import AclFilter
from strandline.types import USER, Principal

ALICE = Principal(USER, "alice")
BOB = Principal(USER, "bob")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def authorizer(*bindings: AclBinding, is_open: bool = False) -> Authorizer:
    made = Authorizer(
        super_users=frozenset({Principal(USER, "root")}), allow_everyone_if_no_acl_found=is_open
    )
    for resource in {each.resource for each in bindings}:
        made.replace(resource, tuple(e.entry for e in bindings if e.resource == resource))
    return made


def acl(
    operation: Operation = READ,
    name: str = "orders",
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = ALLOW,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, pattern), AclEntry(principal, host, operation, permission)
    )


def may(
    by: Authorizer,
    operation: Operation = READ,
    name: str = "orders",
    principal: Principal = ALICE,
    host: str = "10.0.0.1",
) -> bool:
    return by.authorize(principal, host, operation, TOPIC, name).is_allowed


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),  # as Java writes it
        ("2001:DB8:0::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_hosts_are_compared_as_addresses(written: str, host: str) -> None:
    by = authorizer(acl(), acl(host=written, permission=DENY))
    assert not may(by, host=host)
    assert not by.authorize_by_type(ALICE, host, READ, TOPIC).is_allowed
    assert f"from {written}" in by.authorize(ALICE, host, READ, TOPIC, "orders").reason
    assert may(by, host="2001:db8::2")


def test_nothing_is_allowed_without_an_acl_but_to_super_users() -> None:
    assert not may(authorizer())
    assert may(authorizer(), principal=Principal(USER, "root"))
    assert may(authorizer(is_open=True))
    assert not may(authorizer(acl(principal="User:bob"), is_open=True))
    assert may(authorizer(acl(principal="User:bob"), is_open=True), name="payments")


def test_a_denial_wins_over_every_allowance_whatever_its_pattern() -> None:
    both = authorizer(
        acl(),
        acl(name="or", pattern=PatternType.PREFIXED, permission=DENY, principal="User:*"),
    )
    assert not may(both)
    assert may(both, principal=Principal(USER, "root"))
    denied_there = authorizer(acl(), acl(host="10.0.0.9", permission=DENY))
    assert may(denied_there)
    assert not may(denied_there, host="10.0.0.9")


@pytest.mark.parametrize(
    ("held", "implied"),
    [
        (READ, DESCRIBE),
        (WRITE, DESCRIBE),
        (Operation.DELETE, DESCRIBE),
        (Operation.ALTER, DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ],
)
def test_what_is_implied_by_an_allowance_and_not_by_a_denial(
    held: Operation, implied: Operation
) -> None:
    assert may(authorizer(acl(held)), implied)
    assert not may(authorizer(acl(implied)), held)
    assert may(authorizer(acl(implied), acl(held, permission=DENY)), implied)
    assert not may(authorizer(acl(Operation.CREATE)), DESCRIBE)


def test_all_means_every_operation_allowed_or_denied() -> None:
    assert may(authorizer(acl(Operation.ALL)), Operation.DESCRIBE_CONFIGS)
    assert not may(authorizer(acl(), acl(Operation.ALL, permission=DENY)))


def test_prefixes_and_the_wildcard_cover_names() -> None:
    prefixed = authorizer(acl(name="ord", pattern=PatternType.PREFIXED))
    assert may(prefixed)
    assert may(prefixed, name="ord")
    assert not may(prefixed, name="or")
    assert may(authorizer(acl(name="*")), name="any")
    assert not may(authorizer(acl(name="*", pattern=PatternType.PREFIXED)), name="any")
    prefixed.replace(ResourcePattern(TOPIC, "ord", PatternType.PREFIXED), ())
    assert not may(prefixed)


def test_a_decision_is_not_remembered_beyond_a_change() -> None:
    made = authorizer(acl())
    assert may(made)
    before = made.generation
    made.replace(ResourcePattern(TOPIC, "orders"), ())
    assert made.generation != before
    assert not may(made)
    made.replace_all({ResourcePattern(TOPIC, "orders"): (acl().entry,)})
    assert may(made)


def test_a_verdict_names_the_acl_that_decided() -> None:
    verdict = authorizer(acl(permission=DENY)).authorize(ALICE, "h", READ, TOPIC, "orders")
    assert verdict.reason == ("an ACL denies it: User:alice may not Read: Topic literal 'orders'")


def test_some_topic_may_be_written() -> None:
    def some(*bindings: AclBinding, is_open: bool = False) -> bool:
        return (
            authorizer(*bindings, is_open=is_open)
            .authorize_by_type(ALICE, "h", WRITE, TOPIC)
            .is_allowed
        )

    prefixed = PatternType.PREFIXED
    assert not some()
    assert some(is_open=True)
    assert some(acl(WRITE))
    assert some(acl(Operation.ALL, "*"))
    assert not some(acl(READ))
    assert not some(acl(WRITE), acl(WRITE, permission=DENY))
    assert not some(acl(WRITE), acl(WRITE, "ord", pattern=prefixed, permission=DENY))
    assert some(
        acl(WRITE, "o", pattern=prefixed), acl(WRITE, "or", pattern=prefixed, permission=DENY)
    )
    assert not some(acl(WRITE), acl(WRITE, "*", permission=DENY), is_open=True)
    assert not some(acl(WRITE, host="other"))
    assert not some(acl(WRITE, kind=GROUP))


def test_super_users_are_written_with_semicolons() -> None:
    assert parse_super_users(" User:alice; User:CN=bob,O=x ;") == {
        ALICE,
        Principal(USER, "CN=bob,O=x"),
    }
    with pytest.raises(ValueError, match="'alice' is not of the form User:name"):
        parse_super_users("alice")


def test_words_are_taken_in_all_of_kafkas_spellings() -> None:
    for word in ("TransactionalId", "TRANSACTIONAL_ID", "transactional-id"):
        assert of_word(ResourceType, word) is ResourceType.TRANSACTIONAL_ID
    with pytest.raises(ValueError, match="'x' is not one of Any, Deny, Allow"):
        of_word(Permission, "x")


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(type=GROUP), False),
        (AclFilter(name="ord"), True),
        (AclFilter(name="orders"), False),
        (AclFilter(name="orders", pattern=PatternType.MATCH), True),
        (AclFilter(name="ord", pattern=PatternType.LITERAL), False),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="*", operation=READ, permission=ALLOW), True),
        (AclFilter(operation=WRITE), False),
        (AclFilter(permission=DENY), False),
    ],
)
def test_filters(wanted: AclFilter, matches: bool) -> None:
    assert wanted.matches(acl(name="ord", pattern=PatternType.PREFIXED)) is matches


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
BINDINGS = st.builds(
    acl,
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALL, Operation.ALTER_CONFIGS]),
    NAMES,
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"]),
    host=st.sampled_from(["*", "h", "other"]),
    permission=st.sampled_from([ALLOW, ALLOW, DENY]),
    kind=st.sampled_from([TOPIC, TOPIC, GROUP]),
)


def naive(
    bindings: list[AclBinding],
    principal: Principal,
    operation: Operation,
    name: str,
    *,
    is_open: bool,
) -> bool:
    """The rules of the module's docstring, in as many steps as they have sentences."""
    if principal.name == "root":
        return True
    covering = []
    for binding in bindings:
        resource = binding.resource
        is_literal = resource.pattern is PatternType.LITERAL
        if resource.type is TOPIC and (
            (is_literal and resource.name in (name, "*"))
            or (not is_literal and name[: len(resource.name)] == resource.name)
        ):
            covering.append(binding.entry)
    if not covering:
        return is_open
    mine = [
        each
        for each in covering
        if each.principal in (f"{principal.type}:{principal.name}", "User:*")
        and each.host in ("h", "*")
    ]
    if any(e.permission is DENY and e.operation in (operation, Operation.ALL) for e in mine):
        return False
    sufficient = {operation, Operation.ALL}
    if operation is DESCRIBE:
        sufficient |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        sufficient.add(Operation.ALTER_CONFIGS)
    return any(e.permission is ALLOW and e.operation in sufficient for e in mine)


@given(
    st.lists(BINDINGS, max_size=8),
    st.lists(BINDINGS, max_size=3),
    st.sampled_from([ALICE, BOB, Principal(USER, "root")]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
    NAMES,
    st.booleans(),
)
def test_decisions_are_those_of_a_naive_twin(
    bindings: list[AclBinding],
    removed: list[AclBinding],
    principal: Principal,
    operation: Operation,
    name: str,
    is_open: bool,
) -> None:
    made = authorizer(*bindings, *removed, is_open=is_open)
    for resource in {each.resource for each in removed}:
        made.replace(resource, tuple(e.entry for e in bindings if e.resource == resource))
    decided = made.authorize(principal, "h", operation, TOPIC, name)
    assert decided.is_allowed == naive(bindings, principal, operation, name, is_open=is_open)
    assert decided == made.authorize(principal, "h", operation, TOPIC, name)
    assert operation not in made.operations(BOB, "nowhere", TOPIC, name) or (
        made.authorize(BOB, "nowhere", operation, TOPIC, name).is_allowed
    )


def test_decisions_about_names_that_no_topic_has_are_not_remembered() -> None:
    """They are as long as clients like."""
    found = authorizer(acl(pattern=PatternType.PREFIXED, name="o"))
    for length in (249, 250, 32_000):
        assert found.authorize(ALICE, "10.0.0.1", READ, TOPIC, "o" * length).is_allowed
    assert [len(key[-1]) for key in found._remembered] == [249]
