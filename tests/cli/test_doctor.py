"""`daybreak doctor`: finds what is wrong, says the cure, and is silent where all is well."""

from __future__ import annotations

import asyncio
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import daybreak.stores.sqlite.examine as about_place
from daybreak.api.resources import all_resources
from daybreak.cli.session import Session
from daybreak.client.waits import KIND, Wait
from daybreak.core.model import Lost, Put, TimedOut
from daybreak.policy.retry import Retry
from daybreak.store.protocol import Claim, Exchange
from daybreak.system import platform

LONG_AGO = timedelta(minutes=10)


def wrong(ask, code: int = 1) -> list[tuple[str, str]]:
    found = ask("doctor", "--json", code=code)["findings"]
    return [(one["what"], one["cure"]) for one in found if not one["well"]]


def test_all_is_well(cli, ask, place, tmp_path):
    place.worker("mail")
    place.submit()
    told = cli("doctor").stdout
    assert told.endswith("\nNo problems found.\n")
    assert f"ok       store {tmp_path / 'daybreak.db'} (from the default)" in told
    assert "ok       1 live worker, 1 job waiting" in told
    assert "ok       SQLite 3." in told
    assert wrong(ask, 0) == []


def test_it_leaves_nothing_behind(cli, place):
    place.submit()
    cli("doctor", code=1)
    assert place.do(lambda client: client.store.records("doctor")) == []


def test_nobody_works(cli, ask, place):
    place.submit()
    assert wrong(ask) == [("1 job waits, but no worker is running", "start one: daybreak worker TARGET")]
    assert cli("doctor", code=1).stdout.endswith("\n1 problem found.\n")


def test_a_task_that_no_live_worker_knows(ask, place):
    place.worker("mail", ("paint", 2))
    place.worker("sing", id="gone", seen=LONG_AGO)
    for task in ("mial", "mial", "paint", "exec", "sing"):
        place.submit(task)
    found = dict(wrong(ask))
    [(_, cure)] = [(what, cure) for what, cure in found.items() if what.startswith("2 jobs wait for the task 'mial'")]
    assert "was 'mail' meant?" in next(what for what in found if "mial" in what)
    assert cure == (
        "start a worker that has it: daybreak worker TARGET; or cancel them: daybreak jobs cancel --task mial"
    )
    assert any("'paint', version 1, which no live worker has (they have version 2)" in what for what in found)
    assert any("daybreak worker --allow-commands" in cure for cure in found.values())
    assert any("'sing'" in what for what in found)


def test_a_cure_touches_no_jobs_of_other_versions(ask, cli, place):
    place.worker(("greet", 2))
    old, new = place.submit("greet"), place.submit("greet", version=2)
    [(what, cure)] = wrong(ask)
    assert what.startswith("1 job waits for the task 'greet', version 1, which no live worker has")
    assert cure.endswith(f"; or cancel them: daybreak jobs cancel {old}")
    cli(*shlex.split(cure.rpartition(": daybreak ")[2]))
    assert (place.get(old).state, place.get(new).state) == ("cancelled", "queued")


def test_of_many_jobs_of_one_version_it_is_said_that_no_filter_names_them(ask, place):
    place.worker(("greet", 2))
    for version in (1, 1, 1, 1, 1, 1, 2):
        place.submit("greet", version=version)
    [(_, cure)] = wrong(ask)
    assert "cancel them by their ids; --task would select every version" in cure
    assert cure.endswith("daybreak jobs cancel --task greet --dry-run")


def test_a_cure_touches_no_suspended_jobs(ask, place):
    place.worker("mail")
    waits, held = place.submit("greet"), place.submit("greet")
    place.do(lambda client: client.suspend(held))
    [(_, cure)] = wrong(ask)
    assert cure.endswith(f"daybreak jobs cancel {waits}")


def test_a_queue_that_no_live_worker_serves(ask, place):
    place.worker("mail", queues=("default",))
    place.submit(queue="post")
    [(what, cure)] = wrong(ask)
    assert what == "1 job waits in the queue 'post', which no live worker that has their task serves"
    assert cure == "start one for it: daybreak worker TARGET --queues post"


def test_queues_that_hold_back(ask, place):
    place.worker("mail", queues=("a", "b", "c"))
    for queue in "abc":
        place.submit(queue=queue)
    place.do(lambda client: client.pause("a"))
    place.do(lambda client: client.set_queue("b", max_running=0))
    place.do(lambda client: client.set_queue("c", capacity=1))
    assert wrong(ask) == [
        ("the queue 'a' is paused, and 1 job waits in it", "daybreak queues resume a"),
        ("the queue 'b' runs no jobs (max_running=0), and 1 job waits in it", "daybreak queues set b max_running=none"),
        (
            "the queue 'c' is full and refuses new jobs: 1 unfinished jobs, capacity 1",
            "daybreak queues set c capacity=2",
        ),
    ]


