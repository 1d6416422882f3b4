"""Batch tasks as an app declares them: single items in, single results out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from daybreak import BadInput, BatchTask, Context, Daybreak, File, JobFailed, Resource, Task
from daybreak.api.metrics.families import counters_of
from daybreak.core.model import Batching
from daybreak.testing import inline


@dataclass(frozen=True)
class Point:
    vin: float
    duty: float = 0.5


class Model(msgspec.Struct, frozen=True):
    file: File
    vin: float


class Fields(TypedDict):
    a: int
    b: NotRequired[str]


calls: list[list[Any]] = []


def declared(app: Daybreak, annotation: Any, **options: Any) -> BatchTask[Any, Any]:
    def work(items):
        calls.append(list(items))
        return list(items)

    work.__annotations__ = {"items": annotation, "return": annotation}
    return app.batch_task(**options)(work)


def spec_of(app: Daybreak, job) -> Any:
    async def read() -> Any:
        return (await (await app.client()).get(job.id)).spec

    return app.portal.run(read())


def batch_of(app, job):
    return spec_of(app, job).batch


# -- what is submitted -------------------------------------------------------------------------------------------------


def test_submit_takes_one_item_and_its_fields_are_the_arguments(app):
    task = declared(app, list[Point])
    assert task.submit(Point(10.0)).info().args == {"vin": 10.0, "duty": 0.5}
    assert task.submit(vin=10.0, duty=0.2).info().args == {"vin": 10.0, "duty": 0.2}
    assert task.definition.parameters == ["vin", "duty"]


@pytest.mark.parametrize(
    ("annotation", "item", "args"),
    [
        (list[int], 3, {"item": 3}),
        (list[str], "a", {"item": "a"}),
        (list, [1, 2], {"item": [1, 2]}),
        (tuple[int, ...], 3, {"item": 3}),
        (list[Fields], {"a": 1}, {"a": 1}),
        (list[dict[str, float]], {"x": 1.0, "y": 2.0}, {"x": 1.0, "y": 2.0}),
        (list[dict[int, str]], {1: "a"}, {"item": {1: "a"}}),
        (list[Point], Point(1.0, 0.1), {"vin": 1.0, "duty": 0.1}),
    ],
    ids=str,
)
def test_items_of_every_kind_come_back_as_they_were(app, annotation, item, args):
    task = declared(app, annotation)
    calls.clear()
    with inline(app):
        job = task.submit(item)
        assert job.info().args == args
        assert job.result() == item
    assert calls == [[item]]


def test_an_item_that_does_not_fit_is_refused_at_submit(app):
    task = declared(app, list[Point])
    for wrong, message in [
        (lambda: task.submit(Point("x")), "item.vin: 'x' is not a valid float"),
        (lambda: task.submit("x"), "item: 'x' is not a valid Point"),
        (lambda: task.submit(vim=1.0), "no parameter 'vim'; did you mean 'vin'?"),
        (lambda: task.submit(duty=1.0), "is missing 'vin'"),
        (lambda: task.submit(Point(1.0), Point(2.0)), "give one item, or its fields by name"),
        (lambda: task.submit_many([Point(1.0), Point("x")]), "row 1: item.vin"),
    ]:
        with pytest.raises(BadInput, match=message):
            wrong()
    assert app.count() == 0


def test_a_plain_call_runs_here_and_now(app):
    @app.batch_task
    def double(ctx: Context, items: list[int]) -> list[int | Exception]:
        assert ctx.task == "double"
        return [2 * item for item in items]

    assert double([1, 2]) == [2, 4]
    assert app.count() == 0


def test_an_async_batch_task_is_awaited(app):
    @app.batch_task
    async def double(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [2 * item for item in items]

    assert asyncio.run(double([1, 2])) == [2, 4]
    with inline(app):
        assert double.map([1, 2, 3]) == [2, 4, 6]


async def test_the_async_twins_do_the_same(app):
    @app.batch_task(size=10)
    async def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    async with inline(app):
        assert await (await double.asubmit(2)) == 4
        assert [await job for job in await double.asubmit_many([1, 2])] == [2, 4]
        assert await double.amap([1, 2]) == [2, 4]


def test_using_and_find_task_give_batch_tasks(app):
    task = declared(app, list[int], size=3, linger="2s", queue="sims")
    urgent = task.using(priority="critical", tags=["x"])
    assert isinstance(urgent, BatchTask)
    info = urgent.submit(1).info()
    assert (info.priority, info.queue, info.tags) == (1, "sims", ("x",))
    found = app.find_task("work")
    assert isinstance(found, BatchTask)
    assert isinstance(found, Task)
    assert found.definition.batching == Batching(size=3, linger=timedelta(seconds=2))


def test_keys_are_functions_of_the_fields(app):
    task = declared(app, list[Point]).using(key=lambda vin, duty: f"{vin}-{duty}")
    first = task.submit(Point(1.0))
    assert task.submit(vin=1.0, duty=0.5) == first


# -- batch keys --------------------------------------------------------------------------------------------------------


def test_without_by_the_content_of_the_first_file_decides(app, tmp_path):
    for name, text in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / name).write_text(text)
    task = declared(app, list[Model])
    keys = [batch_of(app, task.submit(Model(File(tmp_path / name), 1.0))) for name in "abc"]
    assert keys[0] == keys[1] == File(tmp_path / "a").digest
    assert keys[2] == File(tmp_path / "c").digest


def test_without_by_and_without_a_file_all_items_go_together(app):
    task = declared(app, list[int])
    assert {batch_of(app, task.submit(n)) for n in range(3)} == {"all"}


def test_by_names_a_field_or_several(app, tmp_path):
    task = declared(app, list[Point], by="duty")
    one, same, other = (batch_of(app, task.submit(p)) for p in (Point(1.0), Point(2.0), Point(1.0, 0.1)))
    assert one == same != other
    task = declared(app, list[Fields], by=["a", "b"], name="fields")
    assert batch_of(app, task.submit({"a": 1})) != batch_of(app, task.submit({"a": 1, "b": ""}))
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    task = declared(app, list[Model], by="file", name="model")
    assert len({batch_of(app, task.submit(Model(File(tmp_path / name), 1.0))) for name in "ab"}) == 1


def test_by_counts_the_default_of_a_field_that_an_item_does_not_store(app):
    kind = pydantic.create_model("Setup", model=(str, ...), vin=(float | None, 5.0))
    task = declared(app, list[kind], by=["model", "vin"])
    left_out, written, none = ({"model": "a"}, {"model": "a", "vin": 5.0}, {"model": "a", "vin": None})
    keys = [batch_of(app, task.submit(**fields)) for fields in (left_out, written, none)]
    assert keys[0] == keys[1] != keys[2]


def test_by_may_be_a_function_of_the_item(app):
    task = declared(app, list[Point], by=lambda point: f"at {point.duty}")
    assert batch_of(app, task.submit(Point(1.0))) == "at 0.5"
    assert batch_of(app, task.submit(vin=1.0, duty=0.2)) == "at 0.2"
    assert [batch_of(app, job) for job in task.submit_many([{"vin": 1.0}, Point(1.0, 0.1)])] == ["at 0.5", "at 0.1"]
    task = declared(app, list[int], by=lambda item: (item % 2, "x"), name="pairs")
    assert batch_of(app, task.submit(1)) == batch_of(app, task.submit(3)) != batch_of(app, task.submit(2))
    task = declared(app, list[int], by=lambda _: object(), name="odd")
    with pytest.raises(BadInput, match="return text, a number, or a tuple of them"):
        task.submit(1)


def test_items_that_need_other_resources_have_other_keys(app):
    licences = {name: Resource(name, slots=1) for name in "ab"}
    task = declared(app, list[Point], resource=lambda vin, duty: licences["a" if vin < 5 else "b"])
    keys = [batch_of(app, task.submit(Point(vin))) for vin in (1.0, 2.0, 9.0)]
    assert keys[0] == keys[1] != keys[2]
    usual = declared(app, list[Point], resource=licences["a"], name="usual")
    assert batch_of(app, usual.submit(Point(1.0))) == "all"
    assert batch_of(app, usual.using(resource=licences["b"]).submit(Point(1.0))) != "all"


def test_the_batch_key_is_not_part_of_what_an_idempotency_key_stands_for(app):
    first = declared(app, list[Point], by="vin").using(key="k").submit(Point(1.0))
    assert declared(Daybreak("memory://"), list[Point]).definition.code == app.find_task("work").definition.code
    again = app.find_task("work").using(key="k").submit(Point(1.0))
    assert again == first


# -- declarations that are refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size=0 must be an integer from 1 to 1,000"),
        ({"size": 1001}, "size=1001 must be"),
        ({"size": True}, "size=True must be"),
        ({"linger": 5}, "linger: a bare number has no unit; write '5s'"),
        ({"linger": "-1s"}, "linger"),
        ({"by": 3}, "by=3: write the name of a field"),
        ({"by": []}, r"by=\[\]: write the name of a field"),
        ({"batch_size": 4}, "did you mean size=16"),
        ({"wait": "1s"}, "did you mean linger='2s'"),
    ],
)
def test_options_that_make_no_sense_are_refused(app, options, message):
    with pytest.raises(BadInput, match=message):
        declared(app, list[int], **options)


def test_a_field_that_items_do_not_have_is_refused_at_submit(app):
    task = declared(app, list[Point], by="model")
    with pytest.raises(BadInput, match="by='model': its items have no such field; they have vin, duty"):
        task.submit(Point(1.0))


def test_a_function_that_takes_no_list_is_refused():
    app = Daybreak("memory://")

    def nothing() -> list[int]: ...
    def one(item: int) -> int: ...
    def two(items: list[int], more: int) -> list[int]: ...
    def only_context(ctx: Context) -> list[int]: ...
    def many(*items: int) -> list[int]: ...

    for function in (nothing, one, two, only_context, many):
        with pytest.raises(BadInput, match="takes one list of items"):
            app.batch_task(function)


def test_options_of_batches_belong_to_batch_tasks(app):
    with pytest.raises(BadInput, match=r"did you mean @app.batch_task\(size=...\)"):
        app.task(size=4)


# -- results -----------------------------------------------------------------------------------------------------------


def test_jobs_that_are_submitted_together_run_in_calls_of_their_key(app):
    task = declared(app, list[Point], size=3, by="duty")
    calls.clear()
    with inline(app):
        jobs = task.submit_many([Point(float(n), 0.1 * (1 + n % 2)) for n in range(8)])
        assert [job.result().vin for job in jobs] == [float(n) for n in range(8)]
    assert [[point.vin for point in call] for call in calls] == [[0, 2, 4], [1, 3, 5], [6], [7]]


def test_an_exception_in_the_list_fails_its_job_and_no_other(app):
    @app.batch_task(size=4, retry=1)
    def halve(items: list[int]) -> list[float | Exception]:
        return [1 / item if item else ZeroDivisionError("no half of nothing") for item in items]

    with inline(app):
        jobs = halve.submit_many([1, 0, 2])
        assert jobs[0].result() == 1.0
        with pytest.raises(JobFailed, match="no half of nothing"):
            jobs[1].result()
        assert jobs[2].result() == 0.5


def test_a_call_that_raises_is_bisected(app):
    tried: list[list[int]] = []

    @app.batch_task(size=8, retry=1)
    def pick(items: list[int]) -> list[int]:
        tried.append(items)
        if 3 in items:
            raise ValueError("not 3")
        return items

    with inline(app):
        jobs = pick.submit_many(range(8))
        outcomes = [job.outcome() for job in jobs]
    assert [outcome.ok for outcome in outcomes] == [n != 3 for n in range(8)]
    assert [len(items) for items in tried] == [8, 4, 2, 2, 1, 1, 4]
    assert {job.info().attempt for job in jobs} == {1}


def test_an_element_is_retried_by_itself(app):
    seen: list[list[int]] = []

    @app.batch_task(size=4, retry=3)
    def shaky(items: list[int]) -> list[int | Exception]:
        seen.append(items)
        return [ConnectionError("later") if item == 1 and len(seen) < 3 else item for item in items]

    with inline(app):
        jobs = shaky.submit_many([0, 1, 2])
        assert [job.result() for job in jobs] == [0, 1, 2]
        assert [job.info().attempt for job in jobs] == [1, 3, 1]
    assert seen == [[0, 1, 2], [1], [1]]


def test_progress_of_a_call_is_that_of_all_its_jobs(app):
    @app.batch_task(size=4)
    def slow(ctx: Context, items: list[int]) -> list[int]:
        ctx.progress(0.5, "half")
        return items

    with inline(app):
        jobs = slow.submit_many([1, 2])
        assert [job.info().message for job in jobs] == ["half", "half"]


def test_a_sweep_over_a_batch_task_has_the_fields_as_columns(app, tmp_path):
    task = declared(app, list[Point], size=4)
    with inline(app):
        run = app.sweep(task, {"vin": [1.0, 2.0], "duty": [0.1, 0.2]}, name="points")
        run.wait()
        assert [(row["vin"], row["duty"], row["state"]) for row in run.rows()] == [
            (1.0, 0.1, "completed"), (1.0, 0.2, "completed"), (2.0, 0.1, "completed"), (2.0, 0.2, "completed"),
        ]  # fmt: skip


def test_statistics_tell_calls_and_how_full_they_were(app):
    task = declared(app, list[int], size=4)
    with inline(app):
        task.submit_many(range(6))
        [found] = app.stats().batch_calls
    assert (found.task, found.calls, found.elements, found.average_size) == ("work", 2, 6, 3.0)


def test_metrics_count_calls_and_their_jobs_and_no_attempt_for_them():
    assert counters_of("calls") == ["daybreak_batch_calls"]
    assert counters_of("elements") == ["daybreak_batch_elements"]


def test_known_results_of_batch_tasks_are_not_computed_again(app):
    task = declared(app, list[Point], size=4, cache=True)
    calls.clear()
    with inline(app):
        first = task.submit_many([Point(1.0), Point(2.0)])
        again = task.submit_many([Point(2.0), Point(3.0), Point(1.0)])
        assert [job.result().vin for job in (*first, *again)] == [1.0, 2.0, 2.0, 3.0, 1.0]
        assert again[0].info().cached_from == first[1].id
    assert [[point.vin for point in call] for call in calls] == [[1.0, 2.0], [3.0]]
