"""`daybreak why`: for each cause of waiting, the printed command removes it, and a worker can claim the job."""

from __future__ import annotations

import shlex
import sys
from datetime import timedelta

import msgspec
import pytest

from daybreak.client.leases import lease_of
from daybreak.core.model import Failed, Failure, Gate, Health, Lost, Need, Options, Put, ResourceSettings, Retry
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange

MINUTE = timedelta(minutes=1)


@pytest.fixture
def why(cli, ask):
    """The causes of a job, by kind; the text for people must show the same commands."""

    def causes(job):
        data = ask("why", job, "--json")
        told = cli("why", job).stdout
        for cause in data["causes"]:
            assert cause["command"] is None or cause["command"] in told
        return {cause["kind"]: cause for cause in data["causes"]}

    return causes


@pytest.fixture
def obey(cli):
    """Runs the command that a cause names."""
    return lambda cause: cli(*shlex.split(cause["command"])[1:])


def claims(place, queue="default"):
    """What a worker with one slot claims now."""

    async def claim(client):
        asked = Claim(worker="w1-id", queues=(queue,), limit=1, lease_for=MINUTE)
        return [lease.job for lease in (await client.store.exchange(Exchange(claim=asked))).leases]

    return place.do(claim)


def put(place, kind, name, value):
    place.do(lambda client: client.store.put([Put(kind=kind, name=name, value=msgspec.json.encode(value))]))


def needing(place, resource, **options):
    """A job that needs one slot of this resource."""
    defaults = Options(resources=(Need(resource),), retry=Retry(attempts=5))
    return place.submit(defaults=defaults, **options)


def blocked(place, resource):
    """A job that a claim found blocked."""
    job = needing(place, resource)
    assert claims(place) == []
    assert place.get(job).state == "blocked"
    return job


@pytest.fixture
def worker(place):
    place.submit("other")  # so that there is a store
    place.do(lambda client: client.amend_all("cancel", queue="default"))
    place.worker("mail", processes=1)


@pytest.mark.usefixtures("worker")
def test_a_paused_queue(place, why, obey):
    place.do(lambda client: client.pause("default"))
    job = place.submit()
    obey(why(job)["paused"])
    assert claims(place) == [job]


@pytest.mark.usefixtures("worker")
def test_waiting_behind_others_by_priority(place, why, obey):
    urgent, first = place.submit(priority="high"), place.submit()
    job = place.submit()
    cause = why(job)["behind others"]
    assert "2 jobs of its queue are before it (1 high, 1 normal)" in cause["text"]
    assert cause["holders"] == [urgent, first]
    obey(cause)
    assert claims(place) == [job]


@pytest.mark.usefixtures("worker")
def test_a_resource_whose_slots_are_in_use(place, why, obey):
    put(place, "resource", "plecs", ResourceSettings(slots=1))
    holder = needing(place, "plecs")
    assert claims(place) == [holder]
    job = blocked(place, "plecs")
    cause = why(job)["resource"]
    assert (cause["text"], cause["holders"]) == ("the resource 'plecs' has 1 slot, of which 1 is in use", [holder])
    obey(cause)
    assert claims(place) == [job]


@pytest.mark.usefixtures("worker")
def test_a_rate(place, why, obey):
    put(place, "resource", "api", ResourceSettings(every=timedelta(hours=1)))
    assert claims(place) == []
    needing(place, "api")
    claims(place)
    job = blocked(place, "api")
    obey(why(job)["rate"])
    assert claims(place) == [job]


@pytest.mark.usefixtures("worker")
def test_an_open_breaker(place, why, obey, cli):
    needing(place, "api")
    claims(place)
    cli("resources", "set", "api", "breaker=on")
    put(place, "gate", "api", Gate(state="open", shut_for=timedelta(hours=1), probes=1))
    job = blocked(place, "api")
    cause = why(job)["breaker"]
    assert "a job may try it in 59 min" in cause["text"]
    obey(cause)
    assert claims(place) == [job]


