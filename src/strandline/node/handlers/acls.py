"""CreateAcls, DescribeAcls and DeleteAcls; any broker answers them, as with Kafka's AclAuthorizer.

Without an authorizer the answer is SECURITY_DISABLED: ACLs that nothing follows would be a trap.
An answer is given when this broker follows the change; the others hear of it a moment later.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any, Final, TypeAlias, TypeVar

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.authorization.filters import AclFilter
from strandline.cluster.controller import Decision, Refusal, matching_acls
from strandline.cluster.controller import create_acls as decide_creation
from strandline.cluster.controller import delete_acls as decide_deletion
from strandline.cluster.image import ClusterImage
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.controller import Controller
from strandline.node.handlers.batching import InBatches
from strandline.node.handlers.item_by_item import ItemByItem
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.protocol.messages import create_acls, delete_acls, describe_acls
from strandline.types import Instant

NO_AUTHORIZER: Final = "No Authorizer is configured."
_OfFilters: TypeAlias = dict[int, Refusal | tuple[AclBinding, ...]]
"""What becomes of some patterns, for each filter that means one, by its place."""

_Word = TypeVar("_Word", ResourceType, PatternType, Operation, Permission)


class AclsHandler:
    """Answers the three APIs, versions 1 to 3."""

    def __init__(self, metadata: Metadata, controller: Controller, *, is_enabled: bool) -> None:
        """`is_enabled`: there is an authorizer."""
        self._metadata = metadata
        self._controller = controller
        self._is_enabled = is_enabled

    def describe(self, request: Request[describe_acls.DescribeAclsRequest], now: Instant) -> None:
        """List the ACLs that the filter means."""
        del now
        try:
            wanted = self._filter(request.body)
        except ProtocolError as error:
            request.reply(
                describe_acls.DescribeAclsResponse(
                    error_code=error.code, error_message=error.message
                )
            )
            return
        response = describe_acls.DescribeAclsResponse(error_message=None)
        found = matching_acls(self._metadata.image, wanted)
        for resource, bindings in groupby(found, lambda binding: binding.resource):
            response.resources.append(
                describe_acls.DescribeAclsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    pattern_type=resource.pattern,
                    acls=[
                        describe_acls.AclDescription(
                            principal=entry.principal,
                            host=entry.host,
                            operation=entry.operation,
                            permission_type=entry.permission,
                        )
                        for _, entry in bindings
                    ],
                )
            )
        request.reply(response)

    def create(self, request: Request[create_acls.CreateAclsRequest], now: Instant) -> None:
        """Add ACLs; one that cannot be keeps no other from being added."""
        asked = ItemByItem(request.body.creations, self._binding)

        def reply(outcomes: Sequence[Refusal | None]) -> None:
            request.reply(
                create_acls.CreateAclsResponse(
                    results=[
                        create_acls.AclCreationResult(
                            error_code=refusal.code if refusal else ErrorCode.NONE,
                            error_message=refusal.message if refusal else None,
                        )
                        for refusal in outcomes
                    ]
                )
            )

        asked.carry_out(self._controller, decide_creation, reply, key=_resource_of, now=now)

    def delete(self, request: Request[delete_acls.DeleteAclsRequest], now: Instant) -> None:
        """Delete the ACLs that the filters mean, and tell them."""
        asked = ItemByItem(request.body.filters, self._filter)

        def reply(results: Sequence[Refusal | tuple[AclBinding, ...]]) -> None:
            request.reply(
                delete_acls.DeleteAclsResponse(filter_results=[_deleted(each) for each in results])
            )

        # One filter may mean very many ACLs: they are deleted so many patterns at a time.
        meant_by: dict[ResourcePattern, set[int]] = {}
        for number, wanted in enumerate(asked.wishes):
            for binding in matching_acls(self._metadata.image, wanted):
                meant_by.setdefault(binding.resource, set()).add(number)

        def decide(image: ClusterImage, some: Sequence[ResourcePattern]) -> Decision[_OfFilters]:
            decision = decide_deletion(image, asked.wishes, some)
            found: _OfFilters = {n: each for n, each in enumerate(decision.results) if each}
            return Decision((found,), decision.operations)

        def done(results: Sequence[_OfFilters], at: Instant) -> None:
            del at
            deleted: list[list[AclBinding]] = [[] for _ in asked.wishes]
            refusals: dict[int, Refusal] = {}
            for number, outcome in chain.from_iterable(result.items() for result in results):
                if isinstance(outcome, Refusal):
                    refusals[number] = outcome
                else:
                    deleted[number] += outcome
            reply(asked.outcomes(refusals.get(n) or tuple(each) for n, each in enumerate(deleted)))

        def refused(pattern: ResourcePattern, refusal: Refusal) -> _OfFilters:
            return dict.fromkeys(meant_by[pattern], refusal)

        InBatches(
            self._controller, decide, sorted(meant_by), key=_itself, refused=refused
        ).carry_out(done=done, now=now)

    def _check_enabled(self) -> None:
        if not self._is_enabled:
            raise ProtocolError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)

    def _binding(self, creation: create_acls.AclCreation) -> AclBinding:
        self._check_enabled()
        return AclBinding(
            ResourcePattern(
                _word(ResourceType, creation.resource_type),
                creation.resource_name,
                _word(PatternType, creation.resource_pattern_type),
            ),
            AclEntry(
                creation.principal,
                creation.host,
                _word(Operation, creation.operation),
                _word(Permission, creation.permission_type),
            ),
        )

    def _filter(self, asked: Any) -> AclFilter:
        """The filter of a request; both APIs have fields of the same names."""
        self._check_enabled()
        return AclFilter(
            _word(ResourceType, asked.resource_type_filter),
            asked.resource_name_filter,
            _word(PatternType, asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            _word(Operation, asked.operation),
            _word(Permission, asked.permission_type),
        )


def _resource_of(binding: AclBinding) -> ResourcePattern:
    return binding.resource


def _itself(pattern: ResourcePattern) -> ResourcePattern:
    return pattern


def _word(kind: type[_Word], number: int) -> _Word:
    try:
        return kind(number)
    except ValueError:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"There is no {kind.__name__} with the number {number}."
        ) from None


def _deleted(result: Refusal | tuple[AclBinding, ...]) -> delete_acls.DeleteAclsFilterResult:
    if isinstance(result, Refusal):
        return delete_acls.DeleteAclsFilterResult(
            error_code=result.code, error_message=result.message
        )
    return delete_acls.DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            delete_acls.DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for resource, entry in result
        ],
    )
