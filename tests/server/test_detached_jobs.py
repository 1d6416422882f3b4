"""Work that goes on elsewhere: finished and extended over HTTP, each attempt once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from server_world import problem

from daybreak.store.protocol import Beat

JOBS = "/api/v1/jobs"


@pytest.fixture
async def detached(app, jobs):
    """A job that goes on elsewhere with fence 1."""
    job = await jobs.run(retry=2)
    client = await app.client()
    found = await client.get(job)
    beat = Beat(seq=found.seq, fence=found.fence, lease_for=timedelta(hours=24), detach=True)
    assert (await client.store.extend([beat]))[0].held
    return job


async def test_a_job_is_finished_and_the_same_outcome_again_answers_as_the_first_time(admin, detached):
    body = {"fence": 1, "result": {"pages": 3}}
    first = await admin.post(f"{JOBS}/{detached}/finish", json=body)
    assert first.json() == {"id": detached, "state": "completed", "attempt": 1, "fence": 1, "repeated": False}
    again = await admin.post(f"{JOBS}/{detached}/finish", json=body)
    assert again.json() == {**first.json(), "repeated": True}
    job = (await admin.get(f"{JOBS}/{detached}")).json()
    assert (job["state"], job["result"], job["detached_until"]) == ("completed", {"pages": 3}, None)
    history = (await admin.get(f"{JOBS}/{detached}/events")).json()["events"]
    assert [(event["kind"], event["by"]) for event in history[2:]] == [("detached", "w1"), ("completed", "root")]
    assert "deadline" in history[2]


async def test_an_idempotency_key_repeats_the_answer(admin, detached):
    body, headers = {"fence": 1, "error": "evicted"}, {"idempotency-key": "outcome-1"}
    first = await admin.post(f"{JOBS}/{detached}/finish", json=body, headers=headers)
    again = await admin.post(f"{JOBS}/{detached}/finish", json=body, headers=headers)
    assert first.json() == again.json()
    assert (first.json()["state"], first.json()["repeated"]) == ("scheduled", False)


async def test_another_outcome_and_another_attempt_are_refused(admin, jobs, detached):
    await admin.post(f"{JOBS}/{detached}/finish", json={"fence": 1, "error": "evicted"})
    for body in ({"fence": 1, "result": 1}, {"fence": 2, "result": 1}, {"fence": 1, "cancelled": True}):
        detail = problem(await admin.post(f"{JOBS}/{detached}/finish", json=body), 409, "conflict")["detail"]
        assert "nothing was written" in detail
    assert (await admin.get(f"{JOBS}/{detached}")).json()["state"] == "scheduled"


async def test_a_job_that_is_not_detached_is_ended_only_by_its_fence(admin, jobs):
    running = await jobs.run()
    problem(await admin.post(f"{JOBS}/{running}/finish", json={"result": 1}), 409, "conflict")
    problem(await admin.post(f"{JOBS}/{running}/extend", json={"deadline": "1h", "fence": 1}), 409, "conflict")
    assert (await admin.post(f"{JOBS}/{running}/finish", json={"result": 1, "fence": 1})).status_code == 200


async def test_a_deadline_is_moved(admin, detached):
    before = (await admin.get(f"{JOBS}/{detached}")).json()["detached_until"]
    answer = await admin.post(f"{JOBS}/{detached}/extend", json={"deadline": "48h", "fence": 1})
    assert answer.status_code == 200
    assert answer.json()["detached_until"] > before
    assert answer.json()["detached_until"] == (await admin.get(f"{JOBS}/{detached}")).json()["detached_until"]
    problem(await admin.post(f"{JOBS}/{detached}/extend", json={"deadline": "48h", "fence": 2}), 409, "conflict")
    problem(await admin.post(f"{JOBS}/{detached}/extend", json={"deadline": "0s"}), 422, "invalid")


@pytest.mark.parametrize("body", [
    {"fence": 0}, {"fence": "1"}, {"error": "no", "cancelled": True}, {"result": 1, "timed_out": True},
    {"permanent": True}, {"unknown": 1}, {"note": "x" * 1001}, [], {"error": "x" * 10_001},
])  # fmt: skip
async def test_an_outcome_that_makes_no_sense_is_refused(admin, detached, body):
    problem(await admin.post(f"{JOBS}/{detached}/finish", json=body), 422, "invalid")
    assert (await admin.get(f"{JOBS}/{detached}")).json()["detached_until"] is not None


async def test_who_may_only_read_finishes_nothing(connect, make_token, detached):
    reader = await connect(await make_token("rob", "read"))
    problem(await reader.post(f"{JOBS}/{detached}/finish", json={"fence": 1}), 403, "forbidden")
    submitter = await connect(await make_token("sue", "submit"))
    problem(await submitter.post(f"{JOBS}/nobody/finish", json={"fence": 1}), 404, "not-found")
    assert (await submitter.post(f"{JOBS}/{detached}/finish", json={"fence": 1})).status_code == 200


async def test_a_detached_job_has_no_stack_and_says_why(admin, detached):
    problem(await admin.get(f"{JOBS}/{detached}/stack"), 409, "conflict")
    [cause] = (await admin.get(f"{JOBS}/{detached}/why")).json()["causes"]
    assert cause["kind"] == "elsewhere"
    assert "goes on elsewhere, deadline in" in cause["text"]
    assert cause["command"] == f"daybreak finish {detached} --fence 1 --result JSON"
    page = (await admin.get(f"/jobs/{detached}")).text
    assert "goes on elsewhere" in page
    assert "detached until" in page
