"""The REST API on PostgreSQL and Redis: keys, pages, cursors of strangers, changes of many, and the audit."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from daybreak import Daybreak
from daybreak.core.units import moment
from daybreak.server import asgi
from daybreak.server.access.tokens import create_token

JOBS = "/api/v1/jobs"


@pytest.fixture
async def app(url):
    app = Daybreak(url)
    yield app
    await app.aclose()


@pytest.fixture
async def admin(app):
    client = await app.client()
    _, token = await create_token(client.store, "root", ["admin"], now=moment(client.wall()))
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(asgi(app)), base_url="http://jobs.test", headers=headers
    ) as http:
        yield http


async def test_one_job_and_one_answer_for_each_key(app, admin):
    async def submit(n):
        return await admin.post(JOBS, json={"task": "mail"}, headers={"idempotency-key": f"k{n % 10}"})

    answers = await asyncio.gather(*(submit(n) for n in range(60)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 10
    assert sum((await (await app.client()).count()).values()) == 10
    for n in range(10):
        assert len({answer.text for answer in answers[n::10]}) == 1


async def test_pages_show_every_job_once_and_strange_cursors_are_422(admin):
    rows = [{"task": "mail", "args": {"n": n}} for n in range(7)]
    made = (await admin.post(f"{JOBS}/batch", json={"jobs": rows})).json()["jobs"]
    seen, cursor = [], {}
    while cursor is not None:
        page = (await admin.get(JOBS, params={"limit": 3, **cursor})).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = None if page["cursor"] is None else {"cursor": page["cursor"]}
    assert seen == [job["id"] for job in made][::-1]
    for strange in ("9" * 200, "x", ":", "nan:1", "1e999:1", "1:99999999999999999999", "-1", "1:2:3:4"):
        for state in ({}, {"state": "queued"}, {"state": "scheduled"}, {"owner": "ann"}):
            answer = await admin.get(JOBS, params={"cursor": strange, **state})
            assert answer.status_code in (200, 422), (strange, state, answer.text)


async def test_many_are_changed_as_the_dry_run_says_and_the_audit_tells(admin):
    rows = [{"task": "mail", "queue": "a", "tags": ["x"] if n % 2 else []} for n in range(9)]
    await admin.post(f"{JOBS}/batch", json={"jobs": rows})
    body = {"action": "cancel", "filter": {"queue": "a", "tag": "x"}}
    dry = (await admin.post(f"{JOBS}/bulk", json={**body, "dry_run": True})).json()
    done = (await admin.post(f"{JOBS}/bulk", json=body, headers={"idempotency-key": "b"})).json()
    assert dry["matching"] == done["changed"] == 4
    again = await admin.post(f"{JOBS}/bulk", json=body, headers={"idempotency-key": "b"})
    assert again.json() == done
    entries = (await admin.get("/api/v1/audit")).json()["entries"]
    told = [(entry["action"], entry["outcome"]) for entry in entries]
    assert told == [("change_jobs", "200"), ("submit_job", "201")]


async def test_health_queues_and_figures_are_answered(admin):
    await admin.post(JOBS, json={"task": "mail", "queue": "a/b"})
    assert (await admin.get("/health/ready")).status_code == 200
    queue = (await admin.patch("/api/v1/queues/a%2Fb", json={"max_running": 3})).json()
    assert (queue["depth"], queue["max_running"], queue["by_priority"]["5"]) == (1, 3, 1)
    for path in ("stats", "retries", "timeouts", "workers", "resources", "locks", "queues"):
        assert (await admin.get(f"/api/v1/{path}")).status_code == 200
