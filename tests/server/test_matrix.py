"""Every route with every kind of caller: generated from the routes, so that a new route is in it from its first day."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from saga_world import Sagas
from server_world import LOCAL

from daybreak.client.schedule_changes import save_schedule
from daybreak.client.schedule_record import Declaration
from daybreak.core.model import JobSpec
from daybreak.core.units import moment
from daybreak.policy.schedules.timing import parse_timing
from daybreak.runs.record import RunRecord, Summary, write_run
from daybreak.server import application, asgi
from daybreak.server.access.tokens import revoke_token
from daybreak.server.bodies.examples import EXAMPLES
from daybreak.server.bodies.job_changes import BulkBody
from daybreak.server.bodies.submissions import SubmitBody
from daybreak.server.settings import ServerSettings

ROUTES = application.all_routes()
CLOSED = [route for route in ROUTES if route.policy.role is not None]
MAY = {
    "read": {"read"},
    "submit": {"read", "submit"},
    "work": {"work"},
    "admin": {"read", "submit", "work", "admin"},
}
NAMED_BY_QUERY = {
    "list_jobs",
    "show_jobs",
    "show_failures_page",
    "show_failures",
    "show_stats",
    "show_retries",
    "show_timeouts",
    "follow_events",
}
# What a caller of other queues gets where a list is cut to the caller's own queues.
CUT = {
    "list_queues": {"queues": []},
    "list_schedules": {"schedules": []},
    "list_runs": {"runs": [], "cursor": None},
    "list_sagas": {
        "sagas": [],
        "cursor": None,
        "counts": {"forward": 0, "compensating": 0, "completed": 0, "compensated": 0, "stuck": 0},
    },
    "submit_batch": None,
    "show_session": None,
    "delete_session": None,
    "show_submit": None,
}


async def ask(server, route, token=None, **path):
    """The status and the body of an answer. Of a stream, which has no end, the status alone."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    body = json.dumps(body_of(route)).encode() if route.body is not None else b""
    query = b"queue=mail" if route.name in NAMED_BY_QUERY else b""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": route.method, "scheme": "http",
        "path": route.path.format(**path), "raw_path": route.path.format(**path).encode(), "query_string": query,
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("localhost", 80), "root_path": "",
    }  # fmt: skip
    started, sent = asyncio.get_running_loop().create_future(), []

    async def receive():
        if receive.first:
            receive.first = False
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.start":
            started.set_result(message["status"])

    receive.first = True
    answering = asyncio.create_task(server(scope, receive, send))
    status = await asyncio.wait_for(started, 30)
    if route.answer_type == "text/event-stream" and status == 200:
        answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    return status, b"".join(message.get("body", b"") for message in sent[1:])


def body_of(route):
    if route.body is SubmitBody:
        return {"task": "mail", "queue": "mail"}
    if route.body is BulkBody:
        return {"action": "cancel", "filter": {"queue": "mail"}, "dry_run": True}
    return EXAMPLES[route.body]


@pytest.fixture
async def path(app, jobs):
    now = moment((await app.client()).wall())
    design = Summary(total=1, points="")
    run = RunRecord(
        task="mail", version=1, code="", design=design, created_at=now, started_at=now, queue="mail", submitted=True
    )
    await write_run((await app.client()).store, "mail", run, 0)
    await save_mail_schedule(app)
    app.task(name="mail", queue="mail")(lambda: None)
    sagas = Sagas(app)
    await sagas.start("mail")
    job = await jobs.submit(queue="mail", delay="1h", run="mail")
    yield {"id": job, "name": "mail", "saga": "mail", "digest": "f" * 64}
    del sagas  # the app knows its sagas as long as somebody keeps them


async def save_mail_schedule(app):
    job = JobSpec(id="", task="mail", queue="mail")
    await save_schedule(await app.client(), "mail", Declaration(timing=parse_timing(every="1h"), spec=job))


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: route.name)
async def test_each_route_lets_in_those_it_should_and_nobody_else(app, make_token, path, world, route):
    server, local = asgi(app, ServerSettings()), asgi(app, LOCAL)
    role = route.policy.role
    status, body = await ask(server, route, **path)
    assert status == 401, "without a token"
    if b'"hint"' in body:  # pages ask to sign in
        assert f"--role {role};" in json.loads(body)["hint"], "the token that would do"
    open_to_readers = role == "read"
    assert ((await ask(local, route, **path))[0] == 401) is not open_to_readers, "without a token, on this machine"
    for own, granted in MAY.items():
        status, body = await ask(server, route, await make_token(own, own), **path)
        if role in granted:
            assert status not in (401, 403, 500, 503), (own, status, body)
        else:
            assert status == 403, (own, status, body)
    await save_mail_schedule(app)  # one of them may have removed it
    status, body = await ask(server, route, await make_token("elsewhere", "admin", queues=["elsewhere"]), **path)
    if route.name in CUT:
        assert status in (200, 204), (status, body)
        if CUT[route.name] is not None:
            assert json.loads(body) == CUT[route.name]
        if route.name == "submit_batch":
            assert json.loads(body)["accepted"] == 0
    else:
        assert status == 403, ("wrong queue", status, body)
    expired = await make_token("expired", "admin", expires_in=timedelta(seconds=1))
    revoked = await make_token("revoked", "admin")
    client = await app.client()
    await revoke_token(client.store, "revoked", now=moment(client.wall()))
    assert (await ask(server, route, revoked, **path))[0] == 401, "revoked"
    world.ahead = timedelta(seconds=2)
    assert (await ask(server, route, expired, **path))[0] == 401, "expired"


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: route.name)
async def test_a_token_of_the_right_queue_passes_unless_the_route_is_about_all_queues(app, make_token, path, route):
    token = await make_token("mail", "admin", queues=["mail"])
    status, body = await ask(asgi(app, ServerSettings()), route, token, **path)
    assert (status == 403) is route.policy.needs_all_queues, (status, body)


def test_what_is_open_to_everybody_is_written_down_here():
    """A route that becomes public by mistake fails this test."""
    assert {(route.method, route.path) for route in ROUTES if route.policy.role is None} == {
        ("GET", "/health/live"), ("GET", "/health/ready"), ("GET", "/api/v1/openapi.json"),
        ("GET", "/sign-in"), ("POST", "/sign-in"), ("GET", "/static/{name}"),
    }  # fmt: skip


def test_only_get_needs_no_more_than_the_role_read():
    assert {route.name for route in ROUTES if route.policy.role == "read" and route.changes} == {"delete_session"}
