"""What a running job keeps: what was encoded, and only what was kept."""

from __future__ import annotations

import asyncio

import pytest

from daybreak import values
from daybreak.core.errors import LeaseLost, NotEncodable
from daybreak.tasks.context import Context


class Shelf:
    """Keeps checkpoints, unless the lease is lost."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.lost = False

    def progress(self, fraction: float, message: str) -> None: ...

    def keep(self, checkpoint: bytes) -> None:
        if self.lost:
            raise LeaseLost("a", 1)
        self.kept.append(checkpoint)

    async def akeep(self, checkpoint: bytes) -> None:
        await asyncio.sleep(0)
        self.keep(checkpoint)

    @property
    def last(self) -> object:
        return values.decode(self.kept[-1])


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def ctx(shelf):
    return Context(job="a", reporter=shelf)


def again(shelf: Shelf) -> Context:
    """The context of the next attempt."""
    return Context(job="a", checkpoint=shelf.kept[-1], reporter=shelf)


def test_what_becomes_of_a_state_after_its_checkpoint_is_not_kept(ctx, shelf):
    done = ["a"]
    ctx.checkpoint(done)
    done.append("half done")
    assert ctx.state == ["a"]
    ctx.step("mail", lambda: "sent")
    assert shelf.last == {"state": ["a"], "steps": {"mail": "sent"}}
    assert again(shelf).state == ["a"]


def test_a_step_returns_what_the_function_returned_and_keeps_what_it_was_then(ctx, shelf):
    rows = [1, 2]
    assert ctx.step("load", lambda: rows) is rows
    rows.append(3)
    assert ctx.step("load", list) is rows
    ctx.checkpoint("x")
    assert shelf.last == {"state": "x", "steps": {"load": [1, 2]}}
    later = again(shelf)
    later.step("load", list).append(4)
    later.checkpoint("y")
    assert again(shelf).step("load", list) == [1, 2]


def test_a_state_that_was_read_may_be_changed_and_kept_anew(ctx, shelf):
    ctx.checkpoint({"n": 1})
    ctx.state["n"] += 1
    ctx.step("other", lambda: None)
    assert again(shelf).state == {"n": 1}
    ctx.checkpoint(ctx.state)
    assert again(shelf).state == {"n": 2}


def test_what_cannot_be_kept_changes_nothing(ctx, shelf):
    ctx.checkpoint("good")
    with pytest.raises(NotEncodable, match=r"checkpoint\.state: "):
        ctx.checkpoint(object())
    with pytest.raises(NotEncodable, match=r"checkpoint\.steps\.bad"):
        ctx.step("bad", object)
    with pytest.raises(NotEncodable, match=r"checkpoint\.steps: in a key"):
        ctx.step("\ud800", int)
    assert ctx.state == "good"
    assert ctx.step("fine", lambda: 1) == 1
    assert ctx.step("bad", lambda: 2) == 2
    assert shelf.last == {"state": "good", "steps": {"fine": 1, "bad": 2}}


async def test_the_async_twins_keep_likewise(ctx, shelf):
    async def made() -> list[int]:
        return [1]

    async def wrong() -> object:
        return object()

    state = ["a"]
    await ctx.acheckpoint(state)
    (await ctx.astep("make", made)).append(2)
    state.append("b")
    with pytest.raises(NotEncodable):
        await ctx.acheckpoint(object())
    with pytest.raises(NotEncodable):
        await ctx.astep("wrong", wrong)
    assert ctx.state == ["a"]
    await ctx.astep("more", made)
    assert shelf.last == {"state": ["a"], "steps": {"make": [1], "more": [1]}}


def test_what_a_lost_lease_did_not_keep_is_not_the_state(ctx, shelf):
    ctx.checkpoint(1)
    shelf.lost = True
    with pytest.raises(LeaseLost):
        ctx.checkpoint(2)
    with pytest.raises(LeaseLost):
        ctx.step("late", int)
    assert ctx.state == 1
    shelf.lost = False
    assert ctx.step("late", lambda: 5) == 5
    assert shelf.last == {"state": 1, "steps": {"late": 5}}


async def test_of_states_kept_side_by_side_a_lost_one_takes_no_other_with_it(ctx, shelf):
    shelf.lost = True
    lost = await asyncio.gather(ctx.acheckpoint(1), ctx.acheckpoint(2), return_exceptions=True)
    assert [type(one) for one in lost] == [LeaseLost, LeaseLost]
    assert ctx.state is None
    lost = await asyncio.gather(*(ctx.astep("same", asyncio.sleep, 0, n) for n in (1, 2)), return_exceptions=True)
    assert [type(one) for one in lost] == [LeaseLost, LeaseLost]


async def test_steps_that_run_side_by_side_are_all_kept(ctx, shelf):
    async def made(n: int) -> int:
        return n

    await asyncio.gather(*(ctx.astep(f"step {n}", made, n) for n in range(5)), ctx.acheckpoint("x"))
    assert shelf.last == {"state": "x", "steps": {f"step {n}": n for n in range(5)}}


@pytest.mark.parametrize("names", [("$",), ("größe",), ("a", "$")])
def test_a_step_may_have_any_name(ctx, shelf, names):
    for name in names:
        ctx.step(name, str.upper, name)
    assert shelf.last == {"state": None, "steps": {name: name.upper() for name in names}}
    assert [again(shelf).step(name, str) for name in names] == [name.upper() for name in names]
