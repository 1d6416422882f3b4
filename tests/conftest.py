"""For all tests: examples take as long as they take, and a failing one says how to come back to it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("daybreak", deadline=None, print_blob=True)
settings.load_profile("daybreak")
