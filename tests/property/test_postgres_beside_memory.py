"""Differential test: PostgreSQL beside the memory store. DAYBREAK_EXAMPLES sets the number of random stories."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from daybreak.core.events import KINDS
from daybreak.testing.differential import Sometimes, play, story

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'daybreak[postgres]'")
sys.path.append(str(Path(__file__).parents[1] / "stores" / "postgres"))

from postgres_servers import URL, empty, schema_for_tests, with_schema

from daybreak.stores.postgres import PostgresStore

EXAMPLES = int(os.environ.get("DAYBREAK_EXAMPLES", "200")) // 5  # a server answers more slowly than a file in memory
NOT_YET = {"shed", "folded", "moved"}
SOMETIMES = {
    *(f"event {kind}" for kind in KINDS if kind not in NOT_YET), "reopened", "settlement refused",
    "settlement repeated", "cancel overrides", "suspend overrides", "claim over queues", "max_running reached",
    "insert full", "insert conflict by key", "reaped", "purged events", "cursor expired", "bulk in chunks",
}  # fmt: skip


def test_postgres_beside_memory():
    seen = Sometimes()
    with schema_for_tests() as schema, asyncio.Runner() as runner:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(story())
        def play_one(steps):
            empty(schema)
            opener = lambda: PostgresStore(with_schema(URL, schema))  # noqa: E731
            runner.run(play(steps, opener, seen=seen, durable=True))

        play_one()
    missing = SOMETIMES - set(seen)
    assert not missing or EXAMPLES < 200, f"the stories were not broad enough, these never happened: {missing}"
