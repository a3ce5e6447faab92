"""Every served API asked as anonymous, as a user without, and with exactly one permission."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from strandline.authorization.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.authorization.filters import AclFilter
from strandline.cluster.controller import create_acls, delete_acls
from strandline.cluster.controller.delegation_tokens import create_token
from strandline.cluster.znodes import TokenNode
from strandline.errors import ErrorCode
from strandline.node.authorization.document import page
from strandline.node.authorization.guarded import RULES
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.messages import add_partitions_to_txn as adding
from strandline.protocol.messages import create_topics as creating
from strandline.protocol.messages import delete_topics as deleting
from strandline.protocol.messages import init_producer_id as ids
from strandline.protocol.messages import metadata as describing
from strandline.types import ANONYMOUS, USER, Principal
from tests.node.authorized_requests import CASES, NAMES, TOKEN_ID, Case
from tests.node.world import World
from tests.sim.mutants.authorizing import check_left_out

ROOT, ALICE = Principal(USER, "root"), Principal(USER, "alice")
REFUSALS = frozenset(each for each in ErrorCode if each.name.endswith("AUTHORIZATION_FAILED"))
ON = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:root",
    "transaction.state.log.num.partitions=2",
    "delegation.token.secret.key=planted",
)


class Secured:
    """A node with an authorizer, a topic, a group and a transaction that is open."""

    def __init__(self, *settings: str) -> None:
        self.world = world = World(*ON, *settings)
        self.root = world.connect(ROOT)
        topics = [
            creating.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("orders", "payments")
        ]
        self.ask_root(creating.CreateTopicsRequest(topics=topics))
        self.topic_id: UUID = world.node.metadata.image.topics["orders"].topic_id
        for case in CASES:
            if case.api is ApiKey.FIND_COORDINATOR:
                self.ask_root(case.make(UUID(int=0)), case.version)

    def ask_root(self, message: Any, version: int | None = None) -> Any:
        key = key_of(message)
        return self.root.ask(message, KNOWN[key].versions.highest if version is None else version)

    def allow(self, *permissions: tuple[Operation, ResourceType, str]) -> None:
        """Alice may do these, and nothing else."""
        self.change(delete_acls, [AclFilter()])
        self.change(
            create_acls,
            [
                AclBinding(
                    ResourcePattern(kind, name),
                    AclEntry(str(ALICE), "*", operation, Permission.ALLOW),
                )
                for operation, kind, name in permissions
            ],
        )

    def change(self, decide: Any, what: Any) -> None:
        operations = decide(self.world.node.metadata.image, what).operations
        if operations:
            changes = self.world.tree.multi(operations).changes
            assert changes is not None
            self.world.metadata_changed(changes)

    def ask(self, case: Case, principal: Principal) -> Any:
        client = self.world.connect(principal)
        client.connection.client_host = "127.0.0.1"
        client.connection.protocol = "SASL_SSL"  # requests about tokens are not taken by others
        answer = client.ask(case.make(self.topic_id), case.version)
        if case.api is ApiKey.CREATE_TOPICS:
            for topic in answer.topics:
                topic.topic_id = UUID(int=0)  # a new one each time: no two answers were alike
        client.close()
        return answer


def key_of(message: Any) -> int:
    name = type(message).__name__.removesuffix("Request")
    return next(key for key, api in KNOWN.items() if api.name == name)


def codes(answer: Any) -> set[ErrorCode]:
    """Every code anywhere in an answer."""
    found: set[ErrorCode] = set()
    if isinstance(answer, list):
        return set().union(*map(codes, answer)) if answer else set()
    for name in getattr(type(answer), "__slots__", ()) or vars(answer):
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            found.add(ErrorCode(value))
        elif isinstance(value, list) or hasattr(value, "error_code"):
            found |= codes([each for each in value if not isinstance(each, int | str | bytes)])
    return found


@pytest.fixture
def secured() -> Iterator[Secured]:
    made = Secured()
    yield made
    made.world.check()


def test_there_is_a_case_for_every_need_of_every_served_api(secured: Secured) -> None:
    assert set(secured.world.node.routes.served) <= {*RULES}
    assert set(NEEDS) <= {(case.api, *case.permission) for case in CASES}


def answer_of(case: Case) -> ErrorCode | None:
    """What the rule says of a request without the permission."""
    needs = RULES[case.api].needs
    for need in needs:
        if (need.operation, need.resource) == case.permission:
            return need.answer
    # One that is as good as another: the answer is of that one.
    return needs[-1].answer


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exactly_that_permission_decides(secured: Secured, case: Case) -> None:
    check(secured, case)


NEEDS = sorted(
    {(key, need.operation, need.resource) for key, rule in RULES.items() for need in rule.needs}
)


@pytest.mark.parametrize(
    ("api", "operation", "kind"),
    NEEDS,
    ids=[f"{api.name} {operation.word} {kind.word}" for api, operation, kind in NEEDS],
)
def test_a_check_that_is_left_out_is_missed(
    api: ApiKey, operation: Operation, kind: ResourceType
) -> None:
    for case in CASES:
        if (case.api, *case.permission) == (api, operation, kind):
            secured = Secured()
            with check_left_out(api, operation, kind)():
                try:
                    check(secured, case)
                except AssertionError:
                    return
    pytest.fail("Nothing has missed it.")


def check(secured: Secured, case: Case) -> None:
    """Ask as anonymous, as a user without, and with the permission."""
    expected = answer_of(case)
    given = [(operation, kind, case_name(case, kind)) for operation, kind in case.given]
    prepare(secured, case)
    secured.allow(*given)
    anonymous = secured.ask(case, ANONYMOUS)
    without = secured.ask(case, ALICE)
    operation, kind = case.permission
    if case.api is ApiKey.INSPECT and operation is Operation.ALTER:
        given.append((Operation.READ, ResourceType.TOPIC, "orders"))  # is not what it needs
        secured.allow(*given)
        assert secured.ask(case, ALICE) == without
    secured.allow(*given, (operation, kind, case.resource))
    having = secured.ask(case, ALICE)
    if expected is None:
        assert not codes(without) & REFUSALS - {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert without != having
        assert not codes(having) & REFUSALS
        return
    assert expected in codes(without), without
    assert codes(anonymous) & REFUSALS, anonymous
    assert not codes(having) & REFUSALS, having


def case_name(case: Case, kind: ResourceType) -> str:
    if case.api in (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE):
        return {ResourceType.GROUP: "k"}.get(kind, NAMES[kind])
    if case.api.name.startswith("SHARE_") or "SHARE_GROUP_OFFSETS" in case.api.name:
        return {ResourceType.GROUP: "s"}.get(kind, NAMES[kind])
    if case.name == "new" and kind is ResourceType.TOPIC:
        return "new"
    if case.api is ApiKey.DESCRIBE_TRANSACTIONS:
        return {ResourceType.TRANSACTIONAL_ID: "open"}.get(kind, NAMES[kind])
    return NAMES[kind]


def prepare(secured: Secured, case: Case) -> None:
    """Bring about what the case lists or describes."""
    if case.api in (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS):
        got = secured.ask_root(
            ids.InitProducerIdRequest(transactional_id="open", transaction_timeout_ms=1000), 4
        )
        joined = secured.ask_root(
            adding.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="open",
                v3_and_below_producer_id=got.producer_id,
                v3_and_below_producer_epoch=got.producer_epoch,
                v3_and_below_topics=[adding.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
            ),
            3,
        )
        assert codes(joined) <= {ErrorCode.NONE}
    if case.api in (ApiKey.LIST_GROUPS, ApiKey.OFFSET_DELETE):
        for other in CASES:
            if other.api is ApiKey.OFFSET_COMMIT and other.version == 8:
                secured.ask_root(other.make(secured.topic_id), 8)
    if case.api is ApiKey.DESCRIBE_DELEGATION_TOKEN:
        zoe = Principal(USER, "zoe")
        token = TokenNode(
            TOKEN_ID, zoe, zoe, (), issued_ms=1, expires_ms=2**62, lives_until_ms=2**62
        )
        secured.change(create_token, token)
    if case.api.name.startswith("SHARE_") or "SHARE_GROUP_OFFSETS" in case.api.name:
        for other in CASES:
            if other.api is ApiKey.SHARE_GROUP_HEARTBEAT:
                joining = other.make(secured.topic_id)
                secured.ask_root(joining, 1)
    if case.api in (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS):
        joining.member_epoch = -1
        secured.ask_root(joining, 1)
    if case.api is ApiKey.SHARE_ACKNOWLEDGE:
        for other in CASES:
            if other.api is ApiKey.SHARE_FETCH:
                secured.ask_root(other.make(secured.topic_id), 2)
    if case.api is ApiKey.CONSUMER_GROUP_DESCRIBE:
        for other in CASES:
            if other.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
                secured.ask_root(other.make(secured.topic_id), 1)


@pytest.mark.parametrize(
    ("creates", "code"),
    [
        (True, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_create_is_asked_only_where_a_missing_topic_would_be_created(
    creates: bool, code: ErrorCode
) -> None:
    secured = Secured(f"auto.create.topics.enable={str(creates).lower()}")
    secured.allow((Operation.DESCRIBE, ResourceType.TOPIC, "later"))
    asked = describing.MetadataRequestTopic(name="later")
    request = describing.MetadataRequest(topics=[asked], allow_auto_topic_creation=True)
    [topic] = secured.world.connect(ALICE).ask(request, 12).topics
    assert (topic.name, topic.error_code) == ("later", code)
    secured.world.check()


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.ALL])
def test_who_may_delete_the_cluster_may_delete_its_topics(
    secured: Secured, operation: Operation
) -> None:
    named = deleting.DeleteTopicsRequest(topic_names=["payments"])
    by_id = deleting.DeleteTopicState(topic_id=secured.topic_id)
    alice = secured.world.connect(ALICE)
    secured.allow((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    [denied] = alice.ask(named, 5).responses
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    secured.allow((operation, ResourceType.CLUSTER, CLUSTER_NAME))
    answers = alice.ask(named, 5), alice.ask(deleting.DeleteTopicsRequest(topics=[by_id]), 6)
    deleted = [each for answer in answers for each in answer.responses]
    assert [(each.name, each.error_code) for each in deleted] == [("payments", 0), ("orders", 0)]


def test_the_page_is_what_the_command_writes() -> None:
    written = (Path(__file__).parents[2] / "docs" / "authorization.md").read_text("utf-8")
    assert written == page(), (
        "run: python -m strandline.node.authorization.document > docs/authorization.md"
    )
