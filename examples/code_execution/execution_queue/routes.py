"""The routes of the document, and those of its code: for users under `/api/v1`, for administrators under
`/api/v1/admin`. Beside Daybreak's own, with the same tokens and problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import Response
from msgspec import Meta, Struct

from daybreak import values
from daybreak.client.saga_record import read_saga
from daybreak.core.errors import JobNotFound
from daybreak.core.model import Job, State
from daybreak.server.exposition import CONTENT_TYPE
from daybreak.server.live_feed import LiveResponse
from daybreak.server.problems import CONFLICT, NOT_FOUND, QUEUE_FULL, Problem
from daybreak.server.replies import Reply
from daybreak.server.routing import Call, Routes, may
from execution_queue.admin import AdminExecutionService, ExecutionList, ExecutionView, QueueOverview, view_of
from execution_queue.events import PRIORITIES, ExecutionRequested
from execution_queue.metrics import QueueMetrics
from execution_queue.service import EXECUTIONS, ExecutionQueueService, QuotaExceeded, execution_id_of
from execution_queue.settings import MAX_EXECUTIONS_PER_USER, MaxConcurrent, RuntimeSettingsLoader, SystemSettings
from execution_queue.statuses import TERMINAL, Status, status_of

LOOK_EVERY: Final = 0.2  # seconds between two looks of a live stream
KEEP_ALIVE: Final = 15.0

PriorityName = Literal[
    "CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND", "critical", "high", "normal", "low", "background",
]  # fmt: skip
assert {name.upper() for name in PriorityName.__args__} == set(PRIORITIES)  # type: ignore[attr-defined]


class ExecuteBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    script: str
    language: str = "python"
    priority: PriorityName = "NORMAL"
    timeout_seconds: float = 10.0


class Accepted(Struct, frozen=True, kw_only=True):
    execution_id: str
    status: Status
    position: int


class Result(Struct, frozen=True, kw_only=True):
    execution_id: str
    status: Status
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    execution_time: float | None = None
    error: str = ""


class ReasonBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Cancelled(Struct, frozen=True, kw_only=True):
    execution_id: str
    status: Literal["already_cancelled", "cancellation_requested"]


class PriorityBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    priority: PriorityName


class SettingsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting, so that one that is misspelled or forgotten is refused, and does not become its default."""

    max_concurrent_executions: MaxConcurrent


class ListQuery(Struct, frozen=True, kw_only=True):
    status: Status | None = None
    priority: PriorityName | None = None
    user_id: Annotated[str, Meta(max_length=200)] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    skip: Annotated[int, Meta(ge=0, le=9_999)] = 0


class UserListQuery(Struct, frozen=True, kw_only=True):
    status: Status | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    skip: Annotated[int, Meta(ge=0, le=9_999)] = 0


class HistoryEntry(Struct, frozen=True, kw_only=True):
    event_type: str
    at: str
    by: str
    note: str


# -- users -------------------------------------------------------------------------------------------------------------

routes = Routes("executions")
USER: Final = may("submit")


@routes.post("/execute", USER, body=ExecuteBody, answer=Accepted, status=201, refuses=(429,), summary="Run code")
async def execute(call: Call[None, ExecuteBody]) -> Any:
    """The execution is durable when this is answered. With an Idempotency-Key there is one, however often the request
    is sent."""
    call.check_queue(EXECUTIONS)
    service = ExecutionQueueService(call.server.app, user_limit=MAX_EXECUTIONS_PER_USER)
    body = call.body
    event = ExecutionRequested(
        execution_id=await service.new_id(), script=body.script, language=body.language, user_id=call.caller.by,
        priority=body.priority, timeout_seconds=body.timeout_seconds,
    )  # fmt: skip
    try:
        position = await service.enqueue(event, by=call.caller.by)
    except QuotaExceeded as error:
        raise Problem(QUEUE_FULL, str(error), hint="wait until one of them has ended") from None
    return msgspec.to_builtins(Accepted(execution_id=event.execution_id, status="queued", position=position))


@routes.get("/executions/{id}/result", USER, answer=Result, others={202: "It has not ended"}, summary="How it ended")
async def show_result(call: Call[None, None]) -> Any:
    job = await own_execution(call)
    result = msgspec.to_builtins(await result_of(call, job))
    return result if job.is_final else Reply(result, 202, {"retry-after": "1"})


