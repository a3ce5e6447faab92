"""Three brokers of an earlier release are replaced under load by this one's, and back again.

The way back is open as long as nothing was used that only this release knows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.releases import RELEASES, SOURCES, missing, unpack
from tests.upgrade.rolling import replace_one_by_one
from tests.zookeeper.server import missing as zookeeper_missing


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_are_replaced_under_load_and_back(release: str, tmp_path: Path) -> None:
    reason = zookeeper_missing() or missing(RELEASES[release])
    if reason is not None:
        pytest.skip(reason)
    earlier = unpack(RELEASES[release], tmp_path / "earlier")
    replace_one_by_one(tmp_path, [earlier, SOURCES, earlier])
