"""`daybreak schedules`: what people see and change, and what the doctor says of schedules."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from daybreak.client.client import Client
from daybreak.client.schedule_changes import save_schedule
from daybreak.client.schedule_record import Declaration
from daybreak.core.model import JobSpec
from daybreak.policy.schedules.timing import parse_timing
from daybreak.services.schedule_ticker import ScheduleTicker
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.sqlite import SqliteStore
from daybreak.testing import HandClock


def in_store(call):
    """The answer of a coroutine on the store of the working folder."""

    async def run():
        store = await SqliteStore(Path("daybreak.db")).open()
        try:
            return await call(store)
        finally:
            await store.close()

    return asyncio.run(run())


def declare(name: str, *, at: datetime | None = None, app: str | None = None, **options) -> None:
    timing = {word: options.pop(word) for word in ("cron", "every", "at", "tz") if word in options}
    declaration = Declaration(
        timing=parse_timing(**timing), spec=JobSpec(id="", task="report"), args=msgspec.Raw(b'{"n":7}'), **options
    )
    clock = HandClock(at or datetime.now(UTC))
    in_store(
        lambda store: save_schedule(
            Client(store, by="ann", world=clock), name, declaration, app=app or "", in_code=app is not None
        )
    )


def tick(at: datetime) -> None:
    in_store(lambda store: ScheduleTicker(store, HandClock(at)).tick())


@pytest.fixture
def nightly():
    declare("nightly", cron="30 2 * * *", tz="Europe/Berlin", app="mailer")
    return "nightly"


def test_an_empty_list_says_how_to_declare_one(cli):
    cli("queues", "set", "default", "weight=1")
    assert "No schedules yet. Declare one in the code" in cli("schedules").stdout
    assert json.loads(cli("schedules", "--json").stdout) == {"schedules": []}


def test_the_list_says_when_they_tick(cli, nightly):
    declare("quarters", every="15m")
    shown = cli("schedules").stdout
    assert "at 02:30 every day, Europe/Berlin time" in shown
    assert "every 15 minutes" in shown
    assert "2 schedules. See the next ticks with: daybreak schedules preview nightly" in shown
    found = json.loads(cli("schedules", "--json").stdout)["schedules"]
    assert [(one["name"], one["state"], one["cron"], one["every"]) for one in found] == [
        ("nightly", "active", "30 2 * * *", None), ("quarters", "active", None, 900.0)
    ]  # fmt: skip


def test_one_schedule_is_shown_with_its_last_job(cli, nightly):
    declare("minutes", at=datetime.now(UTC) - timedelta(minutes=1), every="1m")
    tick(datetime.now(UTC))
    shown = cli("schedules", "show", "minutes").stdout
    for text in ("every minute", "1 fired, 0 skipped", '{"n":7}', "queued", "latest, on time for 1 min", "by ann"):
        assert text in shown.replace('{"n": 7}', '{"n":7}'), text
    assert "in the code of app mailer" in cli("schedules", "show", "nightly").stdout
    found = json.loads(cli("schedules", "show", "minutes", "--json").stdout)
    assert (found["ticks"], found["args"], found["last_state"]) == (1, {"n": 7}, "queued")
    assert json.loads(cli("jobs", "show", found["last_job"], "--json").stdout)["tags"] == ["schedule:minutes"]


def test_the_preview_shows_ticks_in_the_zone_of_the_schedule(cli, nightly):
    shown = cli("schedules", "preview", "nightly", "-n", "100").stdout
    assert shown.startswith("nightly: at 02:30 every day, Europe/Berlin time\n")
    assert shown.count("02:30:00 CE") >= 98
    found = json.loads(cli("schedules", "preview", "nightly", "-n", "2", "--json").stdout)
    assert len(found["ticks"]) == 2
    cli("schedules", "pause", "nightly")
    assert "It is paused, so none of them is fired." in cli("schedules", "preview", "nightly").stdout
    cli("schedules", "preview", "nightly", "-n", "0", code=2)


def test_a_schedule_is_paused_resumed_run_and_removed(cli, nightly):
    assert cli("schedules", "pause", nightly).stdout == "nightly is paused.\n"
    assert "Resume with: daybreak schedules resume nightly" in cli("schedules").stdout
    assert "schedule nightly was paused" in cli("doctor", code=1).stdout
    assert cli("schedules", "resume", nightly).stdout == "nightly is resumed.\n"
    job = cli("schedules", "run-now", nightly).stdout.strip()
    again = cli("schedules", "run-now", nightly)
    assert again.stdout.strip() == job
    assert json.loads(cli("schedules", "run-now", nightly, "--json").stdout) == {
        "schedule": "nightly", "job": job, "is_new": False
    }  # fmt: skip
    assert cli("schedules", "remove", nightly).stdout == "nightly is removed.\n"
    assert "No schedules" in cli("schedules").stdout
    cli("jobs", "show", job)


def test_an_unknown_name_changes_nothing_and_suggests_the_closest(cli, nightly):
    for command in ("show", "preview", "pause", "resume", "run-now", "remove"):
        assert "did you mean 'nightly'?" in cli("schedules", command, "nightyl", code=4).stderr
    cli("schedules", "pause", "nightly", "other", code=4)
    assert json.loads(cli("schedules", "show", "nightly", "--json").stdout)["state"] == "active"


def test_the_doctor_names_schedules_that_do_not_work(cli, place):
    long_ago = datetime.now(UTC) - timedelta(hours=3)
    declare("late", at=long_ago, every="1h")
    declare("ahead", at=datetime.now(UTC) + timedelta(days=3), every="1h")
    declare("slow", at=datetime.now(UTC) - timedelta(minutes=30), every="1m", overlap="queue", catch_up="all")
    found = cli("doctor", code=1).stdout
    assert "schedule late should have ticked 2 h ago" in found
    assert "schedule ahead has done its ticks up to" in found
    tick(datetime.now(UTC))
    in_store(lambda store: store.exchange(Exchange(claim=Claim(worker="w", limit=10))))
    blocked = json.loads(cli("jobs", "--state", "blocked", "--json").stdout)["jobs"][-1]["id"]
    assert "jobs of the schedule 'slow' run one after the other" in cli("why", blocked).stdout
    place.worker("mail")
    found = cli("doctor", code=1).stdout
    assert "schedule late should have ticked" not in found
    assert "jobs of schedule slow wait for each other" in found
    assert "schedule late: no live worker knows its task report, version 1, so its jobs wait" in found
    assert "No live worker knows task report of ahead" in cli("schedules").stdout


def test_schedules_are_moved_with_the_jobs(cli, nightly):
    cli("schedules", "run-now", nightly)
    moved = cli("move", "--to", "other.db", "--no-wait", code=None)
    assert "1 schedule moved" in moved.stdout, (moved.stdout, moved.stderr)
    assert "No schedules" in cli("schedules").stdout
    assert "nightly" in cli("schedules", "--url", "other.db").stdout
