"""Features over the wire: who changes them, what ApiVersions says, what older brokers mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.cluster.controller import register_broker
from strandline.cluster.features import TRANSACTION_VERSION
from strandline.cluster.store import SessionId
from strandline.cluster.znodes import BrokerNode, Endpoint
from strandline.errors import ErrorCode
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.types import BrokerId
from tests.node.cluster_world import ClusterWorld
from tests.node.followers import Cluster

UP, DOWN = 1, 2


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(2)
    yield world
    world.check()


def versions(client: Any, version: int = 4) -> Any:
    return client.ask(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), version
    )


def level(client: Any) -> int:
    found = {each.name: each.max_version_level for each in versions(client).finalized_features}
    return int(found.get(TRANSACTION_VERSION, 0))


def update(level: int, kind: int, **more: Any) -> UpdateFeaturesRequest:
    key = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(feature_updates=[key], **more)


def test_the_controller_changes_levels_and_all_brokers_tell(world: ClusterWorld) -> None:
    controller = world.controller.connect()
    other = world[3 - world.controller.broker_id].connect()
    assert level(controller) == level(other) == 2
    refused = other.ask(update(1, DOWN), 2)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    refused = controller.ask(update(1, UP), 1)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert TRANSACTION_VERSION in refused.error_message
    assert controller.ask(update(1, DOWN, validate_only=True), 2).error_code == ErrorCode.NONE
    assert level(controller) == 2
    before = versions(other).finalized_features_epoch
    done = controller.ask(update(1, DOWN), 1)
    assert done.error_code == ErrorCode.NONE
    assert [(each.feature, each.error_code) for each in done.results] == [(TRANSACTION_VERSION, 0)]
    world.run_until(lambda: level(other) == 1)
    assert versions(other).finalized_features_epoch > before
    assert controller.ask(update(0, DOWN), 2).error_code == ErrorCode.NONE
    assert level(controller) == 0
    assert controller.ask(update(2, UP), 2).error_code == ErrorCode.NONE
    assert level(controller) == 2


def test_version_0_says_downgrade_in_another_way(world: ClusterWorld) -> None:
    controller = world.controller.connect()
    key = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=1, allow_downgrade=False)
    request = UpdateFeaturesRequest(feature_updates=[key])
    assert controller.ask(request, 0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    key.allow_downgrade = True
    assert controller.ask(request, 0).error_code == ErrorCode.NONE
    assert level(controller) == 1


def test_old_clients_are_shown_no_level_0(world: ClusterWorld) -> None:
    client = world[1].connect()
    assert {each.min_version for each in versions(client, 3).supported_features} == {1}
    assert {each.min_version for each in versions(client, 4).supported_features} == {0}


def test_a_broker_without_transactions_holds_them_back_while_it_runs() -> None:
    cluster = Cluster()
    client = cluster.world.connect()
    assert level(client) == 2
    old = BrokerNode(BrokerId(9), (Endpoint("PLAINTEXT", "localhost", 9101),))
    image = cluster.world.node.metadata.image
    cluster.write(register_broker(image, old), SessionId(9))
    assert level(client) == 0
    asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["transfers"])
    (found,) = client.ask(asked, 6).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "release without transactions" in found.error_message
