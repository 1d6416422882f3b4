"""`/sagas`: steps that belong together, and are undone in reverse order if one of them fails."""

from __future__ import annotations

import hashlib
from typing import Any

from daybreak.api.views.saga import saga_row, saga_view
from daybreak.client.saga_changes import cancel_saga, find_saga, resume_saga
from daybreak.client.saga_record import queues_of
from daybreak.config import closest
from daybreak.core.errors import SagaNotFound
from daybreak.sagas.saga import begin_saga
from daybreak.sagas.saga_info import saga_info
from daybreak.sagas.saga_pages import page_of_sagas
from daybreak.server.bodies.sagas import SagaBody, SagaList, SagaQuery, SagaStart, SagaStarted
from daybreak.server.problems import INVALID, NOT_FOUND, Problem
from daybreak.server.replies import Reply
from daybreak.server.routing import Call, Routes, may

routes = Routes("sagas")


@routes.get("/sagas", may("read"), query=SagaQuery, answer=SagaList, summary="List sagas")
async def list_sagas(call: Call[SagaQuery, None]) -> Any:
    """The sagas all of whose jobs are in queues that the caller may use, the newest first."""
    query = call.query
    page = await page_of_sagas(
        await call.client(),
        states=query.state,
        name=query.name,
        limit=query.limit,
        cursor=query.cursor,
        may_use=call.caller.may_use,
    )
    return {"sagas": [saga_row(one) for one in page.sagas], "counts": page.counts, "cursor": page.cursor}


@routes.post(
    "/sagas", may("submit"), body=SagaStart, answer=SagaStarted, status=201, refuses=(409,),
    others={200: "It was started before"}, summary="Start a saga",
)  # fmt: skip
async def start_saga(call: Call[None, SagaStart]) -> Any:
    """The app of the server declares its steps: start the server with `daybreak serve TARGET`. It is durable when this
    returns. An id that was used for other steps or another context is refused (409)."""
    declared = call.server.app.declared_sagas
    saga = declared.get(call.body.saga)
    if saga is None:
        close = closest(call.body.saga, declared)
        hint = f"did you mean {close!r}?" if close else "the app of this server declares none of this name"
        raise Problem(INVALID, f"no saga named {call.body.saga!r}; {hint}")
    client, wanted = await call.client(), call.body.id or _id_of_key(call)
    run_id, is_new = await begin_saga(saga, client, call.body.context, wanted, check_queue=call.check_queue)
    return Reply({"id": run_id, "is_new": is_new}, 201 if is_new else 200)


@routes.get("/sagas/{saga}", may("read"), answer=SagaBody, summary="One saga")
async def show_saga(call: Call[None, None]) -> Any:
    """Its steps in order, when each ran and was undone, their jobs, and the context."""
    return saga_view(await saga_info(await call.client(), await _allowed(call)))


@routes.post(
    "/sagas/{saga}/cancel", may("submit"), answer=SagaBody, refuses=(409,), summary="Cancel a saga and undo its steps"
)  # fmt: skip
async def cancel_one_saga(call: Call[None, None]) -> Any:
    """The running step is stopped, and the completed ones are undone in reverse order. A saga that has completed is
    refused (409)."""
    client, run_id = await call.client(), await _allowed(call)
    await cancel_saga(client, run_id)
    return saga_view(await saga_info(client, run_id))


@routes.post(
    "/sagas/{saga}/resume", may("submit"), answer=SagaBody, refuses=(409,), summary="Continue a saga that is stuck"
)  # fmt: skip
async def resume_one_saga(call: Call[None, None]) -> Any:
    """The undo that failed is tried again. A saga that is not stuck is refused (409)."""
    client, run_id = await call.client(), await _allowed(call)
    await resume_saga(client, run_id)
    return saga_view(await saga_info(client, run_id))


async def _allowed(call: Call[Any, Any]) -> str:
    """The id of the saga of the path, if the caller may use the queues of all its jobs."""
    try:
        found = await find_saga(await call.client(), call.path["saga"])
    except SagaNotFound:
        if call.caller.queues is None:
            raise
        # The error suggests ids of other sagas, which may be of queues that the caller may not see.
        raise Problem(NOT_FOUND, f"no saga with id {call.path['saga']!r}") from None
    for queue in sorted(queues_of(found.saga.definition)):
        call.check_queue(queue)
    return found.id


def _id_of_key(call: Call[Any, Any]) -> str | None:
    """The id of the saga if the request has a key, so that one that is repeated after a server was killed is the same
    saga."""
    sent = call.request.headers.get("idempotency-key")
    if not sent:
        return None
    return "request-" + hashlib.sha256(f"{call.caller.by}\0{sent}".encode()).hexdigest()[:32]
