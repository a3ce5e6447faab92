"""Levels of features: what is in force, and which changes are allowed (KIP-584, KIP-778)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.cluster.controller import (
    FeatureUpdate,
    UpdateKind,
    unregister_broker,
    update_features,
)
from strandline.cluster.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    knows_transactions,
    level_of,
    levels,
)
from strandline.cluster.store import MalformedNode
from strandline.cluster.znodes import FeatureNode, FeatureRange, RegistrationNode
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId
from tests.cluster.story import Story

NEWER = {**SUPPORTED, TRANSACTION_VERSION: FeatureRange(0, 3)}
OTHERS = {GROUP_VERSION: 1, SHARE_VERSION: 1}
OLDER = {TRANSACTION_VERSION: FeatureRange(0, 1)}


@pytest.fixture
def story() -> Story:
    return Story(2)


def change(story: Story, level: int, kind: int = UpdateKind.UPGRADE, **more: bool) -> None:
    update = FeatureUpdate(TRANSACTION_VERSION, level, kind)
    story.follow(update_features(story.image, [update], **more))


def refusal(story: Story, *updates: FeatureUpdate) -> str:
    with pytest.raises(ProtocolError) as raised:
        update_features(story.image, updates)
    assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION
    return raised.value.message


def test_the_newest_level_that_all_support_is_in_force(story: Story) -> None:
    assert levels(story.image) == {**OTHERS, TRANSACTION_VERSION: 2}
    story.join(3, features={})
    assert levels(story.image) == {}
    assert not knows_transactions(story.image)
    story.leave(3)
    story.join(3, features=OLDER)
    assert levels(story.image) == {TRANSACTION_VERSION: 1}
    assert knows_transactions(story.image)


def test_a_level_rises_by_itself_unless_it_was_set(story: Story) -> None:
    for number in (1, 2):
        story.leave(number)
        story.join(number, features=NEWER)
    assert level_of(story.image, TRANSACTION_VERSION) == 3
    change(story, 2, UpdateKind.SAFE_DOWNGRADE)
    assert level_of(story.image, TRANSACTION_VERSION) == 2
    story.leave(2)
    story.join(2, features=OLDER)
    assert level_of(story.image, TRANSACTION_VERSION) == 1
    story.leave(2)
    story.join(2, features=NEWER)
    assert level_of(story.image, TRANSACTION_VERSION) == 2


def test_a_broker_that_is_down_counts_until_it_is_unregistered(story: Story) -> None:
    story.join(3, features=OLDER)
    story.leave(3)
    assert level_of(story.image, TRANSACTION_VERSION) == 1
    assert "Broker 3 only supports versions 0-1" in refusal(
        story, FeatureUpdate(TRANSACTION_VERSION, 2)
    )
    story.follow(unregister_broker(story.image, BrokerId(3)))
    assert level_of(story.image, TRANSACTION_VERSION) == 2


def test_a_level_falls_only_if_the_request_says_so(story: Story) -> None:
    assert "without setting the upgrade type" in refusal(
        story, FeatureUpdate(TRANSACTION_VERSION, 1)
    )
    change(story, 0, UpdateKind.SAFE_DOWNGRADE)
    assert levels(story.image) == OTHERS
    assert "Can't downgrade to a newer version" in refusal(
        story, FeatureUpdate(TRANSACTION_VERSION, 2, UpdateKind.UNSAFE_DOWNGRADE)
    )
    change(story, 2)
    assert levels(story.image) == {**OTHERS, TRANSACTION_VERSION: 2}


def test_what_no_feature_can_become_is_refused_and_nothing_is_written(story: Story) -> None:
    good = FeatureUpdate(TRANSACTION_VERSION, 1, UpdateKind.SAFE_DOWNGRADE)
    for bad, reason in (
        (FeatureUpdate("metadata.version", 1), "does not support this feature"),
        (FeatureUpdate("x", -1), "cannot be less than 0"),
        (FeatureUpdate("x", 1, 0), "does not support the given upgrade type"),
    ):
        message = refusal(story, good, bad)
        assert message.startswith("The update failed for all features since")
        assert reason in message
    assert "only supports versions 0-2" in refusal(story, FeatureUpdate(TRANSACTION_VERSION, 3))


def test_a_change_can_be_tried(story: Story) -> None:
    change(story, 1, UpdateKind.SAFE_DOWNGRADE, is_dry_run=True)
    assert levels(story.image) == {**OTHERS, TRANSACTION_VERSION: 2}


def test_a_broker_is_remembered_with_its_features(story: Story) -> None:
    known = story.image.registrations[BrokerId(1)]
    assert known.features == SUPPORTED
    assert RegistrationNode.decode(BrokerId(1), known.encode()) == known


def test_the_node_is_kafkas() -> None:
    node = FeatureNode({TRANSACTION_VERSION: 2})
    text = b'{"version":2,"status":1,"features":{"transaction.version":2}}'
    assert node.encode() == text
    assert FeatureNode.decode(text) == node
    old = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert FeatureNode.decode(old) == FeatureNode({"f": 3})
    disabled = b'{"version":2,"status":0,"features":{"f":3},"other":1}'
    assert FeatureNode.decode(disabled) == FeatureNode({}, {"other": 1})
    assert replace(FeatureNode.decode(disabled), levels={"f": 1}).encode().endswith(b'"other":1}')
    with pytest.raises(MalformedNode):
        FeatureNode.decode(b'{"version":2,"status":1,"features":{"f":true}}')
