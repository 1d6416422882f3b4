"""`/cache` over HTTP, and its page."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from server_world import problem

from daybreak.core.model import Caching, Done, Options

CACHED = Options(cache=Caching())


@pytest.fixture
async def known(app, jobs):
    """A known result of the task simulate, computed by this job; and one that used it."""
    client = await app.client()

    async def submit(vin: float, flight: str) -> str:
        spec = client.spec("simulate", {"vin": vin}, queue="mail")
        parts = {"version": "1", "argument vin": f"{vin}"}
        spec = replace(spec, flight=flight, flight_parts=parts, options=CACHED)
        return await client.submit(spec)

    first = await submit(24.0, "ab" * 20)
    [lease] = await jobs.claim("mail")
    await jobs.settle(lease, Done(b"12.0", ran=0.5))
    second = await submit(24.0, "ab" * 20)
    other = await submit(25.0, "cd" * 20)
    return first, second, other


async def test_figures_entries_and_why(admin, known):
    first, second, other = known
    figures = (await admin.get("/api/v1/cache")).json()
    assert (figures["entries"], figures["hits"], figures["hit_rate"], figures["saved"]) == (1, 1, 0.5, 0.5)
    assert figures["tasks"][0]["task"] == "simulate"
    [entry] = (await admin.get("/api/v1/cache/entries", params={"task": "simulate"})).json()["entries"]
    assert (entry["job"], entry["size"], entry["hits"], entry["until"]) == (first, 4, 1, None)
    hit = (await admin.get(f"/api/v1/jobs/{second}/cache")).json()
    assert (hit["outcome"], hit["cached_from"]) == ("cached", first)
    assert (await admin.get(f"/api/v1/jobs/{second}")).json()["cached_from"] == first
    miss = (await admin.get(f"/api/v1/jobs/{other}/cache")).json()
    assert miss["nearest"]["job"] == first
    assert miss["differences"] == [{"kind": "argument", "name": "vin", "before": "24.0", "now": "25.0"}]
    problem(await admin.get("/api/v1/jobs/0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d/cache"), 404, "not-found")


async def test_results_are_dropped_and_counted_before(admin, known):
    first, second, _ = known
    for body in ({"task": "simulate"}, {"job": second}, {"flight": "ab" * 20}):
        answer = await admin.post("/api/v1/cache/invalidate", json={**body, "dry_run": True})
        assert answer.json() == {"dropped": 1, "dry_run": True}
    problem(await admin.post("/api/v1/cache/invalidate", json={}), 422, "invalid")
    problem(await admin.post("/api/v1/cache/invalidate", json={"task": "a", "job": first}), 422, "invalid")
    assert (await admin.post("/api/v1/cache/clear", json={"dry_run": True})).json()["dropped"] == 1
    assert (await admin.post("/api/v1/cache/invalidate", json={"task": "simulate"})).json()["dropped"] == 1
    assert (await admin.post("/api/v1/cache/clear")).json() == {"dropped": 0, "dry_run": False}
    assert (await admin.get(f"/api/v1/jobs/{second}/result")).json()["result"] == 12.0  # who has it keeps it


async def test_a_submit_may_bypass_the_cache_only_where_the_code_is_known(admin):
    body = {"task": "mail", "cache": "refresh"}
    found = problem(await admin.post("/api/v1/jobs", json=body), 422, "invalid")
    assert "this server has no app" in found["detail"]
    assert (await admin.post("/api/v1/jobs", json={"task": "mail", "cache": False})).status_code == 201
    problem(await admin.post("/api/v1/jobs", json={"task": "mail", "cache": "sometimes"}), 422, "invalid")


async def test_the_page_shows_figures_and_results_and_escapes_names(admin, known, app, jobs):
    page = (await admin.get("/cache")).text
    assert "1 result of 4 bytes" in page
    assert f'href="/jobs/{known[0]}"' in page
    assert "which saved 500 ms" in page
    [data] = re.findall(r'data-body="([^"]*)"', page)
    assert data == "{&#34;task&#34;: &#34;simulate&#34;}"
    assert f"/jobs/{known[0]}" in (await admin.get(f"/jobs/{known[1]}")).text


async def test_an_empty_page_teaches(admin):
    assert "@app.task(cache=True)" in (await admin.get("/cache")).text


async def test_metrics_count_hits_and_the_time_saved(admin, known):
    text = (await admin.get("/metrics")).text
    assert 'daybreak_jobs_cached_total{priority="normal",queue="mail",task="simulate"} 1.0' in text
    assert 'daybreak_cache_saved_seconds_total{queue="mail",task="simulate"} 0.5' in text
    assert 'daybreak_jobs_completed_total{priority="normal",queue="mail",task="simulate"} 2.0' in text
    assert 'daybreak_attempts_total{priority="normal",queue="mail",task="simulate"} 1.0' in text


async def test_jobs_that_need_no_run_of_their_own_are_created_like_any_other(app, connect, make_token, jobs):
    @app.task(cache=True)
    def simulate(vin: float) -> float: ...

    admin = await connect(await make_token("root", "admin"))
    body = {"task": "simulate", "args": {"vin": 1.0}}
    leads, follows = [await admin.post("/api/v1/jobs", json=body) for _ in range(2)]
    await jobs.settle((await jobs.claim("default"))[0], Done(b"0.5", ran=0.5))
    known = await admin.post("/api/v1/jobs", json=body)
    assert [answer.status_code for answer in (leads, follows, known)] == [201] * 3
    assert [answer.json()["created"] for answer in (leads, follows, known)] == [True] * 3
    assert [answer.json()["state"] for answer in (leads, follows, known)] == ["queued", "blocked", "completed"]
    [first, second] = (await admin.post("/api/v1/jobs/batch", json={"jobs": [body, body]})).json()["jobs"]
    assert (first["created"], second["created"]) == (True, True)
