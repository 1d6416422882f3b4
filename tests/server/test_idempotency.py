"""The same Idempotency-Key: one effect and one answer, whatever is killed, repeated or asked at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from server_world import LOCAL, problem

from daybreak.client.server_records import ANSWER_PARTS, answer_kind, forget_answers
from daybreak.core.errors import OutcomeUnknown, StoreUnavailable
from daybreak.core.model import Failed, Failure
from daybreak.core.units import moment
from daybreak.server.settings import ServerSettings

API = "/api/v1"
JOBS = f"{API}/jobs"
KEY = {"idempotency-key": "k-1"}


async def count(app):
    return sum((await (await app.client()).count()).values())


# -- submits -----------------------------------------------------------------------------------------------------------


async def test_the_same_key_gives_one_job_and_the_same_answer(app, admin):
    first = await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    await (await app.client()).cancel(first.json()["id"])
    again = await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    assert (again.status_code, again.json(), again.headers["location"]) == (
        201, first.json(), first.headers["location"]
    )  # fmt: skip
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert await count(app) == 1


async def test_another_server_after_a_restart_repeats_the_answer(app, connect, make_token):
    token = await make_token()
    first = await (await connect(token)).post(JOBS, json={"task": "mail"}, headers=KEY)
    again = await (await connect(token)).post(JOBS, json={"task": "mail"}, headers=KEY)
    assert again.json() == first.json()
    assert await count(app) == 1


@pytest.mark.parametrize("other", [{"task": "mail", "args": {"n": 1}}, {"task": "mail", "priority": 1}])
async def test_the_same_key_for_another_request_is_422(app, admin, other):
    await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    problem(await admin.post(JOBS, json=other, headers=KEY), 422, "key-reused")
    problem(await admin.post(f"{API}/queues/q/pause", headers=KEY), 422, "key-reused")
    assert await count(app) == 1


async def test_an_answer_that_was_never_kept_doubles_no_job(app, admin, monkeypatch):
    """The server is killed between the insert and the record of its answer."""
    client = await app.client()
    put = client.store.put

    async def killed(puts, **how):
        if puts[0].kind.startswith("answer"):
            raise StoreUnavailable("killed here")
        return await put(puts, **how)

    monkeypatch.setattr(client.store, "put", killed)
    problem(await admin.post(JOBS, json={"task": "mail"}, headers=KEY), 503, "store-unavailable")
    monkeypatch.setattr(client.store, "put", put)
    again = await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    assert (again.status_code, again.json()["created"]) == (201, True)
    assert await count(app) == 1
    problem(await admin.post(JOBS, json={"task": "mail", "args": {"n": 1}}, headers=KEY), 422, "key-reused")


async def test_concurrent_requests_with_one_key_give_one_job(app, connect, make_token):
    token = await make_token()
    clients = [await connect(token) for _ in range(4)]
    answers = await asyncio.gather(*(c.post(JOBS, json={"task": "mail"}, headers=KEY) for c in clients * 5))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await count(app) == 1


async def test_keys_of_different_callers_and_of_jobs_never_meet(app, connect, make_token, admin):
    other = await connect(await make_token("other"))
    first = await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    second = await other.post(JOBS, json={"task": "mail"}, headers=KEY)
    third = await admin.post(JOBS, json={"task": "mail", "key": "k-1"})
    assert len({answer.json()["id"] for answer in (first, second, third)}) == 3


async def test_a_body_with_a_key_of_its_own_keeps_it(app, admin):
    body = {"task": "mail", "key": "mine"}
    first = await admin.post(JOBS, json=body, headers=KEY)
    assert (await (await app.client()).get(first.json()["id"])).spec.key == "mine"
    assert (await admin.post(JOBS, json=body, headers=KEY)).json() == first.json()


async def test_a_removed_job_is_not_made_again(app, admin, jobs):
    first = await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    client = await app.client()
    await client.cancel(first.json()["id"])
    await client.remove(first.json()["id"])
    assert (await admin.post(JOBS, json={"task": "mail"}, headers=KEY)).json() == first.json()
    assert await count(app) == 0


async def test_a_refused_submit_can_be_sent_again_with_its_key(app, admin):
    client = await app.client()
    await client.set_queue("small", capacity=0)
    body = {"task": "mail", "queue": "small"}
    problem(await admin.post(JOBS, json=body, headers=KEY), 429, "queue-full")
    await client.set_queue("small", capacity=None)
    assert (await admin.post(JOBS, json=body, headers=KEY)).status_code == 201


async def test_a_batch_is_submitted_once(app, admin, monkeypatch):
    body = {"jobs": [{"task": "mail", "args": {"n": n}} for n in range(5)]}
    first = await admin.post(f"{JOBS}/batch", json=body, headers=KEY)
    assert (await admin.post(f"{JOBS}/batch", json=body, headers=KEY)).json() == first.json()
    store = (await app.client()).store
    for part in range(ANSWER_PARTS):  # as if the server had been killed before it kept the answer
        await forget_answers(store, part, moment(2**52))
    again = (await admin.post(f"{JOBS}/batch", json=body, headers=KEY)).json()
    assert [job["id"] for job in again["jobs"]] == [job["id"] for job in first.json()["jobs"]]
    assert await count(app) == 5


async def test_beyond_the_bound_the_key_of_the_job_still_stands_for_it(app, connect, make_token):
    settings = ServerSettings(hosts=LOCAL.hosts, max_answers=1)
    client = await connect(await make_token(), settings=settings)
    for n in range(3):
        first = await client.post(JOBS, json={"task": "mail"}, headers={"idempotency-key": f"k{n}"})
        again = await client.post(JOBS, json={"task": "mail"}, headers={"idempotency-key": f"k{n}"})
        assert first.json()["id"] == again.json()["id"]
    assert await count(app) == 3


# -- other changes -----------------------------------------------------------------------------------------------------


async def test_a_change_happens_once(admin, jobs):
    job = await jobs.fail()
    first = await admin.post(f"{JOBS}/{job}/retry", headers=KEY)
    [lease] = await jobs.claim()
    await jobs.settle(lease, Failed(Failure(message="no", kinds=("ValueError",))))
    again = await admin.post(f"{JOBS}/{job}/retry", headers=KEY)
    assert again.json() == first.json()
    assert (await admin.get(f"{JOBS}/{job}")).json()["state"] == "failed"
    assert len((await admin.get(f"{API}/audit")).json()["entries"]) == 1


async def test_while_the_first_request_runs_others_are_told_to_come_back(app, admin, jobs, monkeypatch):
    job, goes_on, reached = await jobs.submit(), asyncio.Event(), asyncio.Event()
    store = (await app.client()).store
    amend = store.amend

    async def slow(*args, **how):
        reached.set()
        await goes_on.wait()
        return await amend(*args, **how)

    monkeypatch.setattr(store, "amend", slow)
    first = asyncio.create_task(admin.post(f"{JOBS}/{job}/cancel", headers=KEY))
    await reached.wait()
    async with asyncio.timeout(30):  # it must not wait for the first one
        second = await admin.post(f"{JOBS}/{job}/cancel", headers=KEY)
    problem(second, 409, "in-progress")
    assert second.headers["retry-after"] == "1"
    goes_on.set()
    assert (await first).json()["verdict"] == "done"
    assert (await admin.post(f"{JOBS}/{job}/cancel", headers=KEY)).json() == (await first).json()


class Killed(BaseException):
    """The server is gone: nothing of it runs any more."""


def kill_after(monkeypatch, store, name, *, before=False):
    """Let the server die when it uses this operation of the store: after it happened, or before."""
    operation = getattr(store, name)

    async def killed(*args, **how):
        if not before:
            await operation(*args, **how)
        monkeypatch.setattr(store, "put", dead)
        monkeypatch.setattr(store, name, dead)
        raise Killed

    async def dead(*_, **__):
        raise Killed

    monkeypatch.setattr(store, name, killed)


@pytest.mark.parametrize(
    ("action", "make", "state"),
    [("retry", "fail", "queued"), ("cancel", "submit", "cancelled"), ("suspend", "submit", "suspended")],
)
@pytest.mark.parametrize("before", [False, True], ids=["after the change", "before the change"])
async def test_a_server_killed_around_the_change_makes_it_once(
    app, connect, make_token, jobs, world, monkeypatch, action, make, state, before
):
    token = await make_token()
    job = await getattr(jobs, make)()
    store = (await app.client()).store
    first = await connect(token)
    with monkeypatch.context() as patched:
        kill_after(patched, store, "amend", before=before)
        with pytest.raises(Killed):
            await first.post(f"{JOBS}/{job}/{action}", headers=KEY)
    second = await connect(token)
    problem(await second.post(f"{JOBS}/{job}/{action}", headers=KEY), 409, "in-progress")
    world.ahead = timedelta(seconds=31)
    answer = await second.post(f"{JOBS}/{job}/{action}", headers=KEY)
    assert answer.json() == {"id": job, "verdict": "done", "state": state}
    history = (await second.get(f"{JOBS}/{job}/events")).json()["events"]
    kinds = {"retry": "retried", "cancel": "cancelled", "suspend": "suspended"}
    assert [event["kind"] for event in history].count(kinds[action]) == 1
    assert (await second.post(f"{JOBS}/{job}/{action}", headers=KEY)).headers["idempotency-replayed"] == "true"
    [entry] = (await second.get(f"{API}/audit")).json()["entries"]
    assert entry["outcome"] == "200"


async def test_a_retry_is_not_made_again_when_the_job_failed_anew_meanwhile(
    app, connect, make_token, jobs, world, monkeypatch
):
    token = await make_token()
    job = await jobs.fail()
    with monkeypatch.context() as patched:
        kill_after(patched, (await app.client()).store, "amend")
        with pytest.raises(Killed):
            await (await connect(token)).post(f"{JOBS}/{job}/retry", headers=KEY)
    [lease] = await jobs.claim()
    await jobs.settle(lease, Failed(Failure(message="no", kinds=("ValueError",))))
    world.ahead = timedelta(seconds=31)
    second = await connect(token)
    assert (await second.post(f"{JOBS}/{job}/retry", headers=KEY)).status_code == 200
    assert (await second.get(f"{JOBS}/{job}")).json()["state"] == "failed"


async def test_a_removal_that_was_not_answered_is_answered_when_it_is_sent_again(
    app, connect, make_token, jobs, world, monkeypatch
):
    token = await make_token()
    job = await jobs.complete()
    with monkeypatch.context() as patched:
        kill_after(patched, (await app.client()).store, "amend")
        with pytest.raises(Killed):
            await (await connect(token)).delete(f"{JOBS}/{job}", headers=KEY)
    world.ahead = timedelta(seconds=31)
    assert (await (await connect(token)).delete(f"{JOBS}/{job}", headers=KEY)).status_code == 204


async def test_without_a_key_a_killed_server_leaves_its_audit_entry_as_started(
    app, connect, make_token, jobs, monkeypatch
):
    token, job = await make_token(), await jobs.submit()
    with monkeypatch.context() as patched:
        kill_after(patched, (await app.client()).store, "amend")
        with pytest.raises(Killed):
            await (await connect(token)).post(f"{JOBS}/{job}/cancel")
    [entry] = (await (await connect(token)).get(f"{API}/audit")).json()["entries"]
    assert (entry["action"], entry["outcome"]) == ("cancel_job", "started")


async def test_a_bulk_change_goes_on_where_the_killed_server_was(app, connect, make_token, jobs, world, monkeypatch):
    monkeypatch.setattr("daybreak.api.job_changes.CHUNK", 2)
    token = await make_token()
    ids = [await jobs.submit(queue="a") for _ in range(6)]
    store = (await app.client()).store
    amend, put, calls = store.amend, store.put, []

    async def counted(amend_, **how):
        calls.append(amend_.cursor)
        if len(calls) == 3:
            monkeypatch.setattr(store, "put", dead)
            raise Killed
        return await amend(amend_, **how)

    async def dead(*_, **__):
        raise Killed

    monkeypatch.setattr(store, "amend", counted)
    body = {"action": "cancel", "filter": {"queue": "a"}}
    with pytest.raises(Killed):
        await (await connect(token)).post(f"{JOBS}/bulk", json=body, headers=KEY)
    monkeypatch.setattr(store, "put", put)
    world.ahead = timedelta(seconds=31)
    second = await connect(token)
    assert (await second.post(f"{JOBS}/bulk", json=body, headers=KEY)).status_code == 200
    assert calls[3] == calls[2] is not None, "it begins with the chunk that was not done"
    assert {(await second.get(f"{JOBS}/{job}")).json()["state"] for job in ids} == {"cancelled"}


async def test_a_change_whose_outcome_is_unknown_is_looked_up_when_it_is_sent_again(app, admin, jobs, monkeypatch):
    job = await jobs.fail()
    store = (await app.client()).store
    amend = store.amend

    async def unanswered(*args, **how):
        await amend(*args, **how)
        raise OutcomeUnknown("cut")

    monkeypatch.setattr(store, "amend", unanswered)
    problem(await admin.post(f"{JOBS}/{job}/retry", headers=KEY), 503, "store-unavailable")
    monkeypatch.setattr(store, "amend", amend)
    again = await admin.post(f"{JOBS}/{job}/retry", headers=KEY)
    assert (again.status_code, again.json()["state"]) == (200, "queued")


async def test_a_refused_change_can_be_sent_again_with_its_key(admin, jobs):
    job = await jobs.submit()
    problem(await admin.delete(f"{JOBS}/{job}", headers=KEY), 409, "conflict")
    await admin.post(f"{JOBS}/{job}/cancel")
    assert (await admin.delete(f"{JOBS}/{job}", headers=KEY)).status_code == 204


@pytest.mark.parametrize("key", ["", "x" * 201, "two words", "ümlaut", "a\tb"])
async def test_what_is_no_key_is_422(admin, key):
    headers = {"idempotency-key": key.encode()}
    problem(await admin.post(JOBS, json={"task": "mail"}, headers=headers), 422, "invalid")


async def test_answers_are_forgotten_after_24_hours(app, admin, world):
    await admin.post(JOBS, json={"task": "mail"}, headers=KEY)
    await admin.post(f"{API}/queues/q/pause", headers={"idempotency-key": "k-2"})
    store = (await app.client()).store

    async def kept():
        return sum([len(await store.records(answer_kind(part))) for part in range(ANSWER_PARTS)])

    assert await kept() == 2
    for hours, left in ((23, 2), (25, 0)):
        for part in range(ANSWER_PARTS):
            await forget_answers(store, part, moment(world.wall()) + timedelta(hours=hours))
        assert await kept() == left