def test_a_worker_that_left_without_a_word(ask, place):
    place.worker("mail", id="old", seen=timedelta(days=3))
    assert wrong(ask, 0) == [], "what happened days ago is no news"
    place.worker("mail", seen=LONG_AGO)
    [(what, cure)] = wrong(ask)
    assert what.startswith(
        "1 worker disappeared without stopping in order; the last one was w1 on box, process 7, last seen 10 min ago"
    )
    assert "out-of-memory" in cure


def test_a_lease_that_nobody_took_over(ask, place, monkeypatch):
    from daybreak.cli.doctor import work

    async def claimed(client):
        await client.submit("mail")
        await client.store.exchange(Exchange(claim=Claim(worker="w1", lease_for=timedelta(milliseconds=1))))

    place.worker("mail")
    place.do(claimed)
    monkeypatch.setattr(work, "MAX_SKEW", timedelta())
    assert wrong(ask)[0][0] == "1 running job holds a lease that expired more than 30 s ago"


def failed(place) -> None:
    """One or two jobs for each reason."""
    place.fail(kind="ValueError")
    place.fail(task="sing", kind="ValueError")
    place.fail(kind="OSError", retry=1)
    place.end(TimedOut(after=timedelta(seconds=1)), retry=1)
    place.end(Lost(alone=True), retry=Retry(attempts=1))
    place.submit(expires_in="1ms")
    place.do(overdue)


async def overdue(client) -> None:
    await asyncio.sleep(0.01)
    await client.store.advance()


def test_all_that_failed_in_the_last_day_is_counted_by_reason_and_its_commands_name_it(ask, cli, place):
    place.worker("mail", "sing")
    failed(place)
    found = wrong(ask)
    assert [what.partition(":")[0] for what, _ in found] == [
        "2 jobs failed in the last day with the reason error",
        "1 job failed in the last day with the reason exhausted",
        "1 job failed in the last day with the reason timeout",
        "1 job failed in the last day with the reason expired",
        "1 job failed in the last day with the reason lost",
    ]
    assert found[0][0].endswith("(mail 1, sing 1)")
    assert found[0][1] == (
        "list them: daybreak jobs --state failed --reason error --since 1d; fix the cause, then retry them: "
        "daybreak jobs retry --reason error --since 1d"
    )
    for what, cure in found:
        n = int(what.partition(" ")[0])
        listed, again = re.findall(r"daybreak (jobs [^;,]*1d)", cure)
        assert len(ask(*shlex.split(listed), "--json")["jobs"]) == n
        assert ask(*shlex.split(again), "--json")["changed"] == n
    assert wrong(ask, 0) == []


def test_what_failed_earlier_is_neither_counted_nor_named(ask, place, monkeypatch):
    from daybreak.cli.doctor import failures

    place.worker("mail")
    failed(place)
    monkeypatch.setattr(failures, "RECENT", timedelta())
    assert wrong(ask, 0) == []


def test_beyond_so_many_failures_it_says_at_least(ask, place, monkeypatch):
    from daybreak.cli.doctor import failures

    place.worker("mail")
    for _ in range(3):
        place.fail()
    monkeypatch.setattr(failures, "MAX_CHECKED", 2)
    monkeypatch.setattr(failures, "_PAGE", 1)
    [(what, _)] = wrong(ask)
    assert what.startswith("at least 2 jobs failed in the last day with the reason error")
    monkeypatch.setattr(failures, "RECENT", timedelta())
    said = [one["what"] for one in ask("doctor", "--json")["findings"]]
    assert "none of the 2 newest failed jobs failed in the last day; older ones not checked" in said


def test_requests_for_locks_that_waited_too_long_are_no_failures(ask, place):
    place.worker("mail")
    place.submit("lock", queue="lock", expires_in="1ms")
    place.do(overdue)
    assert wrong(ask, 0) == []
    place.submit(expires_in="1ms")
    place.do(overdue)
    [(_, cure)] = wrong(ask)
    assert "list them: daybreak jobs --state failed --queue default --reason expired --since 1d;" in cure


