"""`daybreak jobs cancel | retry | suspend | resume | remove | priority`."""

from __future__ import annotations

import json

import pytest

from daybreak.core.model import State

MISSING = "01a1e293-ba6c-7a1c-8063-f5022d90ca6d"


def states(place, *jobs):
    return [place.get(job).state for job in jobs]


def test_each_change_by_id(cli, place):
    job = place.submit()
    assert cli("jobs", "suspend", job, "--note", "licence").stdout == f"{job} suspended\n"
    assert (place.get(job).state, place.get(job).note) == (State.SUSPENDED, "licence")
    assert cli("jobs", "resume", job).stdout == f"{job} resumed\n"
    assert cli("jobs", "priority", "high", job).stdout == f"{job} moved to high\n"
    assert place.get(job).priority == 2
    assert cli("jobs", "cancel", job).stdout == f"{job} cancelled\n"
    assert cli("jobs", "retry", job).stdout == f"{job} queued again\n"
    cli("jobs", "cancel", job)
    assert cli("jobs", "remove", job).stdout == f"{job} removed\n"
    cli("jobs", "show", job, code=4)


def test_who_changed_it_is_kept(cli, place):
    job = place.submit()
    cli("jobs", "cancel", job, "--note", "not needed")
    event = place.do(lambda client: client.history(job))[-1]
    assert "@" in event.by
    assert event.note == "not needed"


def test_a_running_job_is_asked(cli, place):
    job = place.run()
    assert cli("jobs", "cancel", job).stdout == f"{job} asked to stop\n"
    assert place.get(job).cancelling


def test_what_cannot_be_is_said_for_each_and_the_rest_is_done(cli, place):
    done, waiting = place.complete(), place.submit(queue="other")
    result = cli("jobs", "cancel", done, waiting, waiting, code=1)
    assert result.stdout == f"{waiting} cancelled\n"
    assert (
        f"job {done} is completed: only blocked, queued, running, scheduled or suspended jobs can be cancelled"
        in result.stderr
    )
    result = cli("jobs", "retry", MISSING, waiting, code=4)
    assert f"no job {MISSING}" in result.stderr
    assert place.get(waiting).state is State.QUEUED
    assert "begins or ends so" in cli("jobs", "cancel", "0000", code=4).stderr


def test_json_answers_for_each(ask, place):
    job = place.submit()
    found = ask("jobs", "cancel", job, MISSING, "--json", code=4)
    assert found == {
        "dry_run": False, "changed": 1,
        "jobs": [
            {"id": job, "verdict": "done", "state": "cancelled"},
            {"id": MISSING, "verdict": "missing", "state": None},
        ],
    }  # fmt: skip


@pytest.mark.parametrize("verb", ["cancel", "retry", "suspend", "resume", "remove"])
def test_a_dry_run_by_id_changes_nothing_and_foretells_what_would_be_answered(cli, place, verb):
    jobs = [
        place.submit(),
        place.run(queue="r"),
        place.complete(queue="c"),
        place.fail(queue="f"),
        place.submit(queue="s"),
    ]
    place.do(lambda client: client.suspend(jobs[4]))
    before = states(place, *jobs)
    foretold = json.loads(cli("jobs", verb, *jobs, "--dry-run", "--json", code=None).stdout)
    assert states(place, *jobs) == before
    done = json.loads(cli("jobs", verb, *jobs, "--json", code=None).stdout)
    assert [job["verdict"] for job in foretold["jobs"]] == [job["verdict"] for job in done["jobs"]]
    assert foretold["changed"] == done["changed"]


# -- by filter ---------------------------------------------------------------------------------------------------------


def test_many_by_filter(cli, place):
    jobs = [place.submit(queue="mail") for _ in range(3)]
    other = place.submit(queue="other")
    assert cli("jobs", "cancel", "--queue", "mail").stdout == "3 jobs cancelled.\n"
    assert states(place, *jobs, other) == [State.CANCELLED] * 3 + [State.QUEUED]


def test_more_than_one_chunk(cli, place):
    place.do(lambda client: client.submit_many([client.spec("mail") for _ in range(1234)]))
    assert cli("jobs", "priority", "low", "--task", "mail").stdout == "1,234 jobs moved to low.\n"
    assert cli("jobs", "cancel", "--priority", "low").stdout == "1,234 jobs cancelled.\n"
    assert cli("jobs", "remove", "--state", "cancelled").stdout == "1,234 jobs removed.\n"


def test_retry_by_filter_means_what_failed(cli, place):
    failed, done = place.fail(), place.complete()
    assert cli("jobs", "retry", "--task", "mail").stdout == "1 job queued again.\n"
    assert states(place, failed, done) == [State.QUEUED, State.COMPLETED]
    assert cli("jobs", "retry", "--state", "completed").stdout == "1 job queued again.\n"


def test_running_and_waiting_ones_are_told_apart(cli, place):
    place.submit()
    place.run(queue="other")
    assert cli("jobs", "cancel", "--task", "mail").stdout == "1 job cancelled, 1 running job asked to stop.\n"


def test_a_dry_run_counts_and_changes_nothing(cli, ask, place):
    jobs = [place.submit(queue="mail"), place.submit(queue="mail", delay="1h")]
    told = cli("jobs", "cancel", "--queue", "mail", "--dry-run").stdout
    assert told == "2 jobs in mail (1 scheduled, 1 queued) would be cancelled. Nothing was changed.\n"
    found = ask("jobs", "cancel", "--queue", "mail", "--dry-run", "--json")
    assert found == {"dry_run": True, "matching": 2, "changed": 0, "by_state": {"scheduled": 1, "queued": 1}}
    assert states(place, *jobs) == [State.QUEUED, State.SCHEDULED]


def test_nothing_to_change_is_no_error(cli, place):
    place.submit()
    assert cli("jobs", "retry", "--state", "failed").stdout == "No failed jobs. Nothing was changed.\n"


def test_json_tells_what_was_done(ask, place):
    place.submit()
    assert ask("jobs", "cancel", "--state", "queued", "--json") == {
        "dry_run": False,
        "matching": 1,
        "changed": 1,
        "done": 1,
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cancel"], "select jobs by id, or by a filter"),
        (["remove", "--yes"], "select jobs"),
        (["cancel", MISSING, "--queue", "mail"], "give either ids or a filter, not both"),
        (["remove", "--state", "queued"], "queued jobs cannot be removed, only cancelled, completed or failed ones"),
        (["retry", "--state", "running"], "running jobs cannot be retried"),
        (["priority", MISSING], "is not a priority"),
        (["priority", "high"], "select jobs"),
        (["resume", "--state", "failed"], "failed jobs cannot be resumed"),
    ],
)
def test_what_is_meant_must_be_said(cli, place, words, told):
    job = place.submit()
    assert told in cli("jobs", *words, code=2).stderr
    assert place.get(job).state is State.QUEUED
