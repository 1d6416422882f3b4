"""Schedules over REST, on the page of the dashboard, and in the metrics."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta

import pytest

from daybreak.services.schedule_ticker import ScheduleTicker

API = "/api/v1"


@pytest.fixture
async def schedules(app):
    """Two schedules of a task in a queue of its own."""

    @app.task(queue="mail")
    def send(to: str) -> str:
        return to

    await app.schedule("nightly", send, cron="30 2 * * *", tz="Europe/Berlin", args={"to": "<b>ann</b>"}).asave()
    await app.schedule("quarters", send, every="15m", args=["bob"], overlap="allow").asave()
    return app


async def test_schedules_are_listed_and_shown_as_the_command_line_does(schedules, admin, tmp_path):
    found = (await admin.get(f"{API}/schedules")).json()["schedules"]
    assert [one["name"] for one in found] == ["nightly", "quarters"]
    command = [sys.executable, "-m", "daybreak.cli", "schedules", "--json", "--url", str(tmp_path / "jobs.db")]
    told = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True, cwd=tmp_path)
    assert json.loads(told.stdout)["schedules"] == found
    nightly = (await admin.get(f"{API}/schedules/nightly")).json()
    assert nightly == found[0]
    assert (nightly["words"], nightly["queue"]) == ("at 02:30 every day, Europe/Berlin time", "mail")
    previewed = (await admin.get(f"{API}/schedules/nightly/preview", params={"n": 3})).json()
    assert len(previewed["ticks"]) == 3
    assert previewed["ticks"][0]["at"] == nightly["next_tick"]
    for path in ("", "/preview"):
        answer = await admin.get(f"{API}/schedules/nightyl{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert "did you mean 'nightly'?" in answer.json()["detail"]
    assert (await admin.get(f"{API}/schedules/nightly/preview", params={"n": 0})).status_code == 422


async def test_a_schedule_is_paused_resumed_run_and_removed(schedules, admin, jobs):
    paused = (await admin.post(f"{API}/schedules/nightly/pause")).json()
    assert (paused["state"], paused["paused_by"], paused["next_tick"]) == ("paused", "root", None)
    assert (await admin.post(f"{API}/schedules/nightly/resume")).json()["state"] == "active"
    first = (await admin.post(f"{API}/schedules/nightly/run-now")).json()
    assert first["is_new"]
    again = (await admin.post(f"{API}/schedules/nightly/run-now")).json()
    assert again == {**first, "is_new": False}
    job = (await admin.get(f"{API}/jobs/{first['job']}")).json()
    assert (job["args"], job["tags"], job["queue"]) == ({"to": "<b>ann</b>"}, ["schedule:nightly"], "mail")
    assert (await admin.delete(f"{API}/schedules/nightly")).json() == {"removed": "nightly"}
    assert (await admin.delete(f"{API}/schedules/nightly")).status_code == 404
    audited = (await admin.get(f"{API}/audit")).json()
    assert "schedules/nightly" in json.dumps(audited)


async def test_a_repeated_request_with_its_key_is_one_job_on_any_server(schedules, connect, make_token):
    token = await make_token("ann", "submit")
    one, other = await connect(token), await connect(token)
    headers = {"idempotency-key": "k1"}
    answers = [await http.post(f"{API}/schedules/quarters/run-now", headers=headers) for http in (one, other)]
    assert len({answer.json()["job"] for answer in answers}) == 1
    fresh = await one.post(f"{API}/schedules/quarters/run-now", headers={"idempotency-key": "k2"})
    assert fresh.json()["is_new"]
    assert (await one.post(f"{API}/schedules/quarters/pause")).status_code == 403


async def test_the_page_shows_when_they_tick_to_each_what_they_may_do(schedules, connect, admin):
    await admin.post(f"{API}/schedules/quarters/pause")
    page = (await admin.get("/schedules")).text
    for text in (
        "at 02:30 every day, Europe/Berlin time",
        "every 15 minutes",
        "paused",
        "run now",
        "/resume",
        "/pause",
    ):
        assert text in page
    reader = (await (await connect()).get("/schedules")).text
    assert "at 02:30 every day" in reader
    assert "run now" not in reader


async def test_an_empty_page_says_how_to_declare_one(connect):
    assert "There are no schedules yet" in (await (await connect()).get("/schedules")).text


async def test_ticks_that_are_late_and_skipped_show_in_the_metrics(schedules, connect, world):
    client = await schedules.client()
    world.ahead = timedelta(hours=2)

    async def late() -> float:
        lines = (await (await connect()).get("/metrics")).text.splitlines()
        [line] = [one for one in lines if one.startswith('daybreak_schedule_late_seconds{schedule="quarters"}')]
        return float(line.split()[-1])

    assert await late() > 6000
    await ScheduleTicker(client.store, world).tick()
    assert await late() == 0
    text = (await (await connect()).get("/metrics")).text
    assert 'daybreak_schedule_ticks_total{schedule="quarters"} 1.0' in text
    assert 'daybreak_schedule_skipped_total{schedule="quarters"} 7.0' in text