@routes.post(
    "/executions/{id}/cancel", USER, body=ReasonBody, body_is_optional=True, answer=Cancelled, refuses=(409,),
    summary="Cancel an execution",
)  # fmt: skip
async def cancel(call: Call[None, ReasonBody]) -> Any:
    """Pending or active. One that has ended otherwise cannot be cancelled."""
    job = await own_execution(call)
    outcome: Literal["already_cancelled", "cancellation_requested"] = "cancellation_requested"
    if job.state is State.CANCELLED:
        outcome = "already_cancelled"
    elif job.is_final:
        raise Problem(CONFLICT, f"execution {call.path['id']} is {status_of(job)}")
    else:
        await (await call.client()).cancel(job.id, note=call.body.reason)
    return msgspec.to_builtins(Cancelled(execution_id=execution_id_of(job), status=outcome))


@routes.post(
    "/executions/{id}/retry", USER, body=ReasonBody, body_is_optional=True, answer=ExecutionView, refuses=(409,),
    summary="Run an execution again",
)  # fmt: skip
async def retry(call: Call[None, ReasonBody]) -> Any:
    """One that has ended. It keeps its id, and its history goes on."""
    job = await own_execution(call)
    client = await call.client()
    if not job.is_final:
        raise Problem(CONFLICT, f"execution {call.path['id']} is {status_of(job)}: it has not ended")
    await client.retry(job.id, note=call.body.reason)
    return msgspec.to_builtins(view_of(await client.get(job.id)))


@routes.get("/executions/{id}/events", USER, answer=list[HistoryEntry], summary="What happened to an execution")
async def show_events(call: Call[None, None]) -> Any:
    job = await own_execution(call)
    return [
        msgspec.to_builtins(HistoryEntry(event_type=one.kind, at=one.at.isoformat(), by=one.by, note=one.note or ""))
        for one in await (await call.client()).history(job.id)
    ]


@routes.get("/user/executions", USER, query=UserListQuery, answer=ExecutionList, summary="One's own executions")
async def list_own(call: Call[UserListQuery, None]) -> Any:
    call.check_queue(EXECUTIONS)
    query = call.query
    found = await AdminExecutionService(call.server.app).list_executions(
        status=query.status, user_id=call.caller.by, limit=query.limit, skip=query.skip
    )
    return msgspec.to_builtins(found)


@routes.get(
    "/events/executions/{id}", USER, answer=Result, answer_type="text/event-stream", summary="Status and output, live"
)
async def follow(call: Call[None, None]) -> Any:
    """Messages of the types `status` (its status and the number of its latest event), `output` (`text`, and the `run`
    that printed it), and at the end `result`. The id of each says where to go on: a client that sends it as
    `Last-Event-ID` gets no output twice."""
    job = await own_execution(call)
    place = call.request.headers.get("last-event-id") or ""
    await (await call.client()).logs(job.id, after=place)  # a bad place is an error now, not in the stream
    return LiveResponse(call.server.live, stream(call, job.id, place))


async def stream(call: Call[Any, Any], job_id: str, place: str) -> AsyncIterator[bytes]:
    client = await call.client()
    loop = asyncio.get_running_loop()
    told: Status | None = None
    sent_at = loop.time()
    while True:
        try:
            job = await client.get(job_id)
            # Read after the job: what a final job printed is in the store by then, but for what is still on its way.
            logs = await client.logs(job_id, after=place)
        except JobNotFound:
            return
        chunks = []
        if status_of(job) != told:
            told = status_of(job)
            chunks.append(message("status", {"status": told, "event": job.revision}, place))
        chunks += [
            message("output", {"run": piece.fence, "text": piece.text, "skipped": piece.skipped}, "")
            for piece in logs.pieces
        ]
        if logs.next != place and logs.pieces:
            place = logs.next
            chunks.append(f"id: {place}\n\n".encode())
        if told in TERMINAL and not logs.pieces:
            chunks.append(message("result", msgspec.to_builtins(await result_of(call, job)), place))
        if chunks:
            yield b"".join(chunks)
            sent_at = loop.time()
        elif loop.time() - sent_at > KEEP_ALIVE:
            yield b": still here\n\n"
            sent_at = loop.time()
        if told in TERMINAL and not logs.pieces:
            return
        await asyncio.sleep(LOOK_EVERY)


def message(kind: str, data: Any, place: str) -> bytes:
    head = f"id: {place}\n" if place else ""
    return f"{head}event: {kind}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode()


