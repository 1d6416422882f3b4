"""`/jobs`: submit, list and look at jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from daybreak.api.job_filter import find_jobs
from daybreak.api.report import read_clusters
from daybreak.api.views.job import event_view, job_view
from daybreak.api.views.job_logs import logs_view
from daybreak.api.views.job_stack import stack_view
from daybreak.api.views.report import cluster_view
from daybreak.api.views.why import summary_view, why_view
from daybreak.api.why import explain, read_situation, summarise
from daybreak.client.client import Client, accepted_id
from daybreak.core.errors import DaybreakError, KeyConflict
from daybreak.core.model import Job, JobSpec, State
from daybreak.core.units import duration, instant, moment, priority
from daybreak.policy.job_filter import JobFilter
from daybreak.server.bodies.failures import FailureList, FailureQuery
from daybreak.server.bodies.job_changes import FilterBody
from daybreak.server.bodies.jobs import (
    EventList,
    JobBody,
    JobLogBody,
    JobPage,
    JobQuery,
    JobResult,
    JobStackBody,
    LogQuery,
    WhyBody,
    WhySummary,
)
from daybreak.server.bodies.statuses import TaskStatusBody
from daybreak.server.bodies.submissions import BatchAnswer, BatchBody, SubmitBody, Submitted
from daybreak.server.idempotency import KeyedRequest, keyed_request
from daybreak.server.problems import FORBIDDEN, INVALID, KEY_REUSED, Problem, problem_of
from daybreak.server.replies import Reply
from daybreak.server.routing import API, Call, Routes, may, root_path
from daybreak.server.submission import spec_for
from daybreak.sqs.deliveries import deliveries_of
from daybreak.sqs.statuses import read_status
from daybreak.store.protocol import Inserted
from daybreak.telemetry.submit_spans import continued

routes = Routes("jobs")


# -- submit ------------------------------------------------------------------------------------------------------------


@routes.post(
    "/jobs", may("submit"), body=SubmitBody, answer=Submitted, status=201, keeps_own_answers=True,
    others={200: "A job with the same key or unique name stands for it already"}, refuses=(409,),
    summary="Submit a job",
)  # fmt: skip
async def submit_job(call: Call[None, SubmitBody]) -> Any:
    """The job is durable when this is answered. With an Idempotency-Key there is one job, however often the request is
    sent: the key is the job's own key too, unless the body has one."""
    keyed = keyed_request(call)
    if keyed is not None and (kept := await call.server.writes.kept_submit(call, keyed)) is not None:
        return kept
    spec = await spec_for(call, call.body, None if keyed is None else keyed.job_key)
    # By the shared client: requests that come together are inserted together.
    with continued(call.request.headers):
        answer = await (await call.server.app.client()).insert(spec)
    id_ = _id_of(spec, answer, keyed)
    call.server.writes.audit.submits.add(call, int(answer.is_new))
    state, position = await _place_of(await call.client(), id_, answer.state)
    is_new = answer.is_new or (keyed is not None and spec.key == keyed.job_key and answer.same == "key")
    reply = Reply(
        {"id": id_, "state": state.value, "position": position, "created": is_new},
        201 if is_new else 200,
        {"location": f"{root_path(call)}{API}/jobs/{id_}"},
    )
    return reply if keyed is None else await call.server.writes.keep_submit(call, keyed, reply)


def _id_of(spec: JobSpec, answer: Inserted, keyed: KeyedRequest | None) -> str:
    try:
        return accepted_id(spec, answer)
    except KeyConflict as error:
        if keyed is not None and spec.key == keyed.job_key:
            raise _reused(keyed) from error
        raise


async def _place_of(client: Client, job: str, state: State | None) -> tuple[State, int | None]:
    """The state of a job, and how many jobs are claimed before it."""
    if state is None:
        state = (await client.get(job)).state
    if state not in (State.QUEUED, State.BLOCKED):
        return state, None
    position = await client.position(job)
    return state, None if position is None else position.ahead


def _reused(keyed: KeyedRequest) -> Problem:
    return Problem(
        KEY_REUSED,
        f"Idempotency-Key {keyed.key!r} was sent with another job",
        hint="send a new key with a new request",
    )


