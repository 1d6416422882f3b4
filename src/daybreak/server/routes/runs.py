"""`/runs`: the jobs of a sweep as one thing."""

from __future__ import annotations

from typing import Any

from daybreak.core.errors import RunNotFound
from daybreak.runs.client_runs import ClientSessions, Place, find_run
from daybreak.runs.record import label_of, split_label
from daybreak.runs.run import Run
from daybreak.runs.run_info import RunInfo
from daybreak.runs.run_pages import page_of_rows, page_of_runs
from daybreak.server.bodies.job_changes import NoteBody, PriorityBody
from daybreak.server.bodies.runs import RowPage, RunBody, RunChanged, RunDelete, RunPage, RunQuery, RunRetryBody
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routes.jobs import priority_of
from daybreak.server.routing import Call, Routes, may

routes = Routes("runs")


@routes.get("/runs", may("read"), query=RunQuery, answer=RunPage, summary="List runs")
async def list_runs(call: Call[RunQuery, None]) -> Any:
    """The runs of the queues that the caller may use, the newest first."""
    client = await call.client()
    found, cursor = await page_of_runs(client, call.query.limit, call.query.cursor, call.caller.may_use)
    return {"runs": [info.as_dict() for info in found], "cursor": cursor}


@routes.get("/runs/{name}", may("read"), answer=RunBody, summary="One run")
async def show_run(call: Call[None, None]) -> Any:
    """The same fields as `daybreak runs show --json`."""
    _, info = await _found(call)
    return info.as_dict()


@routes.get("/runs/{name}/rows", may("read"), query=RunQuery, answer=RowPage, summary="The results of a run")
async def list_run_rows(call: Call[RunQuery, None]) -> Any:
    """A row for each point, also while the run goes on: what has not ended has no result yet. `NAME#1` has the rows
    from before the run was begun anew."""
    _, info = await _found(call)
    _, epoch = split_label(call.path["name"])
    label = info.label if epoch is None else label_of(info.name, epoch)
    client, files = await call.client(), ClientSessions(await call.client(), _files(call)).files
    rows, cursor = await page_of_rows(client, files, label, call.query.limit, call.query.cursor)
    return {"rows": rows, "cursor": cursor}


@routes.post(
    "/runs/{name}/cancel", may("submit"), body=NoteBody, body_is_optional=True, answer=RunChanged,
    summary="Cancel the points that have not ended",
)  # fmt: skip
async def cancel_run(call: Call[None, NoteBody]) -> Any:
    """Waiting points end at once; running ones are asked to stop. Results are kept."""
    run, info = await _found(call)
    return _changed(info, await run.acancel(call.body.note))


@routes.post(
    "/runs/{name}/suspend", may("submit"), body=NoteBody, body_is_optional=True, answer=RunChanged,
    summary="Let no more points of a run start",
)  # fmt: skip
async def suspend_run(call: Call[None, NoteBody]) -> Any:
    """Waiting points are suspended; running ones go on to their end."""
    run, info = await _found(call)
    return _changed(info, await run.asuspend(call.body.note))


@routes.post("/runs/{name}/resume", may("submit"), answer=RunChanged, summary="Let a suspended run go on")
async def resume_run(call: Call[None, None]) -> Any:
    """Suspended points wait for a worker again."""
    run, info = await _found(call)
    return _changed(info, await run.aresume())


@routes.post(
    "/runs/{name}/retry", may("submit"), body=RunRetryBody, body_is_optional=True, answer=RunChanged,
    summary="Run the failed points again",
)  # fmt: skip
async def retry_run(call: Call[None, RunRetryBody]) -> Any:
    """They get their full number of attempts again; with the state `cancelled`, those that were cancelled."""
    run, info = await _found(call)
    return _changed(info, await run.aretry(call.body.state))


@routes.put(
    "/runs/{name}/priority", may("submit"), body=PriorityBody, answer=RunChanged, summary="Change the priority of a run"
)  # fmt: skip
async def set_run_priority(call: Call[None, PriorityBody]) -> Any:
    """Moves the points that wait. A number from 0 to 10, where lower runs first, or a name."""
    run, info = await _found(call)
    return _changed(info, await run.areprioritise(priority_of(call.body.priority)))


@routes.delete(
    "/runs/{name}", may("admin"), query=RunDelete, answer=RunChanged, refuses=(409,), summary="Remove a run"
)  # fmt: skip
async def delete_run(call: Call[RunDelete, None]) -> Any:
    """Removes its jobs and their results too. A run that has not ended is refused (409) without `force=true`."""
    try:
        run, info = await _found(call)
    except (RunNotFound, Problem) as error:
        if call.takes_over is None or (isinstance(error, Problem) and error.kind is not NOT_FOUND):
            raise
        # The first request removed it, and its server was killed before it could answer.
        return {"run": call.path["name"], "changed": 0}
    return _changed(info, await run.adelete(force=call.query.force))


async def _found(call: Call[Any, Any]) -> tuple[Run, RunInfo]:
    """The run of the path and its figures, if the caller may use its queue."""
    try:
        run = await find_run(await call.client(), call.path["name"], _files(call))
    except RunNotFound:
        if call.caller.queues is None:
            raise
        # The error suggests names of other runs, which may be of queues that the caller may not see.
        raise Problem(NOT_FOUND, f"no run named {call.path['name']!r}") from None
    info = await run.ainfo()
    call.check_queue(info.queue)
    return run, info


def _files(call: Call[Any, Any]) -> Place:
    """Where the contents of files are."""
    settings = call.server.app.settings
    return settings.files, settings.url


def _changed(info: RunInfo, n: int) -> dict[str, Any]:
    return {"run": info.name, "changed": n}