def test_commands_that_nobody_may_run(ask, cli, place):
    """The cure starts a worker that may, for the queues in which they wait."""
    place.submit("exec", queue="media")
    place.submit("exec")
    [(what, cure)] = wrong(ask)
    assert (what, cure) == (
        "2 jobs wait, but no worker is running",
        "start one: daybreak worker --allow-commands --queues default,media",
    )
    assert "Start one with: daybreak worker --allow-commands --queues default,media" in cli("jobs").stdout
    place.worker("mail")
    [(what, cure)] = wrong(ask)
    assert what == "2 commands wait, but no live worker accepts commands"
    assert cure.startswith(
        "start one that does: daybreak worker --allow-commands --queues default,media; or cancel them"
    )
    place.worker("mail", "exec")
    [(what, cure)] = wrong(ask)
    assert what == "1 job waits in the queue 'media', which no live worker that has their task serves"
    assert cure == "start one for it: daybreak worker --allow-commands --queues media"


def test_commands_beside_other_jobs_that_wait(ask, place):
    place.submit("exec")
    place.submit("mail")
    [(_, cure)] = wrong(ask)
    assert cure == "start one: daybreak worker TARGET, and for commands: daybreak worker --allow-commands"


# -- slots -------------------------------------------------------------------------------------------------------------


def waiting(place, *awaited: str, task: str = "outer") -> list[str]:
    """For each of these jobs one that runs in worker w1 and waits for it."""
    jobs = [place.run(task) for _ in awaited]

    async def write(client):
        for job, other in zip(jobs, awaited, strict=True):
            found = await client.get(job)
            value = msgspec.json.encode(Wait(job, found.fence, other))
            await client.store.put([Put(kind=KIND, name=job, value=value)])

    place.do(write)
    return jobs


def slots(ask, code: int = 1) -> list[tuple[str, str]]:
    return [(what, cure) for what, cure in wrong(ask, code) if "slot" in what]


def test_jobs_that_wait_for_what_only_their_own_slots_could_run(ask, place):
    place.worker("outer", "inner", id="w1", processes=2)
    inner = place.submit("inner")
    waiting(place, inner)
    assert slots(ask, 0) == [], "one slot is free"
    waiting(place, place.submit("inner"))
    [(what, cure)] = slots(ask)
    assert re.match(r"the job \S+ of 'outer' waits for the job \S+ of 'inner', which is queued, and every slot", what)
    assert what.endswith("in the same way; so does 1 other job: none of them can continue")
    assert cure.startswith("start one more worker, which has free slots: daybreak worker TARGET;")
    place.worker("outer", "inner", id="w2", processes=1)
    assert slots(ask, 0) == [], "the other worker has a free slot"


def test_a_slot_whose_job_does_not_wait_becomes_free(ask, place):
    place.worker("outer", "inner", id="w1", processes=2)
    waiting(place, place.submit("inner"))
    busy = place.run("outer")
    assert slots(ask, 0) == []
    waiting(place, busy)
    assert slots(ask, 0) == [], "nor is it stuck if another waits for it: it goes on"


def test_slots_on_the_loop_and_in_processes_are_told_apart(ask, place):
    place.worker("outer", "inner", id="w1", processes=1, async_jobs=100, on_loop=("inner",))
    waiting(place, place.submit("inner"))
    assert slots(ask, 0) == [], "the awaited job takes a slot of the other kind"
    place.worker("outer", "inner", id="w1", processes=1, async_jobs=100, on_loop=("other",))
    assert len(slots(ask)) == 1


@pytest.mark.parametrize("moved_on", ["ended", "run again", "awaited ended", "unreadable"])
def test_a_record_of_a_wait_that_is_over_is_not_believed(ask, place, moved_on):
    place.worker("outer", "inner", id="w1", processes=1)
    inner = place.submit("inner")
    [outer] = waiting(place, inner)
    assert len(slots(ask)) == 1
    if moved_on == "awaited ended":
        place.do(lambda client: client.cancel(inner))
    else:
        value = msgspec.json.encode(Wait(outer if moved_on == "run again" else inner, 99, inner))
        value = b"?" if moved_on == "unreadable" else value
        place.do(lambda client: client.store.put([Put(kind=KIND, name=outer, value=value)]))
    assert slots(ask, 0) == []


# -- code --------------------------------------------------------------------------------------------------------------


def test_two_apps_with_different_code_under_one_name(ask, place):
    place.worker("mail", "sing", id="a", name="a", app="shop:app", code={"mail": "3.11-1", "sing": "3.11-9"})
    place.worker("mail", "sing", id="b", name="b", app="shop:app", code={"mail": "3.11-1", "sing": "3.11-9"})
    assert wrong(ask, 0) == [], "the same code twice"
    for n in range(3):
        code = {"mail": "3.11-2", "sing": "3.11-9"}
        place.worker("mail", "sing", id=f"c{n}", name="c", app="blog:app", code=code)
    [(what, cure)] = wrong(ask)
    assert what.startswith("two live workers run different code for the task 'mail', and a job may run on either")
    assert "(app shop:app, started 5 min ago)" in what
    assert "(app blog:app, started 5 min ago)" in what
    assert cure.startswith("rename the task in one app")


