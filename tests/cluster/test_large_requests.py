"""What large requests cost the event loop: no more for an entry than in small ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest

from strandline.cluster.controller import ConfigAlteration, incremental_alter_configs
from strandline.cluster.controller.alter_quotas import QuotaChange, alter_quotas
from strandline.cluster.controller.alter_scram import ScramDeletion, alter_scram
from strandline.cluster.image import Versioned
from strandline.cluster.znodes import ConfigNode, ConfigResource, ResourceKind
from strandline.config.alter import Alteration
from strandline.errors import ErrorCode
from strandline.quotas.entities import Entity
from tests.cluster.story import Story

COUNT = 500


class Name(str):
    """A name that counts how often names are compared."""

    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Configs(dict[ConfigResource, Versioned[ConfigNode]]):
    """Settings of resources that count how often all are looked at."""

    walks = 0

    def __iter__(self) -> Iterator[ConfigResource]:
        self.walks += 1
        return super().__iter__()


@pytest.fixture(autouse=True)
def _count() -> None:
    Name.compared = 0


def test_credentials_of_many_users() -> None:
    deletions = [ScramDeletion(Name(f"u{number}"), 1) for number in range(COUNT)]
    assert len(alter_scram(Story().image, deletions).results) == COUNT
    assert Name.compared < 10 * COUNT


def test_many_settings_that_are_named_twice() -> None:
    changes = [Alteration(Name(f"x{number // 2}"), 0, "1") for number in range(COUNT)]
    story = Story()
    request = ConfigAlteration(ResourceKind.BROKER, "", changes)
    [result] = incremental_alter_configs(story.image, [request], story.config).results
    assert result.refusal is not None
    assert result.refusal.code is ErrorCode.INVALID_REQUEST
    assert Name.compared < 10 * COUNT


def test_quotas_of_client_ids_of_many_users() -> None:
    story = Story()
    configs = Configs(story.image.configs)
    image = replace(story.image, configs=configs)
    changes = [
        QuotaChange(Entity(f"u{number}", "c"), [("producer_byte_rate", 1.0)])
        for number in range(COUNT)
    ]
    assert len(alter_quotas(image, changes).operations) == 3 * COUNT
    assert configs.walks <= 1
