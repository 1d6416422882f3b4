"""Requests that nobody sends by accident: each is answered with a problem document, and changes nothing."""

from __future__ import annotations

import json

import pytest
from server_world import problem

from daybreak.server import application

API = "/api/v1"
JOBS = f"{API}/jobs"
JSON = {"content-type": "application/json"}


async def post(client, body, path=JOBS, **headers):
    return await client.post(path, content=body, headers={**JSON, **headers})


async def nothing_happened(app):
    return sum((await (await app.client()).count()).values()) == 0


async def test_a_body_of_two_mebibytes_is_413(app, admin):
    problem(await post(admin, json.dumps({"task": "mail", "args": {"x": "x" * 2**21}})), 413, "too-large")

    async def without_length():
        for _ in range(32):
            yield b" " * 65536

    problem(await admin.post(JOBS, content=without_length(), headers=JSON), 413, "too-large")
    assert await nothing_happened(app)


@pytest.mark.parametrize("depth", [65, 100, 1000, 100_000])
async def test_what_is_nested_too_deeply_is_422(app, admin, depth):
    body = b'{"task": "mail", "args": {"x": ' + b"[" * depth + b"]" * depth + b"}}"
    problem(await post(admin, body), 422, "invalid")
    assert await nothing_happened(app)


async def test_what_is_nested_within_the_limit_is_accepted(admin):
    body = b'{"task": "mail", "args": {"x": ' + b"[" * 60 + b"]" * 60 + b"}}"
    assert (await post(admin, body)).status_code == 201


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        (b'{"task": "\xff\xfe"}', 400, "bad-json"),
        (b'{"task": "mail"', 400, "bad-json"),
        (b"{'task': 'mail'}", 400, "bad-json"),
        (b'{"task": "mail", "args": {"x": NaN}}', 400, "bad-json"),
        (b'{"task": "mail"}{"task": "mail"}', 400, "bad-json"),
        (b'{"task": "\\ud800"}', 400, "bad-json"),
        (b"", 400, "bad-json"),
        (b"\x00", 400, "bad-json"),
        (b'"mail"', 422, "invalid"),
        (b"null", 422, "invalid"),
        (b"[]", 422, "invalid"),
        (b"{}", 422, "invalid"),
        (b'{"task": "mail", "tsak": "x"}', 422, "invalid"),
        (b'{"task": "ma\\u0000il"}', 422, "invalid"),
        (b'{"task": "mail", "retry": 99999999999999999999999999}', 422, "invalid"),
        (b'{"task": "mail", "run_at": "9999-12-31T23:59:59-23:59"}', 422, "invalid"),
        (b'{"task": "mail", "delay": "99999999999999999999d"}', 422, "invalid"),
    ],
)
async def test_a_body_that_cannot_be_right_is_a_problem(app, admin, body, status, name):
    problem(await post(admin, body), status, name)
    assert await nothing_happened(app)


async def test_numbers_of_any_size_are_shown_exactly(admin):
    args = {"big": 10**40, "small": -(2**70), "float": 1e308, "zero": -0.0}
    answer = await post(admin, json.dumps({"task": "mail", "args": args}))
    shown = (await admin.get(f"{JOBS}/{answer.json()['id']}")).json()["args"]
    # Beyond 64 bits as text, because many readers of JSON would round it.
    assert shown == {**args, "big": str(10**40), "small": str(-(2**70))}


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/xml",
     "application/json;charset=utf-16", "application/jsonp"],
)  # fmt: skip
async def test_another_content_type_is_415(app, admin, media_type):
    answer = await admin.post(JOBS, content=b'{"task": "mail"}', headers={"content-type": media_type})
    problem(answer, 415, "unsupported-media-type")
    assert await nothing_happened(app)


async def test_a_body_where_none_is_taken_is_422(admin, jobs):
    problem(await post(admin, b'{"x": 1}', f"{API}/queues/mail/pause"), 422, "invalid")


async def test_line_breaks_in_a_path_add_no_header(admin):
    for path in ("queues", "resources", "jobs"):
        answer = await admin.get(f"{API}/{path}/x%0d%0aset-cookie:%20a=b")
        problem(answer, 404, "not-found")
        assert "set-cookie" not in answer.headers
    problem(await admin.post(f"{API}/queues/x%0d%0ay/pause"), 422, "invalid")


@pytest.mark.parametrize("path", ["%ff%fe", "%00", "..%2f..%2fetc%2fpasswd", "%ed%a0%80", "x" * 5000, "%25", "\u2028"])
async def test_names_that_no_job_can_have_are_404(admin, path):
    problem(await admin.get(f"{JOBS}/{path}"), 404, "not-found")
    problem(await admin.get(f"{API}/queues/{path}"), 404, "not-found")


@pytest.mark.parametrize("route", application.all_routes(), ids=lambda route: f"{route.method}-{route.name}")
async def test_a_get_changes_nothing_whatever_it_is_sent_with(app, admin, jobs, route):
    """Neither a path of a change, nor a header or a parameter that names another method."""
    job = await jobs.submit(queue="mail")
    before = await (await app.client()).get(job)
    path = route.path.format(id=job, name="mail", digest="0" * 64, saga="s1")
    if route.answer_type == "text/event-stream":
        return
    await admin.get(path, headers={"x-http-method-override": "DELETE", "x-method-override": "POST"})
    await admin.get(path, params={"_method": "delete"})
    await admin.request("GET", path, content=b'{"action": "cancel", "filter": {"queue": "mail"}}', headers=JSON)
    client = await app.client()
    assert await client.get(job) == before
    assert await client.store.records("audit") == []
    assert await client.store.records("queue") == []


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PROPFIND", "CONNECT"])
async def test_other_methods_change_nothing(app, admin, jobs, method):
    job = await jobs.submit()
    answer = await admin.request(method, f"{JOBS}/{job}")
    assert answer.status_code in (204, 405)
    assert (await (await app.client()).get(job)).revision == 1


async def test_two_authorization_headers_are_refused(admin):
    headers = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
    problem(await admin.get(JOBS, headers=headers), 401, "unauthenticated")


async def test_two_different_hosts_are_refused(admin):
    answer = await admin.get("/health/live", headers=[("host", "localhost"), ("host", "evil.test")])
    problem(answer, 421, "misdirected")
