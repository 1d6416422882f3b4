"""Admission rules at every door: submit, submit_many, locks."""

from __future__ import annotations

import pytest

from daybreak import Admission, NotAllowed, Resource

ON_CALL = {"eve"}


@pytest.fixture
def judged(app):
    @app.task(resource=Resource("any", slots=5))
    def apply(branch: str, title: str = "") -> str:
        return branch

    @app.rule
    def by_branch(job: Admission):
        if job.task != "apply" or "priority" in job.said:
            return None
        return {"priority": "critical" if job.args["branch"] == "main" else "normal"}

    @app.rule
    def by_title(job: Admission):
        if "HOTFIX" in job.args.get("title", ""):
            return {"queue": "fixes", "resource": "fixing", "meta": {"why": "hotfix"}}
        return None

    @app.rule
    def emergencies(job: Admission) -> None:
        if job.priority == 0 and job.by not in ON_CALL:
            raise NotAllowed(f"{job.by} is not on call: emergency is for {', '.join(ON_CALL)}")

    return apply


def test_a_rule_sets_priority_queue_and_resource(app, judged):
    job = judged.submit("main", title="HOTFIX dns").info()
    assert (job.priority, job.spec.queue, job.spec.meta) == (1, "fixes", {"why": "hotfix"})
    assert [need.resource for need in job.spec.options.resources] == ["fixing"]
    job = judged.submit("feature").info()
    assert (job.priority, job.spec.queue) == (5, "default")
    assert [need.resource for need in job.spec.options.resources] == ["any"]


def test_every_row_is_judged(app, judged):
    jobs = judged.submit_many([{"branch": "main"}, {"branch": "x"}, {"branch": "y", "title": "HOTFIX"}])
    assert [(job.info().priority, job.info().spec.queue) for job in jobs] == [
        (1, "default"), (5, "default"), (5, "fixes"),
    ]  # fmt: skip


def test_a_rule_sees_what_the_caller_said(app, judged):
    assert judged.using(priority="low").submit("main").info().priority == 7


def test_a_rule_refuses_jobs_and_locks(app, judged):
    with pytest.raises(NotAllowed, match="ann is not on call"):
        judged.using(priority="emergency").submit("main")
    with pytest.raises(NotAllowed, match="ann is not on call"):
        app.lock("prod", priority="emergency")
    with app.lock("prod", priority="high") as lock:
        assert lock.priority == 2
    assert app.stats("default").queue.submitted == 0


def test_a_key_still_means_the_same_content(app, judged):
    first = judged.using(key="k").submit("main", title="HOTFIX")
    assert judged.using(key="k").submit("main", title="HOTFIX").id == first.id


def test_a_key_stands_for_what_was_asked_whatever_rules_say_tomorrow(app):
    answers = iter(["day", "night"])

    @app.task
    def work(n: int) -> int:
        return n

    @app.rule
    def by_the_clock(job: Admission):
        return {"queue": next(answers)}

    first = work.using(key="k").submit(1)
    assert work.using(key="k").submit(1).id == first.id


def test_a_plain_call_is_not_judged(app, judged):
    assert judged("main") == "main"
