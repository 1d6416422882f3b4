"""Differential test: Redis beside the memory store. DAYBREAK_EXAMPLES sets the number of random stories."""

from __future__ import annotations

import asyncio
import os

from hypothesis import HealthCheck, Phase, given, settings
from redis_servers import REDIS, clear, fresh, need_redis

from daybreak.core.events import KINDS
from daybreak.stores.redis import RedisStore
from daybreak.testing.differential import Sometimes, play, story

EXAMPLES = int(os.environ.get("DAYBREAK_EXAMPLES", "60"))
NOT_YET = {"shed", "folded", "moved"}  # folding needs hundreds of events: the contract tests it


def test_redis_beside_memory():
    need_redis()
    seen = Sometimes()
    with fresh() as namespace, asyncio.Runner() as runner:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(story())
        def play_one(steps):
            clear(REDIS, namespace)
            runner.run(play(steps, lambda: RedisStore(REDIS, namespace=namespace), seen=seen, durable=True))

        play_one()
    missing = {f"event {kind}" for kind in KINDS if kind not in NOT_YET} - set(seen)
    assert not missing or EXAMPLES < 100, "the stories were not broad enough, these never happened"
