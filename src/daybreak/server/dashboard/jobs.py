"""Pages about jobs: the list, one job, failures by cause, and the form that submits one."""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from daybreak.api.job_changes import CHANGES
from daybreak.api.job_filter import count_jobs
from daybreak.api.job_history import attempts
from daybreak.api.queue_info import read_queues
from daybreak.api.report import read_clusters
from daybreak.api.views.job import job_view, plain_value
from daybreak.api.views.job_logs import log_text
from daybreak.api.why import explain, read_situation
from daybreak.core.model import FINAL, Job, Reason, State
from daybreak.core.units import Priority, moment
from daybreak.server.bodies.failures import FailureQuery
from daybreak.server.bodies.job_changes import FilterBody
from daybreak.server.bodies.jobs import JobQuery
from daybreak.server.dashboard.drawings import attempt_bars
from daybreak.server.dashboard.renderer import query_text, render
from daybreak.server.dashboard.search import Found, search_jobs
from daybreak.server.routes.jobs import filter_for, found_job
from daybreak.server.routing import Call, Routes, may
from daybreak.sqs.deliveries import delivery_of

routes = Routes("dashboard", prefix="")
_READ: Final = may("read")
PAGE: Final = 50
FILTERS: Final = ("reason", "queue", "task", "run", "owner", "key", "priority", "tag", "since", "until", "cluster")


class JobListQuery(JobQuery, frozen=True):
    """The filter of the list, and `text`, which arguments must contain."""

    text: str = ""


@routes.get("/jobs", _READ, query=JobListQuery, answer=str, answer_type="text/html", summary="The list of jobs")
async def show_jobs(call: Call[JobListQuery, None]) -> Any:
    """With filters, a search in arguments, and actions on everything that matches."""
    query, client = call.query, await call.client()
    wanted = filter_for(call, query)
    found: Found = await search_jobs(client, wanted, query.text, PAGE, query.cursor)
    # Only what the store can count without reading every job: a page must be quick with a million of them.
    is_counted = (
        not query.text and not wanted.is_timed and (wanted.is_tallied or list(wanted.named()) in (["run"], ["owner"]))
    )
    counts = await count_jobs(client, wanted) if is_counted else None
    shown = {name: getattr(query, name) for name in FILTERS if getattr(query, name) is not None}
    queues = await read_queues(client)
    tasks = sorted({task for queue in queues for task in queue.tasks} | {task.name for task in call.server.app.program})
    return render(
        call,
        "jobs.html",
        page="jobs",
        jobs=found.jobs,
        scanned=found.scanned,
        counts=None if counts is None else {state.value: n for state, n in counts.items()},
        total=None if counts is None else sum(counts.values()),
        query=query,
        filter={"state": list(query.state), **shown},
        is_filtered=bool(query.state or shown or query.text),
        next=query_text(state=",".join(query.state), **shown, text=query.text, cursor=found.cursor),
        cursor=found.cursor,
        states=[state.value for state in State],
        reasons=[reason.value for reason in Reason],
        priorities=[(level.value, level.name.lower()) for level in Priority],
        queues=[queue.name for queue in queues],
        tasks=tasks,
    )


@routes.get("/jobs/{id}", _READ, answer=str, answer_type="text/html", refuses=(404,), summary="One job")
async def show_job_page(call: Call[None, None]) -> Any:
    """Its state and why, attempts, errors, arguments, result, and everything that happened to it."""
    client, job = await found_job(call)
    history = await client.history(job.id)
    why = explain(await read_situation(client, job.id))
    now = moment(client.wall())
    tried = attempts(history)
    return render(
        call,
        "job.html",
        page="jobs",
        job=job,
        view=job_view(job, history, now, await delivery_of(client.store, job)),
        arguments=plain_value(job.spec.args),
        result=None if job.result is None else plain_value(job.result),
        history=history,
        attempts=tried,
        bars=attempt_bars(tried, job.created_at, now),
        can_repeat=any(task.name == job.spec.task for task in call.server.app.program),
        why=why,
        actions=actions_for(job),
        output=log_text(await client.logs(job.id)),
        is_final=job.state in FINAL,
        priorities=[level.name.lower() for level in Priority],
    )


def actions_for(job: Job) -> list[str]:
    """What can be done with a job in its present state."""
    found = [name for name, change in CHANGES.items() if job.state in change.possible and name != "priority"]
    if job.state is State.RUNNING:
        found = [name for name in found if name != "resume" or job.suspending]
        found.append("release")
    return found


class FailurePageQuery(FailureQuery, frozen=True):
    """The failed jobs of the last day, if no time is given."""


@routes.get(
    "/failures", _READ, query=FailurePageQuery, answer=str, answer_type="text/html", summary="Failures by cause"
)  # fmt: skip
async def show_failures_page(call: Call[FailurePageQuery, None]) -> Any:
    """Each cluster with one example, and a button that retries exactly its jobs."""
    wanted = FilterBody(**asdict(call.query))
    found = await read_clusters(await call.client(), filter_for(call, wanted))
    return render(call, "failures.html", page="failures", found=found, query=call.query)


class SubmitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`like` is a job whose arguments fill the form."""

    like: str | None = None


@routes.get(
    "/submit", may("submit"), query=SubmitQuery, answer=str, answer_type="text/html", refuses=(404,),
    summary="The form that submits a job",
)  # fmt: skip
async def show_submit(call: Call[SubmitQuery, None]) -> Any:
    """One form for each task of the app, made of the parameters of its function."""
    like = await _found_like(call, call.query.like)
    tasks = [
        {
            "name": definition.name,
            "queue": definition.queue,
            "about": (definition.function.__doc__ or "").strip().partition("\n")[0],
            "parameters": definition.arguments.describe(),
        }
        for definition in sorted(call.server.app.program, key=lambda one: one.name)
        if call.caller.may_use(definition.queue)
    ]
    priorities = [level.name.lower() for level in Priority]
    return render(
        call,
        "submit.html",
        page="jobs",
        tasks=tasks,
        priorities=priorities,
        like=like,
        filled={} if like is None else _form_values(plain_value(like.spec.args)),
    )


async def _found_like(call: Call[Any, Any], job: str | None) -> Job | None:
    if job is None:
        return None
    found = await (await call.client()).get(job)
    call.check_queue(found.spec.queue)
    return found


def _form_values(arguments: object) -> dict[str, str]:
    """The arguments as a person would type them: text as it is, everything else as JSON."""
    if not isinstance(arguments, dict):
        return {}
    return {
        str(name): value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in arguments.items()
    }
