"""`app.find`, `app.count` and `job.info()`: what a program sees of jobs, with their arguments and results as values."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from daybreak import BadInput, Daybreak, JobInfo, Permanent, Secret, State
from daybreak.api import app as app_module
from daybreak.core.model import Failure, Job

ROOT = Path(__file__).parents[2]


@dataclass
class Point:
    x: int
    y: int


def move(to: Point, day: date, pin: Secret[str] | None = None) -> Point:
    return Point(to.x + 1, to.y)


def spread(first: int, /, *rest: int, **named: int) -> int:
    if not rest:
        raise Permanent("nothing to spread")
    return first


@pytest.fixture(params=["memory://", "file"])
def app(request, tmp_path):
    with Daybreak("memory://" if request.param == "memory://" else str(tmp_path / "found.db"), by="ann") as app:
        yield app


def test_info_has_arguments_and_result_as_the_task_s_annotations_say(app):
    job = app.task(move).submit(Point(1, 2), date(2026, 1, 31), pin="hidden")
    before = job.info()
    assert (before.args["to"], before.args["day"]) == (Point(1, 2), date(2026, 1, 31))
    assert (before.task, before.queue, before.by, before.state, before.result) == (
        "move", "default", "ann", State.QUEUED, None,
    )  # fmt: skip
    assert isinstance(before, Job)
    app.work(isolation="thread")
    after = job.info()
    assert (after.result, after.error, after.state) == (Point(2, 2), None, State.COMPLETED)
    assert after.args["pin"].reveal() == "hidden"
    assert "hidden" not in repr(after)
    assert "***" in repr(after)


def test_info_is_plain_where_the_task_is_not_known(app):
    job = app.task(move).submit(Point(1, 2), date(2026, 1, 31), pin="hidden")
    app.work(isolation="thread")
    app.program._tasks.clear()
    app.program._by_name.clear()
    info = job.info()
    assert (info.args["to"], info.result) == ({"x": 1, "y": 2}, {"x": 2, "y": 2})
    assert "hidden" not in repr(info)
    assert repr(info.args["pin"]) == "***"


def test_info_is_plain_where_what_is_stored_does_not_fit_the_task(app):
    job = app.task(move).submit(Point(1, 2), date(2026, 1, 31))

    def other(to: int) -> int:
        return to

    app.program._tasks.clear()
    app.program._by_name.clear()
    app.task(name="move")(other)
    assert job.info().args["to"] == {"x": 1, "y": 2}


def test_info_names_every_argument_and_the_error(app):
    task = app.task(spread)
    good, bad = task.submit(1, 2, 3, four=4), task.submit(5)
    app.work(isolation="thread")
    assert (good.info().args, good.info().result) == ({"first": 1, "rest": [2, 3], "four": 4}, 1)
    info = bad.info()
    assert isinstance(info.error, Failure)
    assert (info.args, str(info.error), info.error.kind) == ({"first": 5}, "Permanent: nothing to spread", "Permanent")
    assert info.max_attempts == 3


def test_a_finished_job_names_its_worker(app):
    job = app.task(spread).submit(1, 2)
    assert job.info().worker is None
    with app.worker(isolation="thread") as worker:
        job.wait()
    assert job.info().worker == worker.id
    assert [info.worker for info in app.find()] == [worker.id]


def test_jobs_are_found_by_every_filter(app):
    task = app.task(spread)
    mail = task.using(queue="mail", priority="high", owner="ann", run="r1", key="k1", tags=["t1"]).submit(1, 2)
    other = task.submit(5)
    app.work(isolation="thread", queues=["mail", "default"])
    for where in (
        {"state": "completed"}, {"state": State.COMPLETED}, {"state": ["completed", "queued"]}, {"queue": "mail"},
        {"owner": "ann"}, {"run": "r1"}, {"key": "k1"}, {"tag": "t1"}, {"priority": "high"},
    ):  # fmt: skip
        assert [info.id for info in app.find(**where)] == [mail.id], where
        assert app.count(**where) == 1, where
    for where in ({"reason": "error"}, {"state": "failed", "task": "spread"}, {"state": "failed", "task": task}):
        assert [info.id for info in app.find(**where)] == [other.id], where
    assert [info.id for info in app.find()] == [other.id, mail.id]  # newest first
    assert (app.count(), app.count(task="nobody")) == (2, 0)
    assert list(app.find(task="nobody")) == []


def test_found_jobs_come_page_by_page(app, monkeypatch):
    monkeypatch.setattr(app_module, "PAGE", 4)
    asked = []
    whole = app._page
    monkeypatch.setattr(app, "_page", lambda where, limit, cursor: asked.append(limit) or whole(where, limit, cursor))
    jobs = app.task(spread).submit_many([{"first": n} for n in range(11)])
    assert [info.id for info in app.find(state="queued")] == [job.id for job in jobs]
    assert asked == [4, 4, 4]
    asked.clear()
    assert [info.args["first"] for info in app.find(state="queued", limit=6)] == [0, 1, 2, 3, 4, 5]
    assert asked == [4, 2]
    asked.clear()
    with app.find() as found:
        assert len(list(itertools.islice(found, 3))) == 3
    assert asked == [4]
    assert list(app.find(limit=0)) == []


async def test_the_async_twins(app):
    task = app.task(spread)
    job = await task.asubmit(1, 2)
    assert [info.id async for info in app.afind(task=task)] == [job.id]
    assert await app.acount(state="queued") == 1
    assert (await job.ainfo()).args == {"first": 1, "rest": [2]}


@pytest.mark.parametrize("said", [{"state": "faild"}, {"reason": "tired"}, {"priority": "hihg"}, {"limit": -1}])
def test_a_filter_that_cannot_be_right_is_refused(app, said):
    with pytest.raises(BadInput):
        list(app.find(**said))


def test_the_reference_names_the_fields_of_a_job_and_no_others():
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    section = page.partition("## `JobInfo`")[2].partition("\n## ")[0]
    documented = [
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"\w+", row)
    ]
    properties = {name for name, member in vars(JobInfo).items() if isinstance(member, property)}
    fields = {*JobInfo.__struct_fields__, "id", "is_final"} | properties
    assert sorted(documented) == sorted(fields)