@pytest.mark.usefixtures("worker")
def test_the_retry_budget_of_a_failing_resource(place, why, obey):
    needing(place, "api")
    claims(place)
    put(place, "health", "api", Health(bad=100.0, spare_for=timedelta(hours=1)))
    jobs = [needing(place, "api") for _ in range(30)]

    async def fail_all(client):
        asked = Claim(worker="w1-id", queues=("default",), limit=100, lease_for=MINUTE)
        leases = (await client.store.exchange(Exchange(claim=asked))).leases
        failed = [
            settle(lease, Failed(Failure(message="no", kinds=("OSError",))), chance=0, by="w1") for lease in leases
        ]
        await client.store.exchange(Exchange(settle=failed))
        await client.amend_all("start", queue="default")
        await client.store.exchange(Exchange(claim=asked))

    place.do(fail_all)
    waiting = [job for job in jobs if place.get(job).state == "blocked"]
    assert waiting, "the budget lets few retries start"
    obey(why(waiting[-1])["retry budget"])
    place.do(lambda client: client.store.exchange(Exchange(claim=Claim(worker="w", limit=100, lease_for=MINUTE))))
    assert [job for job in waiting if place.get(job).state != "running"] == []


@pytest.mark.usefixtures("worker")
def test_a_retry_delay_and_a_schedule(place, why, obey):
    failed, later = place.fail(kind="OSError"), place.submit(delay="2h")
    assert "attempt 1 failed (OSError)" in why(failed)["retry delay"]["text"]
    obey(why(failed)["retry delay"])
    assert claims(place) == [failed]
    obey(why(later)["scheduled"])
    assert claims(place) == [later]


@pytest.mark.usefixtures("worker")
def test_max_running(place, why, obey):
    place.do(lambda client: client.set_queue("default", max_running=1))
    place.submit()
    assert len(claims(place)) == 1
    job = place.submit()
    assert claims(place) == []
    obey(why(job)["max_running"])
    assert claims(place) == [job]


@pytest.mark.usefixtures("worker")
def test_a_suspended_job_names_who_suspended_it(place, why, obey):
    job = place.submit()
    place.do(lambda client: client.suspend(job, note="licence is down"))
    cause = why(job)["suspended"]
    assert cause["text"] == "it was suspended by ann: licence is down"
    obey(cause)
    assert claims(place) == [job]


def test_the_lease_of_a_dead_worker(place, why, obey):
    job = place.run()
    place.worker("mail", id="w1", seen=timedelta(hours=1))

    async def expire(client):
        job_ = await client.get(job)
        await client.store.extend([Beat(seq=job_.seq, fence=job_.fence, lease_for=timedelta(microseconds=1))])

    place.do(expire)
    cause = why(job)["lost worker"]
    assert cause["holders"] == ["w1"]
    obey(cause)
    found = place.get(job)
    assert (found.state, found.attempt) == ("queued", 0)
    assert claims(place) == [job]
    assert place.get(job).fence == found.fence + 1


@pytest.mark.parametrize(
    ("kind", "about", "command"),
    [
        ("unknown task", {"tasks": (("mail", 2),)}, "tasks.py --queues night"),
        ("unknown task", {"tasks": (("other", 1),)}, "tasks.py --queues night"),
        ("unserved queue", {"tasks": (("mail", 1),), "queues": ("reports",)}, "tasks.py --queues night"),
        ("draining", {"tasks": (("mail", 1),), "stopping": True}, "tasks.py --queues night"),
        ("workers busy", {"tasks": (("mail", 1),), "processes": 2, "running": 2}, "tasks.py --queues night"),
    ],
)
def test_workers_that_cannot_run_it(place, why, kind, about, command):
    job = place.submit(queue="night")
    about.setdefault("queues", ("night",))
    tasks = about.pop("tasks")
    place.worker(*tasks, app="tasks.py", **about)
    cause = why(job)[kind]
    assert cause["command"] == f"daybreak worker {command}"
    assert cause["holders"] == ["w1-id"]


def test_the_target_for_a_task_that_is_unknown_in_several_apps_is_left_to_the_reader(place, why):
    job = place.submit()
    place.worker("one", app="one.py", id="w1")
    place.worker("two", app="two.py", id="w2")
    assert why(job)["unknown task"]["command"] == "daybreak worker TARGET"


