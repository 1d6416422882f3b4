"""Submitting, listing and looking at jobs."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from click.testing import CliRunner
from server_world import problem

from daybreak import Daybreak, NotAllowed, Resource, Secret
from daybreak.cli.root import root
from daybreak.client.job_logs import log_kind, part_name
from daybreak.core.model import Put, State
from daybreak.server.bodies.jobs import JobBody
from daybreak.store.protocol import Claim, Exchange
from daybreak.tasks.command_tasks import COMMAND_TASKS
from daybreak.values import encode

JOBS = "/api/v1/jobs"


# -- submit ------------------------------------------------------------------------------------------------------------


async def test_a_submitted_job_answers_id_state_and_position(app, admin):
    first = await admin.post(JOBS, json={"task": "mail"})
    answer = await admin.post(JOBS, json={"task": "mail", "args": {"to": "ann"}})
    assert answer.status_code == 201
    assert answer.json() == {"id": answer.json()["id"], "state": "queued", "position": 1, "created": True}
    assert first.json()["position"] == 0
    assert answer.headers["location"] == f"{JOBS}/{answer.json()['id']}"
    assert (await admin.get(answer.headers["location"])).json()["args"] == {"to": "ann"}


async def test_every_change_names_the_caller(app, admin):
    job = (await admin.post(JOBS, json={"task": "mail"})).json()["id"]
    await admin.post(f"{JOBS}/{job}/cancel", json={"note": "no need"})
    history = (await admin.get(f"{JOBS}/{job}/events")).json()["events"]
    assert [(event["kind"], event["by"]) for event in history] == [("submitted", "root"), ("cancelled", "root")]


async def test_every_option_of_a_job_is_taken(app, admin):
    body = {
        "task": "mail", "args": {"n": 1}, "queue": "q", "priority": "HIGH", "version": 2, "delay": "1h",
        "expires_in": "2h", "key": "k", "unique": "u", "unique_while": "waiting", "on_conflict": "raise",
        "retry": {"attempts": 7, "delay": "3s"}, "timeout": "adaptive:4s", "keep": "1d", "tags": ["a", "b"],
        "meta": {"x": "y"}, "run": "r", "owner": "o",
    }  # fmt: skip
    answer = await admin.post(JOBS, json=body)
    assert answer.status_code == 201, answer.text
    job = await (await app.client()).get(answer.json()["id"])
    spec, options = job.spec, job.spec.options
    assert (spec.queue, job.priority, spec.version, spec.delay) == ("q", 2, 2, timedelta(hours=1))
    assert (spec.key, spec.unique, spec.unique_while, spec.on_conflict) == ("k", "u", "waiting", "raise")
    assert (options.retry.attempts, options.retry.delay, options.adaptive) == (7, timedelta(seconds=3), True)
    assert (options.timeout, options.expires_in) == (timedelta(seconds=4), timedelta(hours=2))
    assert options.keep_completed == timedelta(days=1)
    assert (spec.tags, spec.meta, spec.run, spec.owner, spec.by) == (("a", "b"), {"x": "y"}, "r", "o", "root")


async def test_metadata_may_be_any_json(admin):
    meta = {"n": 1, "list": [None, {"a": True}], "text": "json:1"}
    answer = await admin.post(JOBS, json={"task": "mail", "meta": meta})
    shown = (await admin.get(answer.headers["location"])).json()
    assert shown["meta"] == meta
    assert shown["updated_at"] == shown["created_at"]


async def test_a_delayed_job_has_no_position(admin):
    answer = (await admin.post(JOBS, json={"task": "mail", "run_at": "2990-01-01T00:00:00+01:00"})).json()
    assert (answer["state"], answer["position"]) == ("scheduled", None)


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 11}, {"priority": -1}, {"priority": "urgent"}, {"priority": True}, {"priority": 1.5},
        {"delay": "soon"}, {"delay": 90}, {"run_at": "2026-01-31T18:00:00"}, {"run_at": "tomorrow"},
        {"retry": 0}, {"retry": "often"}, {"retry": {"attempts": 3, "dealy": "1s"}}, {"timeout": "0s"},
        {"tags": "one"}, {"tags": ["x"] * 51}, {"meta": [1]}, {"args": [1]}, {"task": ""}, {"task": "x" * 201},
        {"queue": "a\x00b"}, {"unknown": 1}, {"key": "idempotency-key:x"}, {"on_conflict": "ignore"},
    ],
    ids=str,
)  # fmt: skip
async def test_what_is_wrong_with_a_job_is_422(admin, change):
    found = problem(await admin.post(JOBS, json={"task": "mail", **change}), 422, "invalid")
    assert found["detail"]


async def test_a_unique_name_answers_the_job_that_is_there(admin):
    first = (await admin.post(JOBS, json={"task": "mail", "unique": "u"})).json()
    again = await admin.post(JOBS, json={"task": "mail", "unique": "u"})
    assert again.status_code == 200
    assert (again.json()["id"], again.json()["created"]) == (first["id"], False)
    refused = await admin.post(JOBS, json={"task": "mail", "unique": "u", "on_conflict": "refuse"})
    assert problem(refused, 409, "conflict")["job"] == first["id"]


async def test_a_job_s_own_key_for_other_content_is_409(admin):
    first = (await admin.post(JOBS, json={"task": "mail", "key": "k"})).json()
    other = await admin.post(JOBS, json={"task": "mail", "key": "k", "args": {"n": 1}})
    assert problem(other, 409, "conflict")["job"] == first["id"]


async def test_a_full_queue_is_429_with_a_time_to_come_back(app, admin):
    await (await app.client()).set_queue("small", capacity=1)
    assert (await admin.post(JOBS, json={"task": "mail", "queue": "small"})).status_code == 201
    full = await admin.post(JOBS, json={"task": "mail", "queue": "small"})
    assert problem(full, 429, "queue-full")["queue"] == "small"
    assert full.headers["retry-after"] == "5"


@pytest.mark.parametrize("task", COMMAND_TASKS)
async def test_command_lines_are_for_admins(connect, make_token, admin, task):
    submitter = await connect(await make_token("s", "submit"))
    body = {"task": task, "args": {"command": ["true"]}}
    problem(await submitter.post(JOBS, json=body), 403, "forbidden")
    assert (await admin.post(JOBS, json=body)).status_code == 201


async def test_a_token_for_one_queue_submits_to_no_other(connect, make_token):
    client = await connect(await make_token("s", "submit", queues=["mail"]))
    problem(await client.post(JOBS, json={"task": "mail"}), 403, "forbidden")
    assert (await client.post(JOBS, json={"task": "mail", "queue": "mail"})).status_code == 201


# -- with an app -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def shop(tmp_path, world, connect, make_token):
    """A server whose app has tasks."""
    shop = Daybreak(str(tmp_path / "jobs.db"), by="shop", world=world)

    @shop.task(queue="mail", priority="low", retry=7, resource=lambda to, **_: Resource(f"host-{to}", slots=2))
    def send(to: str, at: timedelta = timedelta(), secret: Secret[str] | None = None) -> None: ...

    @shop.rule
    def no_bob(asked):
        if asked.args.get("to") == "bob":
            raise NotAllowed("not bob")
        return {"owner": asked.by}

    yield await connect(await make_token("ann", "submit"), of=shop)
    await shop.aclose()


async def test_a_server_with_an_app_submits_as_its_code_would(app, shop):
    answer = await shop.post(JOBS, json={"task": "send", "args": {"to": "eve", "secret": "hunter2"}})
    assert answer.status_code == 201, answer.text
    client = await app.client()
    job = await client.get(answer.json()["id"])
    assert (job.spec.queue, job.priority, job.spec.options.retry.attempts) == ("mail", 7, 7)
    assert [need.resource for need in job.spec.options.resources] == ["host-eve"]
    assert (job.spec.by, job.spec.owner) == ("ann", "ann")
    assert [usage.name for usage in await client.store.usage()] == ["host-eve"]
    assert (await shop.get(f"{JOBS}/{job.id}")).json()["args"] == {"to": "eve", "secret": "***"}


async def test_a_server_with_an_app_checks_tasks_arguments_and_rules(shop):
    assert "did you mean 'send'" in problem(await shop.post(JOBS, json={"task": "sned"}), 422, "invalid")["detail"]
    wrong = {"task": "send", "args": {"to": 7}}
    assert "to" in problem(await shop.post(JOBS, json=wrong), 422, "invalid")["detail"]
    extra = {"task": "send", "args": {"to": "a", "cc": "b"}}
    assert "cc" in problem(await shop.post(JOBS, json=extra), 422, "invalid")["detail"]
    problem(await shop.post(JOBS, json={"task": "send", "args": {"to": "bob"}}), 403, "forbidden")
    problem(await shop.post(JOBS, json={"task": "send", "args": {"to": "a"}, "version": 3}), 422, "invalid")


# -- batch -------------------------------------------------------------------------------------------------------------


async def test_each_job_of_a_batch_is_accepted_or_refused_by_itself(app, admin):
    await (await app.client()).set_queue("small", capacity=1)
    rows = [
        {"task": "mail", "args": {"n": 0}}, {"task": "mail", "queue": "small"}, {"task": "mail", "queue": "small"},
        {"task": "mail", "delay": "soon"}, {"task": "mail", "args": {"n": 4}},
    ]  # fmt: skip
    answer = await admin.post(f"{JOBS}/batch", json={"jobs": rows})
    assert answer.status_code == 200
    found = answer.json()
    assert found["accepted"] == 3
    kinds = [item["problem"] and item["problem"]["type"].rpartition(":")[2] for item in found["jobs"]]
    assert kinds == [None, None, "queue-full", "invalid", None]
    assert (await admin.get(f"{JOBS}/{found['jobs'][4]['id']}")).json()["args"] == {"n": 4}


# -- look --------------------------------------------------------------------------------------------------------------


async def test_the_body_of_a_job_equals_what_the_command_line_prints(app, admin, jobs, tmp_path):
    ids = [
        await jobs.complete(
            encode({"when": timedelta(seconds=3), "nan": float("nan")}), tags=["t"], meta={"a": "b", "n": [1]}
        ),
        await jobs.fail("no", owner="ann", key="k"),
        await jobs.submit(delay="1h", args={"to": "ann"}),
        await jobs.run(priority=1),
    ]
    for job in ids:
        words = ["--url", str(tmp_path / "jobs.db"), "jobs", "show", job, "--json"]
        told = await asyncio.to_thread(CliRunner().invoke, root, words)
        ours, theirs = (await admin.get(f"{JOBS}/{job}")).json(), json.loads(told.stdout)
        for data in (ours, theirs):  # of a job that waits or runs, they grow
            data.update(waited_for=0, ran_for=0)
        assert ours == theirs
        assert list(ours) == list(JobBody.__struct_fields__)


async def test_a_result_is_202_until_the_job_is_final(admin, jobs):
    waiting = await jobs.submit()
    answer = await admin.get(f"{JOBS}/{waiting}/result")
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["state"]) == (202, "1", "queued")
    done, failed = await jobs.complete(), await jobs.fail("no")
    answer = await admin.get(f"{JOBS}/{done}/result")
    assert (answer.status_code, answer.json()["result"]) == (200, "ok")
    answer = await admin.get(f"{JOBS}/{failed}/result")
    assert (answer.status_code, answer.json()["error"]["message"], answer.json()["reason"]) == (200, "no", "error")


@pytest.fixture
async def many(jobs):
    """Jobs that differ in everything one can filter by."""
    return {
        "failed": await jobs.fail(queue="a", tags=["x"]),
        "completed": await jobs.complete(queue="a", owner="ann"),
        "high": await jobs.submit(priority="high", run="r"),
        "keyed": await jobs.submit("report", key="k"),
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["keyed", "high", "completed", "failed"]),
        ({"state": "failed"}, ["failed"]),
        ({"state": ["failed", "completed"]}, ["completed", "failed"]),
        ({"state": "failed,completed"}, ["completed", "failed"]),
        ({"reason": "error"}, ["failed"]),
        ({"queue": "a"}, ["completed", "failed"]),
        ({"task": "report"}, ["keyed"]),
        ({"run": "r"}, ["high"]),
        ({"owner": "ann"}, ["completed"]),
        ({"key": "k"}, ["keyed"]),
        ({"priority": "high"}, ["high"]),
        ({"priority": "2"}, ["high"]),
        ({"tag": "x"}, ["failed"]),
        ({"since": "1h"}, ["keyed", "high", "completed", "failed"]),
        ({"until": "1h"}, []),
        ({"since": "2020-01-01T00:00:00Z", "until": "2990-01-01T00:00:00Z", "tag": "x"}, ["failed"]),
        ({"queue": "nowhere"}, []),
    ],
    ids=str,
)  # fmt: skip
async def test_jobs_are_found_by_every_filter(admin, many, query, found):
    answer = await admin.get(JOBS, params=query)
    assert answer.status_code == 200, answer.text
    names = {job: name for name, job in many.items()}
    assert [names[job["id"]] for job in answer.json()["jobs"]] == found


async def test_paging_shows_every_job_once(admin, jobs):
    ids = [await jobs.submit() for _ in range(7)]
    seen, cursor = [], None
    while True:
        params = {"limit": 3} if cursor is None else {"limit": 3, "cursor": cursor}
        page = (await admin.get(JOBS, params=params)).json()
        assert len(page["jobs"]) <= 3
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0}, {"limit": -1}, {"limit": 1001}, {"limit": "x"}, {"limit": ""}, {"cursor": "nonsense"},
        {"cursor": "9" * 200}, {"cursor": "9" * 60_000}, {"cursor": "1:2:3:4"}, {"state": "done"}, {"state": ""},
        {"priority": "11"}, {"priority": "urgent"}, {"since": "yesterday"}, {"since": "2026-01-31"}, {"reason": "why"},
        {"since": "2026-99-01T00:00:00Z"}, {"limit": ["1", "2"]}, {"nonsense": "1"}, {"queue": ""}, {"cursor": "-1"},
    ],
    ids=lambda query: str(query)[:60],
)  # fmt: skip
async def test_a_query_that_cannot_be_right_is_422(admin, query):
    answer = await admin.get(JOBS, params=query)
    if query == {"cursor": "-1"}:  # some stores can read it: then there is nothing behind it
        assert answer.status_code in (200, 422)
    else:
        problem(answer, 422, "invalid")


async def test_a_token_for_one_queue_lists_that_queue_alone(connect, make_token, jobs):
    mail, other = await jobs.submit(queue="mail"), await jobs.submit(queue="other")
    one = await connect(await make_token("one", "read", queues=["mail"]))
    assert [job["id"] for job in (await one.get(JOBS)).json()["jobs"]] == [mail]
    problem(await one.get(JOBS, params={"queue": "other"}), 403, "forbidden")
    problem(await one.get(f"{JOBS}/{other}"), 403, "forbidden")
    assert (await one.get(f"{JOBS}/{mail}")).status_code == 200
    two = await connect(await make_token("two", "read", queues=["mail", "other"]))
    problem(await two.get(JOBS), 403, "forbidden")
    assert [job["id"] for job in (await two.get(JOBS, params={"queue": "other"})).json()["jobs"]] == [other]


def test_every_state_and_reason_is_known():
    from typing import get_args

    from daybreak.core.model import Reason
    from daybreak.server.bodies.base import ReasonName, StateName

    assert get_args(StateName) == tuple(State)
    assert get_args(ReasonName) == tuple(Reason)


# -- logs --------------------------------------------------------------------------------------------------------------


async def test_the_output_of_a_job_is_read_by_attempt_and_continued(app, admin, connect, make_token):
    client = await app.client()
    job = await client.submit("mail", queue="mail")
    assert (await admin.get(f"{JOBS}/{job}/logs")).json() == {"pieces": [], "next": ""}
    first = Put(kind=log_kind(job), name=part_name(1, 1, 0), value="\x1b[31m<b>\u00e4".encode())
    await client.store.put([first])
    answer = (await admin.get(f"{JOBS}/{job}/logs")).json()
    piece = {"attempt": 1, "fence": 1, "start": 0, "skipped": 0, "text": "\x1b[31m<b>\u00e4"}
    assert answer == {"pieces": [piece], "next": "1-10"}
    await client.store.put([Put(kind=log_kind(job), name=part_name(2, 2, 0), value=b"again")])
    later = (await admin.get(f"{JOBS}/{job}/logs", params={"after": answer["next"]})).json()
    assert [(piece["attempt"], piece["text"]) for piece in later["pieces"]] == [(2, "again")]
    only = (await admin.get(f"{JOBS}/{job}/logs", params={"attempt": 1})).json()
    assert [piece["attempt"] for piece in only["pieces"]] == [1]
    assert (await admin.get(f"{JOBS}/{job}/logs", params={"after": "x"})).status_code == 422
    stranger = await connect(await make_token("bob", "read", queues=("other",)))
    assert (await stranger.get(f"{JOBS}/{job}/logs")).status_code in {403, 404}


# -- stacks ------------------------------------------------------------------------------------------------------------


async def test_only_a_running_job_has_a_stack_and_only_its_readers_see_it(app, admin, connect, make_token):
    client = await app.client()
    job = await client.submit("mail", queue="mail")
    refused = await admin.get(f"{JOBS}/{job}/stack")
    assert refused.status_code == 409
    assert "is queued: only a running job has a stack" in refused.json()["detail"]
    await client.store.exchange(Exchange(claim=Claim(worker="someone", queues=("mail",))))
    told = (await admin.get(f"{JOBS}/{job}/stack")).json()
    assert (told["job"], told["stack"], told["memory"]) == (job, "", None)
    assert told["text"] == told["note"] == "it is held by someone, which is no worker: a lock or a consumer"
    stranger = await connect(await make_token("bob", "read", queues=("other",)))
    assert (await stranger.get(f"{JOBS}/{job}/stack")).status_code in {403, 404}
