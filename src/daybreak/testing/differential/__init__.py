"""Differential tests: run a store beside the memory store, which is the specification, and compare every answer.

    @given(story())
    def test_beside_memory(steps):
        asyncio.run(play(steps, lambda: MyStore(...)))

`Sometimes` counts what really happened, so that a test can assert that the stories were broad enough.
"""

from daybreak.testing.differential.player import Sometimes, play
from daybreak.testing.differential.story import story

__all__ = ["Sometimes", "play", "story"]