@routes.post(
    "/jobs/batch", may("submit"), body=BatchBody, answer=BatchAnswer, keeps_own_answers=True, refuses=(409,),
    summary="Submit up to 1,000 jobs",
)  # fmt: skip
async def submit_batch(call: Call[None, BatchBody]) -> Any:
    """Each job is accepted or refused by itself; a refused one carries its problem. With an Idempotency-Key each job
    gets a key of its own, so a repeated request adds no job."""
    keyed = keyed_request(call)
    if keyed is not None and (kept := await call.server.writes.kept_submit(call, keyed)) is not None:
        return kept
    specs: dict[int, JobSpec] = {}
    items: list[dict[str, Any]] = [{} for _ in call.body.jobs]
    for n, body in enumerate(call.body.jobs):
        try:
            specs[n] = await spec_for(call, body, None if keyed is None else f"{keyed.job_key}:{n}")
        except (DaybreakError, Problem) as error:
            items[n] = _refused_item(error)
    shared = await call.server.app.client()
    with continued(call.request.headers):
        answers = await shared.submit_many(specs.values()) if specs else []
    for (n, spec), answer in zip(specs.items(), answers, strict=True):
        items[n] = _batch_item(spec, answer)
    call.server.writes.audit.submits.add(call, sum(answer.is_new for answer in answers))
    accepted = sum(item["id"] is not None for item in items)
    reply = Reply({"accepted": accepted, "jobs": items}, 200)
    # If nothing was accepted, nothing has changed, and the same key may be tried again.
    return reply if keyed is None or not accepted else await call.server.writes.keep_submit(call, keyed, reply)


def _batch_item(spec: JobSpec, answer: Inserted) -> dict[str, Any]:
    try:
        id_ = accepted_id(spec, answer)
    except DaybreakError as error:
        return _refused_item(error)
    state = None if answer.state is None else answer.state.value
    return {"id": id_, "state": state, "created": answer.is_new, "problem": None}


def _refused_item(error: Exception) -> dict[str, Any]:
    return {"id": None, "state": None, "created": False, "problem": problem_of(error).data()}


# -- list and look -----------------------------------------------------------------------------------------------------


@routes.get("/jobs", may("read"), query=JobQuery, answer=JobPage, summary="List jobs")
async def list_jobs(call: Call[JobQuery, None]) -> Any:
    """Newest first; queued jobs alone in the order in which they will run. A page with a time may be short and yet not
    the last: only a cursor of null means the end."""
    client = await call.client()
    wanted = filter_for(call, call.query)
    jobs, cursor = await find_jobs(client, wanted, call.query.limit, call.query.cursor)
    return {"jobs": await job_views(client, jobs), "cursor": cursor}


@routes.get("/jobs/{id}", may("read"), answer=JobBody, summary="One job")
async def show_job(call: Call[None, None]) -> Any:
    """The same fields as `daybreak jobs show --json`."""
    client, job = await found_job(call)
    return (await job_views(client, [job]))[0]


@routes.get(
    "/jobs/{id}/result", may("read"), answer=JobResult, others={202: "The job has not ended yet"},
    summary="How a job ended",
)  # fmt: skip
async def show_result(call: Call[None, None]) -> Any:
    """200 with the result or the error once the job is final; 202 until then."""
    client, job = await found_job(call)
    job = await (await call.server.app.file_store()).with_result(job)
    [view] = await job_views(client, [job])
    data = {name: view[name] for name in ("id", "state", "reason", "result", "error", "progress")}
    if job.is_final:
        return data
    return Reply(data, 202, {"retry-after": "1"})


@routes.get("/jobs/{id}/events", may("read"), answer=EventList, summary="The history of a job")
async def list_job_events(call: Call[None, None]) -> Any:
    """All events of one job, the first one first, with who caused each."""
    client, job = await found_job(call)
    return {"events": [event_view(event) for event in await client.history(job.id)]}


@routes.get("/jobs/{id}/logs", may("read"), query=LogQuery, answer=JobLogBody, summary="What a job printed and logged")
async def show_logs(call: Call[LogQuery, None]) -> Any:
    """The first and the last 64 KiB of each of the latest 5 attempts. Output of a running job arrives about once a
    second: ask again with `after`. The text is as the job printed it, control characters included."""
    client, job = await found_job(call)
    return logs_view(await client.logs(job.id, attempt=call.query.attempt, after=call.query.after or ""))


@routes.get(
    "/jobs/{id}/stack", may("read"), answer=JobStackBody, refuses=(409,), summary="The current stack of a running job"
)  # fmt: skip
async def show_stack(call: Call[None, None]) -> Any:
    """Its worker is asked, on whichever machine it runs, and answers within 5 s; otherwise the note says that it did
    not. Local variables are not shown."""
    client, job = await found_job(call)
    return stack_view(await client.stack(job.id))


