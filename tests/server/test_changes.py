"""Changing jobs, one by one and many at once; queues, resources, locks; figures and the audit."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from server_world import problem

from daybreak.api.locks import owned_locks
from daybreak.cli.root import root
from daybreak.client.server_records import MOST_AUDITED, trim_audit
from daybreak.client.trend_counts import take_snapshot
from daybreak.core.model import Put
from daybreak.core.units import moment

API = "/api/v1"
JOBS = f"{API}/jobs"


async def told(tmp_path, *words):
    """What the command line prints as JSON."""
    printed = await asyncio.to_thread(
        CliRunner().invoke, root, ["--url", str(tmp_path / "jobs.db"), *words, "--json"]
    )  # fmt: skip
    return json.loads(printed.stdout)


async def state_of(admin, job):
    return (await admin.get(f"{JOBS}/{job}")).json()["state"]


# -- one job -----------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked(admin, jobs):
    waiting, running = await jobs.submit(delay="1h"), await jobs.run()
    answer = await admin.post(f"{JOBS}/{waiting}/cancel")
    assert answer.json() == {"id": waiting, "verdict": "done", "state": "cancelled"}
    assert (await admin.post(f"{JOBS}/{running}/cancel")).json()["verdict"] == "requested"


async def test_a_job_is_suspended_resumed_moved_and_retried(admin, jobs):
    job = await jobs.submit()
    assert (await admin.post(f"{JOBS}/{job}/suspend", json={"note": "wait"})).json()["state"] == "suspended"
    assert (await admin.post(f"{JOBS}/{job}/resume")).json()["state"] == "queued"
    assert (await admin.put(f"{JOBS}/{job}/priority", json={"priority": "critical"})).status_code == 200
    assert (await admin.get(f"{JOBS}/{job}")).json()["priority"] == 1
    failed = await jobs.fail()
    assert (await admin.post(f"{JOBS}/{failed}/retry")).json()["state"] == "queued"


async def test_a_change_that_the_state_does_not_allow_is_409(admin, jobs):
    done, waiting = await jobs.complete(), await jobs.submit()
    for action in ("cancel", "suspend", "resume"):
        assert problem(await admin.post(f"{JOBS}/{done}/{action}"), 409, "conflict")["job"] == done
    problem(await admin.post(f"{JOBS}/{waiting}/retry"), 409, "conflict")
    problem(await admin.put(f"{JOBS}/{done}/priority", json={"priority": 1}), 409, "conflict")


async def test_only_final_jobs_are_deleted(admin, jobs):
    waiting, done = await jobs.submit(), await jobs.complete()
    problem(await admin.delete(f"{JOBS}/{waiting}"), 409, "conflict")
    assert await state_of(admin, waiting) == "queued"
    answer = await admin.delete(f"{JOBS}/{done}")
    assert (answer.status_code, answer.content) == (204, b"")
    problem(await admin.get(f"{JOBS}/{done}"), 404, "not-found")
    problem(await admin.delete(f"{JOBS}/{done}"), 404, "not-found")


# -- many jobs ---------------------------------------------------------------------------------------------------------


async def test_a_dry_run_answers_the_exact_count_and_changes_nothing(admin, jobs):
    failed = [await jobs.fail(queue="a") for _ in range(3)]
    await jobs.fail(queue="b")
    await jobs.complete(queue="a")
    body = {"action": "retry", "filter": {"queue": "a"}}
    dry = (await admin.post(f"{JOBS}/bulk", json={**body, "dry_run": True})).json()
    assert (dry["matching"], dry["changed"], dry["by_state"]) == (3, 0, {"failed": 3})
    assert await state_of(admin, failed[0]) == "failed"
    assert (await admin.get(f"{API}/audit")).json()["entries"] == []
    done = (await admin.post(f"{JOBS}/bulk", json=body)).json()
    assert (done["matching"], done["changed"]) == (3, 3)
    assert {await state_of(admin, job) for job in failed} == {"queued"}


@pytest.mark.parametrize(
    "wanted",
    [{"task": "mail"}, {"tag": "x"}, {"owner": "ann"}, {"since": "1h", "queue": "default"}, {"priority": 5}],
    ids=str,
)  # fmt: skip
async def test_a_dry_run_and_the_change_count_the_same_by_every_filter(admin, jobs, wanted):
    for n in range(6):
        await jobs.submit(tags=["x"] if n % 2 else [], owner="ann" if n % 3 else None)
    body = {"action": "cancel", "filter": wanted}
    dry = (await admin.post(f"{JOBS}/bulk", json={**body, "dry_run": True})).json()
    done = (await admin.post(f"{JOBS}/bulk", json=body)).json()
    assert dry["matching"] == done["matching"] == done["changed"] > 0


async def test_many_are_changed_by_their_ids(admin, jobs):
    waiting, done = await jobs.submit(), await jobs.complete()
    body = {"action": "cancel", "ids": [waiting, done, "nope", waiting]}
    dry = (await admin.post(f"{JOBS}/bulk", json={**body, "dry_run": True})).json()
    assert [job["verdict"] for job in dry["jobs"]] == ["done", "refused", "missing"]
    assert (dry["matching"], dry["changed"]) == (1, 0)
    answer = (await admin.post(f"{JOBS}/bulk", json=body)).json()
    assert [job["verdict"] for job in answer["jobs"]] == ["done", "refused", "missing"]
    assert answer["changed"] == 1


async def test_many_are_moved_to_another_priority_and_removed(admin, jobs):
    ids = [await jobs.submit(queue="a") for _ in range(3)]
    body = {"action": "priority", "priority": "low", "filter": {"queue": "a"}}
    assert (await admin.post(f"{JOBS}/bulk", json=body)).json()["changed"] == 3
    assert (await admin.get(f"{JOBS}/{ids[0]}")).json()["priority"] == 7
    await admin.post(f"{JOBS}/bulk", json={"action": "cancel", "filter": {"queue": "a"}})
    assert (await admin.post(f"{JOBS}/bulk", json={"action": "remove", "filter": {"queue": "a"}})).json()[
        "changed"
    ] == 3


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"}, {"action": "cancel", "filter": {}}, {"action": "cancel", "ids": []},
        {"action": "cancel", "ids": ["a"], "filter": {"queue": "a"}}, {"action": "burn", "ids": ["a"]},
        {"action": "priority", "ids": ["a"]}, {"action": "cancel", "ids": ["a"], "priority": 1},
        {"action": "cancel", "filter": {"state": ["failed"]}}, {"action": "remove", "filter": {"quue": "a"}},
    ],
    ids=str,
)  # fmt: skip
async def test_a_change_of_many_that_is_not_clear_is_422(admin, body):
    problem(await admin.post(f"{JOBS}/bulk", json=body), 422, "invalid")


async def test_an_admin_of_one_queue_changes_jobs_of_that_queue_alone(connect, make_token, jobs):
    mine, other = await jobs.submit(queue="mine"), await jobs.submit(queue="other")
    client = await connect(await make_token("m", "admin", queues=["mine"]))
    problem(await client.post(f"{JOBS}/{other}/cancel"), 403, "forbidden")
    problem(await client.post(f"{JOBS}/bulk", json={"action": "cancel", "ids": [mine, other]}), 403, "forbidden")
    problem(
        await client.post(f"{JOBS}/bulk", json={"action": "cancel", "filter": {"queue": "other"}}), 403, "forbidden"
    )
    answer = await client.post(f"{JOBS}/bulk", json={"action": "cancel", "filter": {"task": "mail"}})
    assert answer.json()["changed"] == 1
    assert await state_of(client, mine) == "cancelled"


# -- queues ------------------------------------------------------------------------------------------------------------


async def test_a_queue_tells_its_depth_by_priority_with_zeros_and_its_oldest(admin, jobs, world, tmp_path):
    await jobs.submit(queue="mail", priority="high")
    await jobs.submit(queue="mail", delay="1h")
    world.ahead = timedelta(minutes=5)
    queue = (await admin.get(f"{API}/queues/mail")).json()
    assert (queue["depth"], queue["running"], queue["max_running"]) == (2, 0, None)
    assert queue["by_priority"] == {**{str(level): 0 for level in range(11)}, "2": 1, "5": 1}
    assert 295 < queue["oldest_wait"] < 400
    [listed] = (await admin.get(f"{API}/queues")).json()["queues"]
    assert listed["by_priority"] == queue["by_priority"]
    assert (await told(tmp_path, "queues", "show", "mail")).items() <= queue.items()


async def test_a_queue_is_changed_paused_and_resumed(admin, jobs):
    await jobs.submit(queue="mail")
    changed = await admin.patch(
        f"{API}/queues/mail", json={"max_running": 4, "capacity": 10, "discipline": "aging", "patience": "10m"}
    )  # fmt: skip
    assert (changed.json()["max_running"], changed.json()["patience"]) == (4, 600.0)
    assert (await admin.patch(f"{API}/queues/mail", json={"max_running": None})).json()["max_running"] is None
    assert (await admin.get(f"{API}/queues/mail")).json()["capacity"] == 10
    assert (await admin.post(f"{API}/queues/mail/pause")).json()["paused"] is True
    assert (await admin.post(f"{API}/queues/mail/resume")).json()["paused"] is False


async def test_a_queue_that_is_not_there_is_404_and_one_with_a_slash_is_found(admin, jobs):
    await jobs.submit(queue="a/b %")
    assert (await admin.get(f"{API}/queues/a%2Fb%20%25")).json()["name"] == "a/b %"
    assert "did you mean" in problem(await admin.get(f"{API}/queues/a"), 404, "not-found").get("hint", "did you mean")
    problem(await admin.post(f"{API}/queues/nope/resume"), 404, "not-found")
    assert (await admin.post(f"{API}/queues/new%2Fone/pause")).json()["name"] == "new/one"


@pytest.mark.parametrize(
    "body", [{}, {"weight": 0}, {"capacity": -1}, {"discipline": "lifo"}, {"patience": "0s"}, {"ranked": True}, []]
)
async def test_a_setting_that_cannot_be_right_is_422(admin, body):
    problem(await admin.patch(f"{API}/queues/mail", json=body), 422, "invalid")


# -- resources and locks -----------------------------------------------------------------------------------------------


async def test_a_resource_is_changed_shown_and_reset(admin, tmp_path):
    body = {"slots": 2, "rate": "10/s", "burst": 5, "breaker": {"failures": 3, "open_for": "30s", "forget_after": "5m"}}
    changed = (await admin.patch(f"{API}/resources/api", json=body)).json()
    assert (changed["slots"], changed["rate"], changed["burst"], changed["set_by"]) == (2, "10/s", 5, "root")
    settings = {"failures": 3, "successes": 2, "open_for": 30.0, "probes": 1, "forget_after": 300.0}
    assert changed["breaker_settings"] == settings
    shown = (await admin.get(f"{API}/resources/api")).json()
    assert shown == {**changed, "holders": []}
    assert shown == await told(tmp_path, "resources", "show", "api")
    assert (await admin.get(f"{API}/resources")).json()["resources"] == [changed]
    off = (await admin.patch(f"{API}/resources/api", json={"slots": None, "rate": None, "breaker": False})).json()
    assert (off["slots"], off["rate"], off["breaker"]) == (None, "none", "none")
    assert (await admin.patch(f"{API}/resources/api", json={"breaker": True})).json()["breaker"] == "closed"
    assert (await admin.post(f"{API}/resources/api/reset")).json()["set_by"] == ""
    problem(await admin.get(f"{API}/resources/nope"), 404, "not-found")
    problem(await admin.post(f"{API}/resources/nope/reset"), 404, "not-found")
    problem(await admin.patch(f"{API}/resources/api", json={"rate": "fast"}), 422, "invalid")


async def take(app, name, owner, wait=timedelta(seconds=5)):
    client = await app.client()
    return await owned_locks.take(
        client, [name], owner, hold_for=timedelta(hours=1), wait=wait, priority="normal", id=f"id-{owner}"
    )


async def test_locks_are_listed_with_waiters_and_released(app, admin, tmp_path):
    await take(app, "prod/net", "pr-1")
    waiting = asyncio.create_task(take(app, "prod/net", "pr-2", timedelta(minutes=1)))
    for _ in range(3000):  # nobody tells when a waiter stands in line
        found = (await admin.get(f"{API}/locks", params={"name": "prod/net"})).json()["locks"]
        if len(found) == 2:
            break
        await asyncio.sleep(0.01)
    assert found == (await told(tmp_path, "locks"))["locks"]
    held, waits = found
    assert (held["who"], held["state"], waits["who"], waits["position"]) == ("pr-1", "running", "pr-2", 0)
    problem(await admin.post(f"{API}/locks/{held['job']}/release", json={"owner": "pr-9"}), 403, "forbidden")
    released = await admin.post(f"{API}/locks/{held['job']}/release", json={"owner": "pr-1"})
    assert released.json() == {"released": ["prod/net"]}
    assert (await waiting).fence > 0
    problem(await admin.post(f"{API}/locks/{held['job']}/release"), 409, "conflict")
    assert (await admin.post(f"{API}/locks/{waits['job']}/release")).status_code == 200
    history = (await admin.get(f"{JOBS}/{waits['job']}/events")).json()["events"]
    assert history[-1]["by"] == "root"


async def test_what_is_no_lock_is_not_released(admin, jobs):
    problem(await admin.post(f"{API}/locks/{await jobs.run()}/release"), 404, "not-found")


# -- figures -----------------------------------------------------------------------------------------------------------


async def test_figures_equal_those_of_the_command_line(admin, jobs, tmp_path):
    await jobs.complete(queue="mail", timeout="1m")
    await jobs.fail(queue="mail")
    await jobs.submit(queue="other")
    everything = await told(tmp_path, "stats")
    assert (await admin.get(f"{API}/stats")).json() == everything
    assert (await admin.get(f"{API}/stats", params={"queue": "mail"})).json() == await told(tmp_path, "stats", "mail")
    assert (await admin.get(f"{API}/retries")).json() == {"queue": None, "retries": everything["retries"]}
    answer = (await admin.get(f"{API}/timeouts")).json()
    assert answer == {"queue": None, "timeouts": everything["timeouts"], "adaptive": everything["adaptive"]}
    assert (await admin.get(f"{API}/workers")).json() == {"workers": []}


async def test_trends_equal_those_of_the_command_line(app, admin, jobs, tmp_path):
    await take_snapshot((await app.client()).store, datetime.now(UTC))
    await jobs.complete(queue="mail")
    await jobs.submit(queue="other")
    answer = (await admin.get(f"{API}/stats", params={"since": "4h", "by": "task"})).json()
    same = await told(tmp_path, "stats", "--since", "4h", "--by", "task")
    trends, told_trends = answer.pop("trends"), same.pop("trends")
    assert answer == same
    assert (trends["resolution"], trends["figures"]["submitted"], trends["figures"]["completed"]) == ("hour", 2, 1)
    for one in (trends, told_trends):
        one.pop("until")
    assert trends == told_trends
    one = (await admin.get(f"{API}/stats", params={"queue": "mail", "since": "1h"})).json()["trends"]
    assert ([group["name"] for group in one["groups"]], len(one["points"])) == (["mail"], 61)


@pytest.mark.parametrize(
    "params",
    [{"since": "31d"}, {"since": "1d", "resolution": "minute"}, {"since": "1d", "by": "owner"}, {"since": "soon"}],
)
async def test_trends_that_cannot_be_asked_for_are_refused(admin, params):
    problem(await admin.get(f"{API}/stats", params=params), 422, "invalid")


# -- audit -------------------------------------------------------------------------------------------------------------


async def test_every_change_is_audited_with_who_made_it(connect, make_token, admin, jobs):
    job = await jobs.submit()
    ann = await connect(await make_token("ann", "submit"))
    await ann.post(f"{JOBS}/{job}/cancel", json={"note": "no"})
    await admin.post(f"{API}/queues/mail/pause")
    entries = (await admin.get(f"{API}/audit")).json()["entries"]
    assert [(entry["by"], entry["action"], entry["outcome"]) for entry in entries] == [
        ("root", "pause_queue", "200"), ("ann", "cancel_job", "200")
    ]  # fmt: skip
    assert (entries[1]["path"], entries[1]["request"]) == (f"{JOBS}/{job}/cancel", '{"note":"no"}')
    assert len((await admin.get(f"{API}/audit", params={"by": "ann"})).json()["entries"]) == 1


async def test_submitted_jobs_are_counted_by_caller_and_minute(make_token, admin, world):
    ann = {"authorization": f"Bearer {await make_token('ann', 'submit')}"}
    bodies = [{}, {}, {}, {"unique": "u"}, {"unique": "u"}, {"priority": 11}]
    for body in bodies:
        await admin.post(JOBS, json={"task": "mail", **body}, headers=ann)
    await admin.post(f"{JOBS}/batch", json={"jobs": [{"task": "mail"}] * 5})

    async def counts():
        entries = (await admin.get(f"{API}/audit")).json()["entries"]
        assert {entry["action"] for entry in entries} == {"submit_job"}
        return sorted((entry["by"], json.loads(entry["request"])["jobs"]) for entry in entries)

    found = await counts()
    # The minute may have ended between two of them.
    assert {by: sum(n for who, n in found if who == by) for by, _ in found} == {"ann": 4, "root": 5}
    world.ahead = timedelta(minutes=1)
    await admin.post(JOBS, json={"task": "mail"}, headers=ann)
    assert len(await counts()) == len(found) + 1


async def test_counts_of_submits_are_written_also_if_nobody_asks(app, admin, monkeypatch):
    monkeypatch.setattr("daybreak.server.audit.WRITE_WITHIN", timedelta())
    await admin.post(JOBS, json={"task": "mail"})
    store = (await app.client()).store
    for _ in range(3000):
        if found := await store.records("audit of submits"):
            break
        await asyncio.sleep(0.01)
    assert len(found) == 1


async def test_a_refused_change_is_not_in_the_audit(admin, jobs):
    done = await jobs.complete()
    problem(await admin.post(f"{JOBS}/{done}/cancel"), 409, "conflict")
    assert (await admin.get(f"{API}/audit")).json() == {"entries": [], "cursor": None}


async def test_the_audit_is_paged_and_bounded(app, admin):
    for n in range(5):
        await admin.post(f"{API}/queues/q{n}/pause")
    first = (await admin.get(f"{API}/audit", params={"limit": 3})).json()
    second = (await admin.get(f"{API}/audit", params={"limit": 3, "cursor": first["cursor"]})).json()
    assert len(first["entries"]) == 3
    assert (len(second["entries"]), second["cursor"]) == (2, None)
    client = await app.client()
    puts = [Put(kind="audit", name=f"0-{n:05}", value=b"{}") for n in range(MOST_AUDITED)]
    await client.store.put(puts)
    await trim_audit(client.store, moment(client.wall()))
    assert len(await client.store.records("audit")) == MOST_AUDITED
    assert len((await admin.get(f"{API}/audit")).json()["entries"]) == 5
