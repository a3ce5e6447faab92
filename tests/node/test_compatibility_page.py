"""docs/compatibility.md lists what a node answers to ApiVersions, and what it serves unasked."""

from __future__ import annotations

import re
from pathlib import Path

from strandline.protocol.apis import KNOWN, PRIVATE, ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from tests.node.world import World

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
KEYS_OF_KAFKA = set(range(93))
"""The keys of every API that Kafka 4.3 has, or had."""
REFUSED = re.compile(r"^\| (\d+(?:, \d+)*) \| (\w+(?:, \w+)*) \|", re.MULTILINE)
ROW = re.compile(r"^\| (\w+) \| (\d+) \| (\d+)(?:-(\d+))? \|", re.MULTILINE)


def test_the_table_of_requests_is_what_a_node_says(world: World) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    said = {
        (KNOWN[api.api_key].name, api.api_key, api.min_version, api.max_version)
        for api in world.connect().ask(request, 3).api_keys
    }
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    written = {
        (name, int(key), int(lowest), int(highest or lowest)) for name, key, lowest, highest in rows
    }
    assert written == said
    assert len(rows) == len(said)


def test_every_api_of_kafka_has_one_line() -> None:
    page = PAGE.read_text(encoding="utf-8")
    served = [int(key) for _, key, _, _ in ROW.findall(page)]
    refused = []
    for keys, names in REFUSED.findall(page):
        assert len(keys.split(", ")) == len(names.split(", "))
        refused += [int(key) for key in keys.split(", ")]
    between_brokers = [int(ApiKey.ALTER_PARTITION)]
    assert sorted([*served, *refused, *between_brokers]) == sorted(KEYS_OF_KAFKA)


def test_private_requests_are_named_with_their_keys() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for key in (ApiKey.ALTER_PARTITION, *PRIVATE):
        assert f"{KNOWN[key].name} ({int(key)}, {KNOWN[key].versions})" in page
