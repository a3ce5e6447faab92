"""Permissions of what concerns the cluster as a whole: each needs one, and is refused whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.node.authorization.authority import Access
from strandline.node.authorization.rule import MESSAGES, Need, Rule
from strandline.node.log_dirs_messages import places_answer, wanted_places
from strandline.node.request import Request
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.messages import (
    alter_client_quotas,
    create_acls,
    delete_acls,
    describe_client_quotas,
)
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from strandline.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from strandline.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from strandline.protocol.messages.inspect import InspectRequest

_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_MESSAGE: Final = MESSAGES[_DENIED]
_SUBJECTS_OF_ADMINISTRATORS: Final = frozenset({"compact", "faults", "ledger"})
"""They change something, or hand out records, of whichever topic."""


def _cluster(operation: Operation, response: Callable[[Request[Any]], Any]) -> Rule:
    def guard(access: Access, request: Request[Any]) -> bool:
        if access.may_cluster(operation):
            return True
        request.reply(response(request))
        return False

    return Rule(guard, (Need(operation, ResourceType.CLUSTER, _DENIED),))


def _with_code(request: Request[Any]) -> Any:
    """A response whose code is about the whole."""
    return KNOWN[request.api_key].response_class(error_code=_DENIED)


def _with_sentence(request: Request[Any]) -> Any:
    return KNOWN[request.api_key].response_class(error_code=_DENIED, error_message=_MESSAGE)


def _elections(request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Which partitions there are is told only to a client that named them."""
    return ElectLeadersResponse(
        error_code=_DENIED if request.version else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=_DENIED, error_message=_MESSAGE)
                    for number in topic.partitions
                ],
            )
            for topic in request.body.topic_partitions or ()
        ],
    )


def _without_quotas(
    _: Request[describe_client_quotas.DescribeClientQuotasRequest],
) -> describe_client_quotas.DescribeClientQuotasResponse:
    return describe_client_quotas.DescribeClientQuotasResponse(
        error_code=_DENIED, error_message=_MESSAGE, entries=None
    )


def _quotas(
    request: Request[alter_client_quotas.AlterClientQuotasRequest],
) -> alter_client_quotas.AlterClientQuotasResponse:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.EntryResult(
                error_code=_DENIED, error_message=_MESSAGE, entity=entry.entity
            )
            for entry in request.body.entries
        ]
    )


def _creations(request: Request[create_acls.CreateAclsRequest]) -> create_acls.CreateAclsResponse:
    return create_acls.CreateAclsResponse(
        results=[
            create_acls.AclCreationResult(error_code=_DENIED, error_message=_MESSAGE)
            for _ in request.body.creations
        ]
    )


def _deletions(request: Request[delete_acls.DeleteAclsRequest]) -> delete_acls.DeleteAclsResponse:
    return delete_acls.DeleteAclsResponse(
        filter_results=[
            delete_acls.DeleteAclsFilterResult(error_code=_DENIED, error_message=_MESSAGE)
            for _ in request.body.filters
        ]
    )


def _credentials(
    request: Request[AlterUserScramCredentialsRequest],
) -> AlterUserScramCredentialsResponse:
    body = request.body
    users = [each.name for each in body.deletions] + [each.name for each in body.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=_DENIED, error_message=_MESSAGE)
            for user in dict.fromkeys(users)
        ]
    )


def _log_dirs(request: Request[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    return places_answer(dict.fromkeys(wanted_places(request.body), _DENIED))


def _inspect(access: Access, request: Request[InspectRequest]) -> bool:
    is_looking = request.body.subject not in _SUBJECTS_OF_ADMINISTRATORS
    if access.may_cluster(Operation.DESCRIBE if is_looking else Operation.ALTER):
        return True
    request.reply(_with_sentence(request))
    return False


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.SASL_HANDSHAKE: Rule(None),
    ApiKey.SASL_AUTHENTICATE: Rule(None),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(Operation.DESCRIBE, _with_code),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(Operation.ALTER, _log_dirs),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(Operation.DESCRIBE_CONFIGS, _with_code),
    ApiKey.ELECT_LEADERS: _cluster(Operation.ALTER, _elections),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(Operation.ALTER, _with_sentence),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(Operation.DESCRIBE, _with_sentence),
    ApiKey.UPDATE_FEATURES: _cluster(Operation.ALTER, _with_sentence),
    ApiKey.UNREGISTER_BROKER: _cluster(Operation.ALTER, _with_sentence),
    ApiKey.ALTER_PARTITION: _cluster(Operation.CLUSTER_ACTION, _with_code),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(Operation.DESCRIBE_CONFIGS, _without_quotas),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(Operation.ALTER_CONFIGS, _quotas),
    ApiKey.DESCRIBE_ACLS: _cluster(Operation.DESCRIBE, _with_sentence),
    ApiKey.CREATE_ACLS: _cluster(Operation.ALTER, _creations),
    ApiKey.DELETE_ACLS: _cluster(Operation.ALTER, _deletions),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(Operation.DESCRIBE, _with_sentence),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(Operation.ALTER, _credentials),
    ApiKey.INSPECT: Rule(
        _inspect,
        (
            Need(Operation.DESCRIBE, ResourceType.CLUSTER, _DENIED, "to look"),
            Need(
                Operation.ALTER,
                ResourceType.CLUSTER,
                _DENIED,
                "to compact, read removed records, inject faults",
            ),
        ),
    ),
}