@routes.get(
    "/jobs/{id}/status", may("read"), answer=TaskStatusBody, summary="Pending, In-progress, Completed or Failed"
)
async def show_status(call: Call[None, None]) -> Any:
    """The status in the words of the Orchestrator V2 document, for jobs that run on remote workers too: who runs it,
    when that worker was last heard of, and why the last attempt failed."""
    client, job = await found_job(call)
    found = await read_status(client.store, job, moment(client.wall()))
    return msgspec.to_builtins(found)


async def found_job(call: Call[Any, Any]) -> tuple[Client, Job]:
    """The job of the path, if the caller may see it."""
    client = await call.client()
    job = await client.get(call.path["id"])
    call.check_queue(job.spec.queue)
    return client, job


async def job_views(client: Client, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Jobs as JSON data. One call to the store reads all their histories."""
    now = moment(client.wall())
    deliveries = await deliveries_of(client.store, jobs)
    if len(jobs) == 1:
        return [job_view(jobs[0], await client.store.history(jobs[0].id), now, deliveries[0])]
    packed = await client.store.pack([job.id for job in jobs]) if jobs else []
    # A job that was removed meanwhile is shown as it was found.
    histories = [[] if one is None else one.history for one in packed]
    return [
        job_view(job, history, now, delivery)
        for job, history, delivery in zip(jobs, histories, deliveries, strict=True)
    ]


# -- filters -----------------------------------------------------------------------------------------------------------


def filter_for(call: Call[Any, Any], given: JobQuery | FilterBody) -> JobFilter:
    """Build the filter of a request. For a caller who is limited to one queue, the filter selects that queue; a caller
    who is limited to several must name one."""
    queue = given.queue
    allowed = call.caller.queues
    if queue is None and allowed is not None:
        if len(allowed) != 1:
            names = ", ".join(sorted(allowed))
            raise Problem(FORBIDDEN, f"{call.caller.by!r} may use only these queues: {names}; name one with queue=")
        [queue] = allowed
    if queue is not None:
        call.check_queue(queue)
    now = moment(call.server.app.world.wall())
    return JobFilter(
        states=tuple(dict.fromkeys(State(word) for word in given.state)),
        reason=given.reason,
        queue=queue,
        task=given.task,
        run=given.run,
        owner=given.owner,
        key=given.key,
        priority=None if given.priority is None else priority_of(given.priority),
        tag=given.tag,
        since=None if given.since is None else past(given.since, "since", now),
        until=None if given.until is None else past(given.until, "until", now),
        cluster=given.cluster,
    )


def priority_of(value: int | str) -> int:
    """Parse a priority from a body or a query, where numbers may be text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return priority(int(value))
    return priority(value)


def past(text: str, what: str, now: datetime) -> datetime:
    """Parse an instant, or an age such as `1d`."""
    if text[:4].isdigit() and text[4:5] == "-":
        try:
            return instant(datetime.fromisoformat(text), what)
        except ValueError as error:
            raise Problem(INVALID, f"{what}: {text!r} is not an instant with a time zone: {error}") from None
    try:
        return now - duration(text, what)
    except OverflowError:
        raise Problem(INVALID, f"{what}: {text!r} ago is before the year 1") from None


# -- why ---------------------------------------------------------------------------------------------------------------


@routes.get("/jobs/{id}/why", may("read"), answer=WhyBody, summary="Why a job does not run, and what to do")
async def show_why(call: Call[None, None]) -> Any:
    """The causes, what is in the way, the command that removes each cause, and the expected start as a range."""
    client, job = await found_job(call)
    return why_view(explain(await read_situation(client, job.id)))


@routes.get("/why", may("read", needs_all_queues=True), answer=WhySummary, summary="What all waiting jobs wait for")
async def show_why_summary(call: Call[None, None]) -> Any:
    """Counted from the counters of the store, the most frequent cause first."""
    return {"causes": summary_view(await summarise(await call.client()))}


@routes.get("/failures", may("read"), query=FailureQuery, answer=FailureList, summary="Failed jobs, grouped by cause")
async def show_failures(call: Call[FailureQuery, None]) -> Any:
    """Two failures are in one cluster if their errors differ only in addresses, paths, ids, times and numbers. The
    field `cluster` of a filter selects the jobs of one. Jobs that were retried are not failed any more."""
    query = call.query
    wanted = FilterBody(
        queue=query.queue, task=query.task, run=query.run, owner=query.owner, since=query.since, until=query.until
    )
    found = await read_clusters(await call.client(), filter_for(call, wanted))
    return {
        "clusters": [cluster_view(cluster) for cluster in found.clusters],
        "jobs": found.jobs,
        "complete": found.is_all,
    }