def test_a_name_with_shell_characters_is_quoted_in_the_command(place, why):
    place.do(lambda client: client.pause("a b"))
    job = place.submit(queue="a b")
    assert why(job)["paused"]["command"] == "daybreak queues resume 'a b'"


def test_the_command_that_starts_a_worker_starts_the_job(place, why, start, until, tmp_path):
    (tmp_path / "tasks.py").write_text(
        "from daybreak import Daybreak\napp = Daybreak()\n\n@app.task\ndef mail():\n    return 1\n"
    )
    job = place.submit()
    place.worker(("mail", 2), app="tasks.py", seen=timedelta(hours=1))
    cause = why(job)["no worker"]
    process = start(*shlex.split(cause["command"])[1:])
    until(lambda: place.get(job).state == "completed")
    process.terminate()


def test_a_lock_names_its_holder(place, why, obey, ask, cli, start, until):
    place.submit()
    cli("locks", "take", "prod/net", "--owner", "pr-1", "--for", "1h")
    process = start("lock", "prod/net", "--", sys.executable, "-c", "")
    [waiting] = until(lambda: ask("jobs", "--queue", "lock", "--state", "blocked", "--json")["jobs"])
    cause = why(waiting["id"])["lock"]
    assert cause["text"] == "the lock 'prod/net' is held by pr-1"
    obey(cause)
    assert process.wait(60) == 0


def test_a_job_that_runs_or_has_ended_says_so(place, why):
    assert "it has ended: completed" in why(place.complete())["ended"]["text"]
    failed = why(place.fail("bad value"))["ended"]
    assert "failed, reason error: ValueError: bad value" in failed["text"]
    assert failed["command"].startswith("daybreak jobs retry ")
    place.worker("mail", id="w1")
    assert "it runs on w1" in why(place.run())["running"]["text"]


@pytest.mark.usefixtures("worker")
def test_the_summary_counts_every_waiting_job_once(place, ask, cli):
    place.do(lambda client: client.pause("held"))
    for _ in range(3):
        place.submit(queue="held")
    put(place, "resource", "plecs", ResourceSettings(slots=0))
    for _ in range(2):
        blocked(place, "plecs")
    place.submit(delay="1h")
    held = place.submit()
    place.do(lambda client: client.suspend(held))
    place.submit()
    place.submit("strange")
    causes = {cause["kind"]: cause["jobs"] for cause in ask("why", "--summary", "--json")["causes"]}
    assert causes == {
        "paused": 3, "resource": 2, "scheduled": 1, "suspended": 1, "behind others": 1, "unknown task": 1,
    }  # fmt: skip
    assert "9 jobs wait." in cli("why", "--summary").stdout


def test_release_returns_a_running_job_and_refuses_its_old_holder(place, cli, ask):
    job = place.run()

    async def lease(client):
        return lease_of(await client.get(job))

    held = place.do(lease)
    assert "released, now queued" in cli("jobs", "release", job, "--note", "frozen").stdout
    found = place.get(job)
    assert (found.state, found.attempt) == ("queued", 0)
    late = settle(held, Lost(), chance=0, by="w1")
    assert place.get(job).state == "queued"
    place.do(lambda client: client.store.exchange(Exchange(settle=[late])))
    assert place.get(job).attempt == 0, "the old holder changes nothing"
    assert "only running jobs" in cli("jobs", "release", job, code=1).stderr
    [answer] = ask("jobs", "release", job, "--json", code=1)["jobs"]
    assert answer["verdict"] == "refused"


def test_a_charged_release_counts_the_attempt(place, cli):
    job = place.run()
    cli("jobs", "release", job, "--charge")
    assert place.get(job).attempt == 1


def test_why_wants_one_job_or_the_summary(cli, place):
    place.submit()
    assert "not both" in cli("why", code=2).stderr
    assert "not both" in cli("why", "x", "--summary", code=2).stderr
    assert "begins or ends so" in cli("why", "0000", code=4).stderr
