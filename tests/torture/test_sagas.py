"""A saga of five steps in every way it can go, with its driver killed at every store operation in turn: it ends
completed, compensated, or stuck where people see it, and after no kill is anything half."""

from __future__ import annotations

import time

import pytest
from player_processes import LONG
from saga_story import FOR_EVER, STEPS, Story
from ticking import open_store

pytestmark = pytest.mark.torture

STORIES = (
    {},
    *({"fails_at": step} for step in range(STEPS)),
    *({"cancelled_after": step} for step in range(STEPS)),
    *({"fails_at": 4, "undo_fails": {step: 4}} for step in range(STEPS - 1)),
    {"cancelled_after": 4, "undo_fails": {4: 4, 2: 3, 0: 2}},
    *({"fails_at": 4, "undo_fails": {step: FOR_EVER}, "stays_stuck": True} for step in range(STEPS - 1)),
)
# At each operation in memory, at some of them on other stores. The short form is in memory: tests/sagas has one for
# every store.
STORES = ["memory", "sqlite", "directory", "postgres", "redis"] if LONG else ["memory"]
EACH = {"memory": 1 if LONG else 25}
ELSEWHERE = 9


@pytest.mark.parametrize("kind", STORES)
async def test_a_saga_cut_at_every_operation_is_never_left_between(kind, tmp_path, tell):
    began, cuts, each = time.monotonic(), 0, EACH.get(kind, ELSEWHERE)
    for number, how in enumerate(STORIES):
        (tmp_path / str(number)).mkdir()
        async with open_store(kind, tmp_path / str(number)) as store:
            whole = Story(store, "uncut", **how)
            await whole.run()
            await whole.check()
            for cut_at in range(1 + number % each, whole.cut.calls + 1, each):
                cut = Story(store, f"cut-{cut_at}", cut_at=cut_at, **how)
                await cut.run()
                await cut.check()
                cuts += 1
    tell(f"{len(STORIES)} stories, {cuts} kills, {time.monotonic() - began:.0f} s")
