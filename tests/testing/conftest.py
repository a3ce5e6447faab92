"""The plugin's own fixtures, also where the plugin is not installed."""

from __future__ import annotations

from strandline.testing.plugin import strandline_broker, strandline_cluster

__all__ = ["strandline_broker", "strandline_cluster"]
