"""What all tests share: property tests draw the same examples in every run and have no deadline."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("strandline", derandomize=True, deadline=None)
settings.load_profile("strandline")
