"""`daybreak doctor` finds the classic troubles of job queues. The states are planted; nothing sleeps."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from daybreak import Daybreak
from daybreak.cli.doctor import growth, priorities, stuck
from daybreak.cli.doctor.growth import about_storage
from daybreak.cli.doctor.priorities import about_priorities
from daybreak.cli.doctor.stuck import about_stuck
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.client.trend_counts import take_snapshot
from daybreak.core.model import Failed, Failure, Lease, State, TimedOut
from daybreak.policy.retry import Retry
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def wrong(ask, code: int = 1) -> list[tuple[str, str]]:
    found = ask("doctor", "--json", code=code)["findings"]
    return [(one["what"], one["cure"]) for one in found if not one["well"]]


def findings(place, about: Any, *more: Any, later: timedelta = timedelta()) -> list[tuple[str, str]]:
    """What one check finds so much later."""

    async def read(client: Client) -> list[tuple[str, str]]:
        now = datetime.now(UTC) + later
        return [(one.what, one.cure) async for one in about(client, Session(), *more, now)]

    return place.do(read)


def commands(cure: str) -> list[list[str]]:
    """The commands of a cure."""
    return [shlex.split(found) for found in re.findall(r"daybreak ([^;,]+)", cure)]


async def leased(client: Client, *, queue: str = "default") -> list[Lease]:
    """Leases of all queued jobs, for a day, held by worker w1."""
    claim = Claim(worker="w1-id", queues=(queue,), limit=1000, lease_for=DAY)
    return (await client.store.exchange(Exchange(claim=claim))).leases


async def settled(client: Client, outcome: Any, *, queue: str = "default") -> None:
    """Run all queued jobs of the queue; each attempt ends so."""
    leases = await leased(client, queue=queue)
    settlements = [settle(lease, outcome, chance=0.5, by="w1") for lease in leases]
    await client.store.exchange(Exchange(settle=settlements))


# -- not processing ----------------------------------------------------------------------------------------------------


def test_not_processing_because_every_worker_is_stopping(ask, place):
    place.worker("mail", stopping=True)
    assert wrong(ask, 0) == [], "no job waits"
    place.submit()
    [(what, cure)] = wrong(ask)
    assert what == "1 job waits, but every live worker is stopping and starts no more jobs"
    assert cure == "start a new one: daybreak worker TARGET"
    place.worker("mail", id="w2")
    assert wrong(ask, 0) == []


@pytest.mark.parametrize("how", ["nobody", "paused", "max_running", "unserved"])
def test_not_processing_for_a_reason_that_a_command_removes(ask, cli, place, how):
    job = place.submit(queue="post")
    if how != "nobody":
        place.worker("mail", queues=("default",) if how == "unserved" else ("post",))
    if how == "paused":
        place.do(lambda client: client.pause("post"))
    if how == "max_running":
        place.do(lambda client: client.set_queue("post", max_running=0))
    [(_, cure)] = wrong(ask)
    [command] = commands(cure)
    if command[0] == "worker":
        place.worker("mail", id="w2", queues=("post",))
    else:
        cli(*command)
    assert wrong(ask, 0) == []
    assert [lease.job for lease in place.do(lambda client: leased(client, queue="post"))] == [job]


# -- stuck in processing -----------------------------------------------------------------------------------------------


def running(place, **options: Any) -> str:
    """A job that runs under a long lease, of a task whose 30 earlier jobs took a second."""

    async def start(client: Client) -> str:
        for _ in range(30):
            client.durations.note("execution mail", timedelta(seconds=1), 1.0)
        await client.durations.sync()
        job = await client.submit("mail", **options)
        await leased(client)
        return job

    return place.do(start)


def test_stuck_in_processing_far_longer_than_its_kind_and_without_a_limit(cli, place):
    job = running(place)
    assert findings(place, about_stuck, later=timedelta(minutes=9)) == [], "that may happen"
    [(what, cure)] = findings(place, about_stuck, later=3 * HOUR)
    assert re.match(
        rf"the job {job} of 'mail' has run for 3 h, while 99 % of its kind end within 1(\.\d)? s, and", what
    )
    why, release = commands(cure)[:2]
    assert "it runs on" in cli(*why).stdout.lower()
    cli(*release)
    assert place.get(job).state is State.QUEUED
    assert findings(place, about_stuck, later=3 * HOUR) == []


@pytest.mark.parametrize("options", [{"timeout": "1d"}, {"hang": "1h"}])
def test_a_job_with_a_limit_is_left_to_its_limit(place, options):
    running(place, **options)
    assert findings(place, about_stuck, later=3 * HOUR) == []


def test_nothing_is_said_of_a_task_of_which_too_little_is_known(place, monkeypatch):
    running(place)
    monkeypatch.setattr(stuck, "MIN_SEEN", 31)
    assert findings(place, about_stuck, later=3 * HOUR) == []


def test_stuck_in_processing_although_it_was_asked_to_stop(cli, place):
    job = running(place, timeout="1d")
    place.do(lambda client: client.cancel(job))
    assert findings(place, about_stuck) == []
    [(what, cure)] = findings(place, about_stuck, later=timedelta(minutes=6))
    assert what == "1 running job was asked to stop more than 5 min ago, and has not ended"
    [release] = commands(cure)
    cli(*release)
    assert place.get(job).state is State.CANCELLED


def test_stuck_in_processing_because_the_worker_crashed(ask, place, monkeypatch):
    from daybreak.cli.doctor import work

    async def claimed(client):
        await client.submit("mail")
        await client.store.exchange(Exchange(claim=Claim(worker="w9", lease_for=timedelta(milliseconds=1))))

    place.worker("mail")
    place.do(claimed)
    monkeypatch.setattr(work, "MAX_SKEW", timedelta())
    [(what, cure)] = wrong(ask)
    assert "holds a lease that expired" in what
    assert "daybreak worker TARGET" in cure


# -- priority not respected --------------------------------------------------------------------------------------------


def passed_over(place, monkeypatch, *, queue: str = "default") -> tuple[str, str]:
    """An urgent job that waits, and a later one of low priority that runs: its queue served by one worker alone."""
    monkeypatch.setattr(priorities, "MIN_WAIT", timedelta())
    place.worker("mail", processes=1, running=1)
    place.worker("mail", id="w2", queues=("bulk",), processes=1, running=1)
    urgent = place.submit(priority="high", queue=queue)

    async def start(client: Client) -> str:
        low = await client.submit("mail", priority="low", queue="bulk")
        await leased(client, queue="bulk")
        return low

    return urgent, place.do(start)


def test_priority_not_respected_because_the_slots_of_its_queue_are_busy(place, monkeypatch):
    urgent, low = passed_over(place, monkeypatch)
    [(what, cure)] = findings(place, about_priorities)
    assert what.startswith(f"the job {urgent} of 'mail', priority high, has waited ")
    assert f"in the queue 'default', but the job {low}, priority low, started " in what
    assert what.endswith("all 1 slot of 1 worker that could run it are in use")
    assert cure == f"daybreak worker TARGET; all causes: daybreak why {urgent}"
    place.do(lambda client: client.reprioritise(urgent, "background"))
    assert findings(place, about_priorities) == [], "no less urgent job runs"


def test_priority_not_respected_because_the_queue_has_a_limit(place, cli, monkeypatch):
    monkeypatch.setattr(priorities, "MIN_WAIT", timedelta())
    place.worker("mail", processes=4)
    place.run(queue="default")
    place.do(lambda client: client.set_queue("default", max_running=1))
    urgent, _ = passed_over(place, monkeypatch)
    [(what, cure)] = findings(place, about_priorities)
    assert what.endswith("its queue 'default' runs at most 1 job at once, and 1 run now")
    cli(*commands(cure)[0])
    assert urgent in [lease.job for lease in place.do(leased)]


def test_priority_not_respected_because_the_queue_is_aging(place, cli, monkeypatch):
    monkeypatch.setattr(priorities, "MIN_WAIT", timedelta())
    place.worker("mail", processes=4)
    place.do(lambda client: client.set_queue("default", discipline="aging", patience=timedelta(microseconds=1)))
    old = place.submit(priority="low")
    urgent = place.submit(priority="high")

    async def start_one(client: Client) -> list[str]:
        claim = Claim(worker="w1-id", queues=("default",), limit=1, lease_for=DAY)
        return [lease.job for lease in (await client.store.exchange(Exchange(claim=claim))).leases]

    assert place.do(start_one) == [old], "it has waited longer than the patience"
    [(what, cure)] = findings(place, about_priorities)
    assert what.startswith(f"the job {urgent} of 'mail', priority high")
    assert "the queue is aging: a job that waits" in what
    cli(*commands(cure)[0])
    place.submit(priority="normal")
    assert place.do(start_one) == [urgent]


def test_a_job_of_the_same_priority_or_one_that_started_before_passes_nothing_over(place, monkeypatch):
    monkeypatch.setattr(priorities, "MIN_WAIT", timedelta())
    place.worker("mail", processes=1, running=1)

    async def start(client: Client, priority: str) -> None:
        await client.submit("mail", priority=priority, queue="bulk")
        assert await leased(client, queue="bulk")

    place.do(lambda client: start(client, "low"))
    place.submit(priority="high")
    place.do(lambda client: start(client, "high"))
    assert findings(place, about_priorities) == []
    place.do(lambda client: start(client, "normal"))
    assert len(findings(place, about_priorities)) == 1


def test_a_suspended_job_is_passed_over_rightly(place, monkeypatch):
    urgent, _ = passed_over(place, monkeypatch)
    assert len(findings(place, about_priorities)) == 1
    place.do(lambda client: client.suspend(urgent))
    assert findings(place, about_priorities) == []


def test_a_job_that_was_made_urgent_after_the_other_started_was_not_passed_over(place, monkeypatch):
    urgent, _ = passed_over(place, monkeypatch)
    place.do(lambda client: client.reprioritise(urgent, "critical"))
    assert findings(place, about_priorities) == []


def test_what_other_findings_say_is_not_said_again(ask, place, monkeypatch):
    passed_over(place, monkeypatch)
    place.do(lambda client: client.pause("default"))
    assert [what for what, _ in wrong(ask)] == ["the queue 'default' is paused, and 1 job waits in it"]


# -- queue build-up ----------------------------------------------------------------------------------------------------


def grown(place, per_part: list[int]) -> None:
    """So many jobs more in each ten minutes of the last hour."""

    async def plant(client: Client) -> None:
        now = datetime.now(UTC)
        await take_snapshot(client.store, now - HOUR)
        for n, more in enumerate(per_part):
            await client.submit_many([client.spec("mail", {}) for _ in range(more)])
            await take_snapshot(client.store, now - HOUR * (len(per_part) - 1 - n) / len(per_part))

    place.do(plant)


def test_queue_build_up_with_the_figures_of_the_last_hour(ask, cli, place):
    place.worker("mail", processes=1)
    grown(place, [20] * 6)
    [(what, cure)] = wrong(ask)
    assert what.startswith("the queue 'default' builds up: 120 jobs wait, 1")
    assert what.endswith("; in that time 120 were submitted and 0 ended")
    worker, listing, bound = commands(cure)
    assert worker == ["worker", "TARGET", "--queues", "default"]
    cli(*listing)
    cli(*bound)
    assert place.do(lambda client: client.queue("default")).capacity == 120


@pytest.mark.parametrize("parts", [[120, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 120], [15] * 6], ids=["sweep", "now", "few"])
def test_many_jobs_at_once_or_few_jobs_are_no_build_up(ask, place, parts):
    place.worker("mail", processes=1)
    grown(place, parts)
    assert wrong(ask, 0) == []


# -- memory growth -----------------------------------------------------------------------------------------------------


def test_memory_growth_because_nobody_removes_old_jobs(place):
    place.complete(keep="1d")
    place.fail()
    assert findings(place, about_storage, [], later=DAY) == []
    [(what, cure)] = findings(place, about_storage, [], later=DAY + 2 * HOUR)
    assert what.startswith("at least 1 ended job is kept longer than their retention")
    assert cure == "start a worker: daybreak worker TARGET"


def test_memory_growth_because_runs_are_kept_until_they_are_deleted(ask, cli, place, monkeypatch):
    app = Daybreak(f"sqlite:///{place.path}")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    app.sweep(double, {"n": [1, 2, 3]}, name="night")
    app.work(isolation="thread")
    app.close()
    place.worker("double")
    assert wrong(ask, 0) == []
    monkeypatch.setattr(growth, "MIN_KEPT", 3)
    [(what, cure)] = wrong(ask)
    assert what == (
        "the store holds 3 ended jobs, and most of the newest belong to runs, which are kept until somebody deletes "
        "them, such as 'night'"
    )
    listing, delete = commands(cure)
    assert "night" in cli(*listing).stdout
    cli(*delete)
    assert wrong(ask, 0) == []


def test_memory_growth_because_of_large_arguments(ask, cli, place, monkeypatch):
    place.worker("mail")
    monkeypatch.setattr(growth, "MIN_LARGE", 2)
    place.submit(args={"text": "x" * 70_000})
    assert wrong(ask, 0) == []
    job = place.submit(args={"text": "x" * 80_000})
    [(what, cure)] = wrong(ask)
    assert what.startswith("2 of the newest 2 jobs are of 'mail' and have more than 64 KiB of arguments each")
    assert commands(cure) == [["jobs", "show", job]]
    cli("jobs", "show", job)


# -- timeouts and retries ----------------------------------------------------------------------------------------------


def tried(place, outcome: Any, *, jobs: int, attempts: int, completed: int = 0) -> None:
    """Jobs that all ended so at every attempt, beside some that completed."""

    async def plant(client: Client) -> None:
        await take_snapshot(client.store, datetime.now(UTC) - HOUR / 2)
        retry = Retry(attempts=attempts)
        await client.submit_many([client.spec("mail", {}, retry=retry, timeout="1s") for _ in range(jobs)])
        for _ in range(attempts):
            await settled(client, outcome)
            await client.amend_all("start", state=State.SCHEDULED)

    from daybreak.core.model import Done

    async def complete(client: Client) -> None:
        await client.submit_many([client.spec("mail", {}) for _ in range(completed)])
        await settled(client, Done(b"1"))

    place.do(plant)
    place.do(complete)


FAILED = Failed(Failure(message="no", kinds=("OSError",), traceback=""))
LATE = TimedOut(after=timedelta(seconds=1))


def test_timeout_thrashing_names_the_task_and_the_spread_of_its_durations(ask, cli, place):
    place.worker("mail")
    tried(place, LATE, jobs=6, attempts=1, completed=20)
    running(place)
    found = [(what, cure) for what, cure in wrong(ask) if "ran into" in what]
    [(what, cure)] = found
    assert re.match(
        r"6 attempts of the task 'mail' ran into their time limit in the last day, and 20 completed; half of the "
        r"attempts take up to 1(\.\d)? s, and 99 % up to 1(\.\d)? s",
        what,
    )
    stats, listing = commands(cure)
    cli(*stats)
    assert len(ask(*listing, "--json")["jobs"]) == 6


@pytest.mark.parametrize(("jobs", "completed"), [(4, 0), (6, 50)], ids=["few", "a small share"])
def test_some_timeouts_are_no_thrashing(ask, place, jobs, completed):
    place.worker("mail")
    tried(place, LATE, jobs=jobs, attempts=1, completed=completed)
    assert not [what for what, _ in wrong(ask) if "ran into" in what]


def test_retry_storm_names_the_task_and_how_to_hold_it_back(ask, cli, place):
    place.worker("mail")
    tried(place, FAILED, jobs=10, attempts=3)
    waits = place.submit()
    [(what, cure)] = [(what, cure) for what, cure in wrong(ask) if "in vain" in what]
    assert what == "the task 'mail' is retried in vain: 20 retries in the last hour, of which 100 % failed again"
    report, suspend, resume = commands(cure)
    cli(*report, code=None)
    cli(*suspend)
    assert place.get(waits).state is State.SUSPENDED
    cli(*resume)
    assert place.get(waits).state is State.QUEUED


def test_retries_that_help_are_no_storm(ask, place):
    from daybreak.core.model import Done

    async def plant(client: Client) -> None:
        await take_snapshot(client.store, datetime.now(UTC) - HOUR / 2)
        await client.submit_many([client.spec("mail", {}, retry=3) for _ in range(30)])
        await settled(client, FAILED)
        await client.amend_all("start", state=State.SCHEDULED)
        await settled(client, Done(b"1"))

    place.worker("mail")
    place.do(plant)
    assert wrong(ask, 0) == []