def test_one_app_whose_code_has_changed_since_a_worker_was_started(ask, place):
    place.worker("mail", id="a", name="old", app="shop:app", code={"mail": "3.11-1"}, seen=timedelta(seconds=9))
    place.worker("mail", id="b", name="new", app="shop:app", code={"mail": "3.11-2"})
    [(_, cure)] = wrong(ask)
    assert cure == "restart the worker that has the old code; old was started first"


@pytest.mark.parametrize(
    "other",
    [
        {"code": {"mail": "3.12-2"}},
        {"code": {}},
        {"code": {"mail": "3.11-2"}, "queues": ("elsewhere",)},
        {"code": {"mail": "3.11-2"}, "tasks": (("mail", 2),)},
        {"code": {"mail": "3.11-2"}, "stopping": True, "seen": LONG_AGO},
    ],
    ids=["another Python", "unknown", "another queue", "a new version", "stopped"],
)
def test_code_that_may_differ_or_of_which_nothing_is_known(ask, place, other):
    tasks = other.pop("tasks", ("mail",))
    place.worker("mail", id="a", app="shop:app", code={"mail": "3.11-1"})
    place.worker(*tasks, id="b", app="blog:app", **other)
    assert wrong(ask, 0) == []


def test_what_else_a_reset_takes_back_is_said(cli, place):
    from daybreak.cli.doctor.work import _resources

    cli("resources", "set", "api", "slots=3", "breaker=on")
    [info] = place.do(all_resources)
    for set_by, more in ((info.set_by, f", which also undoes what {info.set_by} has set"), ("", "")):
        shut = replace(info, breaker="open", set_by=set_by)
        [finding] = _resources([shut], Session(), datetime.now(UTC))
        assert finding.cure.endswith(f"or close it with: daybreak resources reset api{more}")


def test_clocks_that_differ(ask, place):
    place.worker("mail", seen=-timedelta(hours=2))
    [(what, _)] = wrong(ask)
    assert "was last seen in 1 h" in what or "was last seen in 2 h" in what


# -- the place ---------------------------------------------------------------------------------------------------------


def test_no_store_is_told_with_its_place(ask, tmp_path):
    [(what, _)] = wrong(ask, 3)
    assert what.startswith(f"there is no store at {tmp_path / 'daybreak.db'} (from the default)")
    assert not (tmp_path / "daybreak.db").exists()


def test_a_file_that_is_no_store(ask, tmp_path):
    (tmp_path / "daybreak.db").write_text("no database " * 1000)
    (tmp_path / "daybreak.db").chmod(0o600)
    [(what, _)] = wrong(ask, 3)
    assert "is not a SQLite file" in what


def test_a_file_that_others_can_read(ask, place):
    place.worker("mail")
    place.path.chmod(0o644)
    assert wrong(ask) == [
        (
            f"other users of this machine can read {place.path}, including arguments and results",
            f"chmod 600 {place.path}",
        )
    ]


@pytest.mark.parametrize(("kind", "told"), [("nfs4", "network file system (nfs4)"), ("tmpfs", "is in memory (tmpfs)")])
def test_a_file_system_that_does_not_keep_its_promises(place, monkeypatch, kind, told):
    place.submit()
    monkeypatch.setattr(platform, "file_system", lambda _: kind)
    assert any(told in one.what for one in about_place.examine(place.path) if not one.is_well)


def test_a_disk_that_is_nearly_full_and_a_log_that_has_grown(place, monkeypatch):
    place.submit()
    Path(f"{place.path}-wal").write_bytes(b"x" * 100)
    monkeypatch.setattr(about_place, "MIN_FREE_BYTES", 1 << 60)
    monkeypatch.setattr(about_place, "MAX_LOG_BYTES", 10)
    found = [one.what for one in about_place.examine(place.path) if not one.is_well]
    assert "has only" in found[0]
    assert "has grown to 100 bytes" in found[1]


def test_an_app_that_names_another_store_or_cannot_be_loaded(ask, place, tmp_path):
    place.worker("mail")
    (tmp_path / "daybreak.toml").write_text('app = "tasks.py"')
    (tmp_path / "tasks.py").write_text("from daybreak import Daybreak\napp = Daybreak('other.db')")
    [(what, cure)] = wrong(ask)
    assert "names the store" in what
    assert f'write url = "{tmp_path / "other.db"}" in daybreak.toml' in cure
    (tmp_path / "daybreak.toml").write_text('app = "broken.py"')
    (tmp_path / "broken.py").write_text("1 / 0")
    [(what, cure)] = wrong(ask)
    assert "ZeroDivisionError" in what
