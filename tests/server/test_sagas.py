"""Sagas over REST, on the pages of the dashboard, in the metrics and in what `why` says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from saga_world import Sagas
from server_world import problem

from daybreak.api.alerts.figures import FigureReader
from daybreak.policy.alerts import Figure

API = "/api/v1"


@pytest.fixture
async def sagas(app) -> Sagas:
    return Sagas(app)


async def test_sagas_are_listed_by_state_in_pages(sagas, admin):
    for n in range(5):
        await sagas.complete(f"done-{n}")
    await sagas.stick("order-17")
    await sagas.start("order-18")
    everything = (await admin.get(f"{API}/sagas")).json()
    assert [one["id"] for one in everything["sagas"]] == [
        "order-18",
        "order-17",
        *(f"done-{n}" for n in (4, 3, 2, 1, 0)),
    ]
    assert everything["counts"] == {"forward": 1, "compensating": 0, "completed": 5, "compensated": 0, "stuck": 1}
    assert everything["cursor"] is None
    [stuck] = (await admin.get(f"{API}/sagas", params={"state": "stuck"})).json()["sagas"]
    assert stuck == everything["sagas"][1]
    assert (stuck["step"], stuck["steps"], stuck["completed"]) == ("allocate", 2, 0)
    assert stuck["resume_command"] == "daybreak sagas resume order-17"
    seen, cursor = [], None
    while True:
        wanted = {"state": "completed", "limit": 2, **({} if cursor is None else {"cursor": cursor})}
        page = (await admin.get(f"{API}/sagas", params=wanted)).json()
        seen += [one["id"] for one in page["sagas"]]
        cursor = page["cursor"]
        if cursor is None:
            break
        assert len(page["sagas"]) == 2
        await sagas.start(f"new-{cursor}")  # what begins meanwhile moves no page
    assert seen == ["done-4", "done-3", "done-2", "done-1", "done-0"]
    several = (await admin.get(f"{API}/sagas", params={"state": "stuck,completed"})).json()
    assert len(several["sagas"]) == 6
    assert (await admin.get(f"{API}/sagas", params={"name": "other"})).json()["sagas"] == []
    problem(await admin.get(f"{API}/sagas", params={"state": "lost"}), 422, "invalid")


async def test_one_saga_says_what_ran_and_is_as_the_command_line_shows_it(sagas, admin, tmp_path):
    await sagas.stick("order-17")
    found = (await admin.get(f"{API}/sagas/order-17")).json()
    assert (found["state"], found["error"]) == ("stuck", "create: error: ValueError: no pod")
    assert (found["context"], found["context_size"]) == ({"user": "ann", "slot": 3}, len('{"user":"ann","slot":3}'))
    first, second = found["steps"]
    assert (first["state"], first["job_state"], first["attempts"]) == ("undoing", "completed", 1)
    assert (first["undo_jobs"], first["undo_job_state"], first["undo_attempts"]) == (1, "failed", 1)
    assert first["undo_error"] == "error: ValueError: still used"
    assert (second["state"], second["job_state"], second["undo_job"]) == ("failed", "failed", "")
    command = [sys.executable, "-m", "daybreak.cli", "sagas", "show", "order-17", "--json"]
    told = await asyncio.to_thread(
        subprocess.run, [*command, "--url", str(tmp_path / "jobs.db")], capture_output=True, check=True, cwd=tmp_path
    )
    assert json.loads(told.stdout) == found
    missing = problem(await admin.get(f"{API}/sagas/order-71"), 404, "not-found")
    assert "did you mean 'order-17'?" in missing["detail"]


async def test_a_stuck_saga_is_resumed_and_one_that_runs_is_cancelled(sagas, admin):
    await sagas.stick("order-17")
    resumed = (await admin.post(f"{API}/sagas/order-17/resume")).json()
    assert (resumed["state"], resumed["resume_command"]) == ("compensating", None)
    problem(await admin.post(f"{API}/sagas/order-17/resume"), 409, "conflict")
    await sagas.end("order-17")
    assert (await admin.get(f"{API}/sagas/order-17")).json()["state"] == "compensated"
    await sagas.start("order-18")
    await sagas.end("order-18")
    cancelled = (await admin.post(f"{API}/sagas/order-18/cancel")).json()
    assert (cancelled["state"], cancelled["cancelled_by"]) == ("forward", "root")
    await sagas.end("order-18")  # its running step is gone; the completed one is undone
    assert (await admin.get(f"{API}/sagas/order-18")).json()["state"] == "compensating"
    await sagas.end("order-18")
    assert (await admin.get(f"{API}/sagas/order-18")).json()["error"] == "cancelled by root"
    await sagas.complete("order-19")
    refused = problem(await admin.post(f"{API}/sagas/order-19/cancel"), 409, "conflict")
    assert "has completed" in refused["detail"]
    assert "sagas/order-18" in json.dumps((await admin.get(f"{API}/audit")).json())


async def test_a_saga_of_the_app_is_started_once_per_id_and_per_key(sagas, connect, make_token):
    token = await make_token("ann", "submit")
    one, other = await connect(token), await connect(token)
    body = {"saga": "execute", "context": {"user": "ann"}, "id": "order-20"}
    answers = [await http.post(f"{API}/sagas", json=body) for http in (one, other)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (201, {"id": "order-20", "is_new": True}), (200, {"id": "order-20", "is_new": False}),
    ]  # fmt: skip
    assert (await one.get(f"{API}/sagas/order-20")).json()["by"] == "ann"
    changed = {**body, "context": {"user": "bob"}}
    problem(await one.post(f"{API}/sagas", json=changed), 409, "conflict")
    del body["id"]
    keyed = [await http.post(f"{API}/sagas", json=body, headers={"idempotency-key": "k"}) for http in (one, other)]
    assert len({answer.json()["id"] for answer in keyed}) == 1
    fresh = [(await one.post(f"{API}/sagas", json=body)).json()["id"] for _ in range(2)]
    assert len({*fresh, keyed[0].json()["id"]}) == 3
    unknown = problem(await one.post(f"{API}/sagas", json={"saga": "exicute"}), 422, "invalid")
    assert "did you mean 'execute'?" in unknown["detail"]
    problem(await one.post(f"{API}/sagas", json={"saga": "execute", "id": "a/b"}), 422, "invalid")


async def test_a_token_of_one_queue_sees_the_sagas_whose_jobs_are_all_in_it(app, sagas, connect, make_token):
    await sagas.stick("order-17")
    mail = await connect(await make_token("mail", "submit", queues=("mail",)))
    other = await connect(await make_token("other", "submit", queues=("other",)))
    assert [one["id"] for one in (await mail.get(f"{API}/sagas")).json()["sagas"]] == ["order-17"]
    hidden = (await other.get(f"{API}/sagas")).json()
    assert (hidden["sagas"], set(hidden["counts"].values())) == ([], {0})
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/resume")):
        problem(await other.request(method, f"{API}/sagas/order-17{path}"), 403, "forbidden")
    assert "order-17" not in (await other.get(f"{API}/sagas/order-1")).text
    problem(await other.post(f"{API}/sagas", json={"saga": "execute", "id": "order-21"}), 403, "forbidden")
    assert (await mail.get(f"{API}/sagas/order-21")).status_code == 404, "it was refused before it began"
    reader = await connect(await make_token("reader", "read"))
    assert (await reader.post(f"{API}/sagas/order-17/resume")).status_code == 403


async def test_the_pages_show_what_ran_and_how_a_stuck_saga_goes_on(sagas, connect, admin):
    await sagas.complete("order-16")
    await sagas.stick("order-17")
    await sagas.start("order-18")
    listed = (await admin.get("/sagas")).text
    for text in ("order-16", "order-17", "daybreak sagas resume order-17", "/api/v1/sagas/order-17/resume"):
        assert text in listed
    assert "order-16" not in (await admin.get("/sagas", params={"state": "stuck"})).text
    assert "No saga is compensating" in (await admin.get("/sagas", params={"state": "compensating"})).text
    page = (await admin.get("/sagas/order-17")).text
    timeline = page.partition('<ol class="timeline">')[2].partition("</ol>")[0]
    ran = [words.partition("<br>")[0].replace("</b>", "") for words in timeline.split("<b>")[1:]]
    assert [words.partition(" after ")[0] for words in ran] == [
        "allocate completed", "create did not complete", "undo allocate stuck",
    ]  # fmt: skip
    assert "ValueError: still used" in page
    assert 'data-copy="daybreak sagas resume order-17"' in page
    assert "23 bytes of at most 1 MiB" in page
    running = (await admin.get("/sagas/order-18")).text
    assert "create waits" in running
    assert "/api/v1/sagas/order-18/cancel" in running
    reader = (await (await connect()).get("/sagas/order-17")).text
    assert "daybreak sagas resume order-17" in reader
    assert "/api/v1/sagas/order-17/resume" not in reader
    gone = await admin.get("/sagas/order-71")
    assert gone.status_code == 404
    assert "did you mean" in gone.text


async def test_older_sagas_are_on_the_next_page(sagas, admin):
    for n in range(3):
        await sagas.start(f"order-{n}")
    first = (await admin.get("/sagas", params={"limit": 2})).text
    assert "order-0" not in first
    link = first.partition('href="/sagas?limit=2&amp;cursor=')[2].partition('"')[0]
    assert "order-0" in (await admin.get(f"/sagas?limit=2&cursor={link}")).text


async def test_a_job_of_a_saga_names_it(app, sagas, admin, tmp_path):
    await sagas.stick("order-17")
    client = await app.client()
    jobs = {job.spec.task: job.id async for job in client.find_all(run="saga:order-17")}
    for task, part in (("create", "runs step create"), ("release", "undoes step allocate")):
        why = (await admin.get(f"{API}/jobs/{jobs[task]}/why")).json()["saga"]
        assert why == {"id": "order-17", "name": "execute", "step": part.split()[-1], "undo": task == "release"}
        page = (await admin.get(f"/jobs/{jobs[task]}")).text
        assert f'It {part} of saga <a href="/sagas/order-17">order-17</a>' in page
        assert "/runs/saga" not in page
        command = [sys.executable, "-m", "daybreak.cli", "why", jobs[task], "--url", str(tmp_path / "jobs.db")]
        told = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        assert f"It {part} of saga order-17 (execute)." in told.stdout
        assert "daybreak sagas show order-17" in told.stdout
    plain = await client.submit("create", run="saga:order-17", queue="mail")  # it only says so
    assert (await admin.get(f"{API}/jobs/{plain}/why")).json()["saga"] is None


async def test_sagas_are_counted_by_state_in_metrics_and_alerts(app, sagas, connect):
    await sagas.stick("order-17")
    await sagas.complete("order-16")

    async def counted() -> dict[str, float]:
        lines = (await (await connect()).get("/metrics")).text.splitlines()
        found = [line for line in lines if line.startswith('daybreak_sagas{saga="execute"')]
        return {line.split('state="')[1].split('"')[0]: float(line.split()[-1]) for line in found}

    expected = {"forward": 0, "compensating": 0, "completed": 1, "compensated": 0, "stuck": 1}
    assert await counted() == expected
    figures = await FigureReader(await app.client()).read()
    assert Figure("stuck_sagas", "execute", 1.0) in figures