async def own_execution(call: Call[Any, Any]) -> Job:
    """The job of the execution in the path; one of another user is found by administrators only."""
    call.check_queue(EXECUTIONS)
    job = await ExecutionQueueService(call.server.app).find(call.path["id"])
    if job is None or not (call.caller.may("admin") or job.spec.owner == call.caller.by):
        raise Problem(NOT_FOUND, f"no execution {call.path['id']}")
    return job


async def result_of(call: Call[Any, Any], job: Job) -> Result:
    """How an execution ended, with what its pod reported: of a failed one, its saga still knows that."""
    report: dict[str, Any] = {}
    if job.state is State.COMPLETED and job.result is not None:
        report = values.decode((await (await call.server.app.file_store()).with_result(job)).result)
    elif job.is_final:
        found = await read_saga((await call.client()).store, f"{job.id}.{job.fence}")
        if found is not None:
            report = values.decode(bytes(found.saga.context)).get("outcome", {})
    error = report.get("error") or ("" if job.failure is None else job.failure.message) or job.note
    return Result(
        execution_id=execution_id_of(job), status=status_of(job), exit_code=report.get("exit_code"),
        stdout=report.get("stdout", ""), stderr=report.get("stderr", ""),
        execution_time=report.get("execution_time"), error=error,
    )  # fmt: skip


# -- administrators ----------------------------------------------------------------------------------------------------

admin_routes = Routes("executions of all users", prefix="/api/v1/admin")
ADMIN: Final = may("admin")


@admin_routes.get("/executions/", ADMIN, query=ListQuery, answer=ExecutionList, summary="List executions")
async def list_executions(call: Call[ListQuery, None]) -> Any:
    call.check_queue(EXECUTIONS)
    query = call.query
    found = await AdminExecutionService(call.server.app).list_executions(
        status=query.status, priority=query.priority, user_id=query.user_id, limit=query.limit, skip=query.skip
    )
    return msgspec.to_builtins(found)


@admin_routes.put(
    "/executions/{id}/priority", ADMIN, body=PriorityBody, answer=ExecutionView, refuses=(409,),
    summary="Change the priority of a pending execution",
)  # fmt: skip
async def update_priority(call: Call[None, PriorityBody]) -> Any:
    """It takes effect at the next scheduling, and keeps its time of arrival."""
    call.check_queue(EXECUTIONS)
    found = await AdminExecutionService(call.server.app).update_priority(call.path["id"], call.body.priority)
    return msgspec.to_builtins(found)


@admin_routes.get("/executions/queue", ADMIN, answer=QueueOverview, summary="The queue")
async def show_queue(call: Call[None, None]) -> Any:
    call.check_queue(EXECUTIONS)
    return msgspec.to_builtins(await AdminExecutionService(call.server.app).get_queue_status())


@admin_routes.get("/settings", ADMIN, answer=SystemSettings, summary="The settings")
async def show_settings(call: Call[None, None]) -> Any:
    call.check_queue(EXECUTIONS)
    return msgspec.to_builtins(await RuntimeSettingsLoader(call.server.app).load())


@admin_routes.put("/settings", ADMIN, body=SettingsBody, answer=SystemSettings, summary="Change the settings")
async def save_settings(call: Call[None, SettingsBody]) -> Any:
    """The next execution is scheduled by them. What runs goes on."""
    call.check_queue(EXECUTIONS)
    settings = SystemSettings(max_concurrent_executions=call.body.max_concurrent_executions)
    return msgspec.to_builtins(await RuntimeSettingsLoader(call.server.app).save(settings))


@admin_routes.get(
    "/executions/metrics", ADMIN, answer=str, answer_type="text/plain", summary="The five instruments, for Prometheus"
)
async def show_metrics(call: Call[None, None]) -> Any:
    call.check_queue(EXECUTIONS)
    return Response(await QueueMetrics(call.server.app).text(), media_type=CONTENT_TYPE)


@routes.delete("/executions/{id}", ADMIN, answer=None, status=204, summary="Delete an execution")
@admin_routes.delete("/executions/{id}", ADMIN, answer=None, status=204, summary="Delete an execution")
async def delete(call: Call[None, None]) -> Any:
    """Pending and active ones are cancelled first."""
    call.check_queue(EXECUTIONS)
    client = await call.client()
    job = await AdminExecutionService(call.server.app).get(call.path["id"])
    if not job.is_final:
        await client.cancel(job.id, note="deleted")
    if (await client.get(job.id)).is_final:
        await client.remove(job.id)
    return Reply(None, 204)
