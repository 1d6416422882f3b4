"""One call of a batch task in a child: each job has its own outcome, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak import Context, Daybreak, Permanent, Suspend, context, values
from daybreak.tasks.context import NoReporter
from daybreak.worker.child.calls import BatchCall
from daybreak.worker.child.runner import Runner
from daybreak.worker.wire import Ended, Work

app = Daybreak("memory://")
calls: list[list[int]] = []
poison: set[int] = set()
seen: list[Context] = []


@app.batch_task(size=200)
def double(items: list[int]) -> list[int | Exception]:
    calls.append(list(items))
    if bad := poison.intersection(items):
        raise ValueError(f"bad: {sorted(bad)}")
    return [2 * item for item in items]


@app.batch_task(size=200)
async def adouble(ctx: Context, items: list[int]) -> list[int | Exception]:
    calls.append(list(items))
    await asyncio.sleep(0)
    if bad := poison.intersection(items):
        raise ValueError(f"bad: {sorted(bad)}")
    return [2 * item for item in items]


@app.batch_task
def halve(ctx: Context, items: list[int]) -> list[int | Exception]:
    seen.append(ctx)
    assert context() is ctx
    results: list[int | Exception] = []
    for item in items:
        try:
            results.append(_half(item))
        except ZeroDivisionError as error:
            results.append(error)
    return results


def _half(item: int) -> int:
    return 1 // item


@app.batch_task
def wrong(items: list[str]) -> list[str]:
    calls.append([len(items)])
    return {"none": None, "one": ["x"], "text": "x" * len(items)}[items[0]]  # type: ignore[return-value]


@app.batch_task
def unstorable(items: list[object]) -> list[object]:
    return [object() if item == 1 else item for item in items]


@app.batch_task
def away(items: list[int]) -> list[int]:
    calls.append(list(items))
    raise ConnectionError("nobody answers")


@app.batch_task
def suspends(items: list[int]) -> list[int]:
    raise Suspend("look at it")


@app.batch_task
def leaves(items: list[int]) -> list[int]:
    calls.append(list(items))
    raise SystemExit(items[0])


class Stage:
    """Runs calls, and keeps what they reported."""

    def __init__(self) -> None:
        self.reports: list[list[Ended]] = []
        self.parts: list[range] = []

    def call(self, task, items) -> BatchCall:
        calls.clear()
        return BatchCall(
            Runner(app.program),
            [_work(task, number, item) for number, item in enumerate(items)],
            lambda _: NoReporter(),
            on_part=self.parts.append,
            report=lambda ended, _: self.reports.append(list(ended)),
        )

    @property
    def ended(self) -> dict[int, Ended]:
        found = {one.seq: one for report in self.reports for one in report}
        assert len(found) == sum(map(len, self.reports)), "reported twice"
        return found


def _work(task, number, item):
    args = item if isinstance(item, bytes) else task.definition.arguments.encode((item,), {})
    return Work(number, f"job-{number}", task.name, 1, args, "default", 5, 1, 3, 1)


def run(task, items) -> Stage:
    stage = Stage()
    call = stage.call(task, items)
    if task.definition.is_async:
        asyncio.run(call.run_async())
    else:
        call.run()
    return stage


@pytest.mark.parametrize("task", [double, adouble], ids=["sync", "async"])
@given(case=st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_exactly_the_poison_fails_each_with_its_own_error_and_few_calls_find_it(task, case):
    count, bad = case
    poison.clear()
    poison.update(bad)
    stage = run(task, range(count))
    assert stage.ended.keys() == set(range(count))
    for number, ended in stage.ended.items():
        if number in bad:
            assert ended.status == "failed"
            assert ended.failure.message == f"bad: [{number}]"
            assert "in adouble" in ended.failure.traceback or "in double" in ended.failure.traceback
        else:
            assert (ended.status, values.decode(ended.result)) == ("done", 2 * number)
    assert len(calls) <= 1 + len(bad) * 2 * math.ceil(math.log2(count))
    assert [part.stop - part.start for part in stage.parts] == [len(call) for call in calls]


def test_what_is_known_is_reported_before_the_next_part_is_called():
    poison.clear()
    poison.add(3)
    stage = Stage()
    known: list[set[int]] = []
    call = stage.call(double, range(4))
    call._on_part = lambda _: known.append(set(stage.ended))
    call.run()
    assert known == [set(), set(), {0, 1}, {0, 1}, {0, 1, 2}]


def test_an_exception_in_the_list_fails_its_job_alone_with_the_traceback_of_where_it_was_raised():
    stage = run(halve, [1, 0, 2])
    assert [stage.ended[number].status for number in range(3)] == ["done", "failed", "done"]
    assert stage.ended[1].failure.kind == "ZeroDivisionError"
    assert "in _half" in stage.ended[1].failure.traceback
    assert len(stage.parts) == 1


@pytest.mark.parametrize(
    ("kind", "found"),
    [("none", "returned NoneType"), ("one", "returned 1 result for 3 items"), ("text", "returned str")],
)
def test_wrong_results_fail_all_jobs_for_good_without_more_calls(kind, found):
    stage = run(wrong, [kind] * 3)
    assert calls == [[3]]
    for ended in stage.ended.values():
        assert found in ended.failure.message
        assert "return a result for each" in ended.failure.message
        assert ended.failure.verdict == "permanent"


def test_an_item_that_cannot_be_read_and_a_result_that_cannot_be_stored_fail_alone():
    poison.clear()
    stage = run(double, [1, b'{"item":"x"}', 3])
    assert [stage.ended[number].status for number in range(3)] == ["done", "failed", "done"]
    assert "BadArguments" in stage.ended[1].failure.kinds[0]
    assert calls == [[1, 3]]
    stage = run(unstorable, [0, 1, 2])
    assert [stage.ended[number].status for number in range(3)] == ["done", "failed", "done"]
    assert "cannot be stored" in stage.ended[1].failure.message


def test_if_what_all_items_need_is_away_the_rest_is_handed_back_after_two_failures():
    stage = run(away, range(16))
    assert [stage.ended[number].status for number in range(16)] == ["failed"] * 2 + ["handed back"] * 14
    assert [len(call) for call in calls] == [16, 8, 4, 2, 1, 1]
    delays = {stage.ended[number].delay for number in range(2, 16)}
    assert delays == {timedelta(seconds=1)}, "as long as the delay of a first retry"


def test_suspend_is_about_the_whole_call():
    assert {ended.status for ended in run(suspends, [1, 2]).ended.values()} == {"suspended"}


def test_sys_exit_is_an_error_like_any_other():
    stage = run(leaves, [1, 2])
    assert [ended.failure.kind for ended in stage.ended.values()] == ["SystemExit", "SystemExit"]
    assert calls == [[1, 2], [1], [2]]


def test_the_context_names_the_jobs_of_the_call_and_has_no_checkpoint():
    seen.clear()
    run(halve, [1, 2])
    [ctx] = seen
    assert ctx.jobs == ("job-0", "job-1")
    assert ctx.job == "job-0"
    assert ctx.state is None
    for use in (lambda: ctx.checkpoint(1), lambda: ctx.step("a", int)):
        with pytest.raises(ValueError, match="a call of several jobs has no checkpoint"):
            use()


# -- jobs that are asked to stop ---------------------------------------------------------------------------------------


def test_a_call_is_asked_to_stop_when_all_jobs_in_the_function_were():
    stage = Stage()
    call = stage.call(halve, [1, 2])
    asked: list[bool] = []

    def stop(_: range) -> None:
        ctx = call.ctx
        asked.append(call.stop(0, 1, "cancel"))
        asked.append(ctx.cancelled)
        asked.append(call.stop(1, 1, "cancel"))
        asked.append(ctx.cancelled)

    call._on_part = stop
    call.run()
    assert asked == [False, False, True, True]


def test_a_job_that_was_asked_to_stop_is_left_out_of_the_next_part():
    poison.clear()
    poison.add(0)
    stage = Stage()
    call = stage.call(double, range(4))
    first = iter([True])
    call._on_part = lambda _: next(first, False) and call.stop(3, 1, "cancel")
    call.run()
    assert calls == [[0, 1, 2, 3], [0, 1], [0], [1], [2]]
    assert [stage.ended[number].status for number in range(4)] == ["failed", "done", "done", "cancelled"]


def test_a_stop_from_another_thread_ends_an_async_call():
    stage = Stage()

    @app.batch_task(name="waits")
    async def waits(items: list[int]) -> list[int]:
        await asyncio.sleep(60)
        return items

    call = stage.call(waits, [1, 2])

    async def serve() -> None:
        task = asyncio.create_task(call.run_async())
        while not stage.parts:  # noqa: ASYNC110 - it begins in the next iteration
            await asyncio.sleep(0)
        call.stop(0, 1, "cancel")
        await asyncio.sleep(0)
        assert not task.done()
        if call.stop(1, 1, "suspend"):
            task.cancel()
        await task

    asyncio.run(serve())
    assert [stage.ended[number].status for number in range(2)] == ["cancelled", "suspended"]


def test_a_permanent_error_of_the_call_is_bisected_too():
    @app.batch_task(name="picky")
    def picky(items: list[int]) -> list[int]:
        if 1 in items:
            raise Permanent("not that one")
        return items

    stage = run(picky, [0, 1])
    assert stage.ended[0].status == "done"
    assert stage.ended[1].failure.verdict == "permanent"
