"""Selectors: `last`, `last~2` and parts of ids, wherever a job is named on the command line."""

from __future__ import annotations

import pytest

from daybreak.cli import job_selector
from daybreak.client.client import Client
from daybreak.core.model import State


def end_of(job: str, n: int = 12) -> str:
    return job[-n:]


def test_last_is_the_newest_job_by_submit_order(ask, place):
    jobs = [place.submit(priority=level) for level in ("low", "high", "normal")]
    assert [ask("jobs", "show", word, "--json")["id"] for word in ("last", "last~0", "last~1", "last~2")] == [
        jobs[2], jobs[2], jobs[1], jobs[0],
    ]  # fmt: skip


def test_last_is_found_whatever_its_state(ask, cli, place):
    place.submit()
    job = place.complete()
    assert ask("jobs", "show", "last", "--json")["id"] == job
    assert cli("jobs", "result", "last").stdout == '"ok"\n'


def test_last_beyond_the_oldest_job_says_how_many_there_are(cli, place):
    place.do(lambda client: client.count())
    assert "no job 'last': this store has no jobs" in cli("jobs", "show", "last", code=4).stderr
    place.submit()
    assert "no job 'last~1': this store has 1 job" in cli("jobs", "show", "last~1", code=4).stderr


@pytest.mark.parametrize(
    "part",
    [
        lambda job: job[:35], lambda job: job[-4:], end_of, lambda job: job.upper()[-8:],
        lambda job: f"{job[:8]}…{job[-4:]}", lambda job: f"{job[:8]}...{job[-4:]}", lambda job: f"…{job[-4:]}",
    ],
    ids=["beginning", "end", "long end", "upper case", "dashboard", "dots", "ellipsis"],
)  # fmt: skip
def test_a_part_of_an_id_names_the_job(ask, place, part):
    jobs = place.do(unlike)
    assert ask("jobs", "show", part(jobs[1]), "--json")["id"] == jobs[1]


async def unlike(client: Client) -> list[str]:
    """Ids of three jobs. None ends like another one ends or begins."""
    jobs: list[str] = []
    while len(jobs) < 3:
        job = await client.submit("mail")
        if job[-4:] in {job[:4], *(other[-4:] for other in jobs)}:  # one in 20,000
            await client.cancel(job)
            await client.remove(job)
        else:
            jobs.append(job)
    return jobs


def test_a_part_of_several_ids_lists_up_to_five_of_them_and_changes_nothing(cli, place):
    jobs = [place.submit() for _ in range(7)]
    part = jobs[0][:4]
    told = cli("jobs", "cancel", jobs[0], part, code=2).stderr
    assert f"'{part}' may mean 7 jobs; write more characters" in told
    assert [job for job in reversed(jobs) if f"{job} (mail, queued)" in told] == jobs[:1:-1]
    assert "and 2 others" in told
    assert {place.get(job).state for job in jobs} == {State.QUEUED}


def test_a_part_is_searched_among_the_newest_jobs_only_and_the_error_says_so(cli, place, monkeypatch):
    jobs = [place.submit() for _ in range(5)]
    missing = "0" * 12
    assert "no job of this store has an id that begins or ends so" in cli("why", missing, code=4).stderr
    monkeypatch.setattr(job_selector, "MAX_SCANNED", 3)
    monkeypatch.setattr(job_selector, "_PAGE", 2)
    told = cli("why", end_of(jobs[0]), code=4).stderr
    assert "none of the newest 3 jobs has an id that begins or ends so; older jobs were not searched" in told
    assert cli("why", end_of(jobs[2])).stdout.startswith(f"mail  {jobs[2]}")
    assert "only the newest 3 jobs can be counted so" in cli("why", "last~3", code=4).stderr


@pytest.mark.parametrize("word", ["x", "01a", "lasts", "last~", "last~-1", "LAST", "…01a", "01…a"])
def test_a_word_that_can_be_no_id_is_refused(cli, place, word):
    place.submit()
    assert "is no job id; write an id, at least 4 characters" in cli("jobs", "show", word, code=4).stderr


def test_a_full_id_costs_no_search(cli, place, monkeypatch):
    job = place.submit()

    async def refused(*_: object, **__: object) -> None:
        pytest.fail("jobs were searched")

    monkeypatch.setattr(Client, "find", refused)
    cli("jobs", "cancel", job)
    assert place.get(job).state is State.CANCELLED


@pytest.mark.parametrize(
    ("words", "make", "after"),
    [
        (["cancel"], "submit", State.CANCELLED), (["suspend"], "submit", State.SUSPENDED),
        (["retry"], "fail", State.QUEUED), (["release"], "run", State.QUEUED),
        (["priority", "high"], "submit", State.QUEUED),
    ],
    ids=["cancel", "suspend", "retry", "release", "priority"],
)  # fmt: skip
def test_a_change_says_which_job_a_selector_meant(cli, place, words, make, after):
    other = place.submit(queue="other")
    job = getattr(place, make)()
    state = place.get(job).state
    result = cli("jobs", *words, "last")
    assert f"last is the job {job} of 'mail', {state}" in result.stderr
    assert result.stdout.startswith(f"{job} ")
    assert place.get(job).state is after
    assert place.get(other).priority == place.get(other).spec.priority


def test_start_now_resume_and_remove_take_selectors_too(cli, place):
    job = place.submit(delay="1h")
    cli("jobs", "start-now", "last")
    assert place.get(job).state is State.QUEUED
    cli("jobs", "suspend", "last")
    cli("jobs", "resume", end_of(job))
    assert place.get(job).state is State.QUEUED
    cli("jobs", "cancel", "last", job)
    cli("jobs", "remove", "last")
    assert "this store has no jobs" in cli("why", "last", code=4).stderr


def test_two_words_for_one_job_change_it_once(ask, place):
    job = place.submit()
    assert [one["id"] for one in ask("jobs", "cancel", "last", end_of(job), job, "--json")["jobs"]] == [job]


def test_all_words_are_understood_before_the_first_change(cli, place):
    job = place.run()
    cli("jobs", "release", job, "0" * 12, code=4)
    assert place.get(job).state is State.RUNNING
