"""`daybreak jobs`: lists, one job, its result."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import values

FIELDS = [
    "id", "task", "version", "queue", "priority", "state", "reason", "attempt", "max_attempts", "retries", "args",
    "result", "error", "progress", "fence", "run", "owner", "key", "tags", "meta", "resources", "worker",
    "detached_until", "cached_from",
    "created_at", "updated_at", "run_at", "started_at", "finished_at", "expires_at", "waited_for", "ran_for",
]  # fmt: skip


# -- lists -------------------------------------------------------------------------------------------------------------


def test_the_list_reads_as_the_house_style_shows(cli, place):
    job = place.fail("smtp:25", "send_mail", kind="ConnectionRefusedError", queue="mail", retry=1)
    lines = cli("jobs", "--queue", "mail", "--state", "failed").stdout.splitlines()
    assert lines[0].split() == ["ID", "TASK", "PRIORITY", "ATTEMPT", "FAILED", "REASON", "ERROR"]
    assert lines[1].startswith(f"{job}  send_mail  normal    1/1      ")
    assert lines[1].endswith("error      ConnectionRefusedError: smtp:25") or lines[1].endswith(
        "ConnectionRefusedError: smtp:25"
    )
    assert lines[2:] == ["", "1 failed job in mail. Retry with: daybreak jobs retry --queue mail --state failed"]


def test_nothing_found_is_a_sentence_and_no_error(cli, place):
    place.submit(queue="mail")
    assert cli("jobs", "--state", "failed").stdout == "No failed jobs.\n"
    assert cli("jobs", "--queue", "mial").stdout == "No jobs in mial. There is no queue 'mial'; did you mean 'mail'?\n"
    assert "did you mean 'mail'?" in cli("jobs", "--task", "mai").stdout
    assert json.loads(cli("jobs", "--state", "failed", "--json").stdout) == {"jobs": [], "cursor": None}


def test_an_empty_store_says_how_to_submit(cli, place):
    place.do(lambda client: client.tallies())
    assert cli("jobs").stdout == "No jobs. Submit one with: daybreak submit TASK name=value\n"


def test_every_filter_chooses(cli, place, ask):
    place.submit("other")
    options = {"queue": "q", "owner": "ann", "key": "k", "run": "r", "priority": "low", "tags": ["t"]}
    job = place.submit("mail", **options)
    failed = place.fail(task="broken")

    def found(*words: str) -> list[str]:
        return [data["id"] for data in ask("jobs", *words, "--json")["jobs"]]

    for words in (
        ["--queue", "q"], ["--owner", "ann"], ["--key", "k"], ["--run", "r"], ["--priority", "low"],
        ["--priority", "7"], ["--tag", "t"], ["--task", "mail"], ["--task", "mail", "--state", "queued,running"],
    ):  # fmt: skip
        assert found(*words) == [job], words
    assert found("--state", "failed") == found("--reason", "error") == [failed]
    assert len(found("--state", "failed", "--state", "queued")) == 3


def test_pages_follow_one_another(cli, place, ask):
    jobs = place.do(lambda client: client.submit_many([client.spec("mail") for _ in range(5)]))
    first = ask("jobs", "--limit", "2", "--json")
    rest = ask("jobs", "--limit", "10", "--cursor", first["cursor"], "--json")
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == [made.job for made in reversed(jobs)]
    assert rest["cursor"] is None
    place.worker("mail")
    told = cli("jobs", "--limit", "2").stdout.splitlines()[-1]
    assert told == f"2 of 5 jobs. Next page: daybreak jobs --limit 2 --cursor {first['cursor']}"
    assert "not a cursor of this store" in cli("jobs", "--cursor", "x", code=2).stderr


def test_the_usual_number_is_not_repeated(cli, place):
    place.do(lambda client: client.submit_many([client.spec("mail") for _ in range(51)]))
    place.worker("mail")
    assert "50 of 51 jobs. Next page: daybreak jobs --cursor " in cli("jobs").stdout


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("failed", "2 of 3 failed jobs. Retry with: daybreak jobs retry --state failed"),
        ("queued", "2 of 3 queued jobs. No worker is running. Start one with: daybreak worker TARGET"),
    ],
)
def test_what_to_do_next_does_not_hide_the_next_page(cli, place, state, told):
    for _ in range(3):
        place.fail(queue="broken")
        place.submit()
    *_, next_step, more = cli("jobs", "--state", state, "--limit", "2").stdout.splitlines()
    assert next_step == told
    assert more.startswith(f"Next page: daybreak jobs --state {state} --limit 2 --cursor ")
    last = cli(*more.partition("daybreak ")[2].split()).stdout.splitlines()
    assert last[-1].startswith(f"1 {state} job. ")


def test_the_last_line_tells_what_to_do_next(cli, place):
    held = place.submit(queue="held")
    place.do(lambda client: client.suspend(held, note="licence"))
    assert "Resume it with: daybreak jobs resume --state suspended" in cli("jobs", "--state", "suspended").stdout
    place.submit()
    assert "No worker is running. Start one with: daybreak worker TARGET" in cli("jobs").stdout
    place.worker("mail")
    assert "Show one with: daybreak jobs show" in cli("jobs").stdout
    place.run(task="sim")
    assert "Watch it with: daybreak top" in cli("jobs", "--state", "running").stdout


def test_the_column_of_time_says_what_matters_in_each_state(cli, place):
    place.submit("later", delay="1h")
    place.run("now", progress=0.4, message="half way")
    assert "DUE" in (told := cli("jobs", "--state", "scheduled").stdout)
    assert "in 59 min" in told
    told = cli("jobs", "--state", "running").stdout
    assert "40 %" in told
    assert "half way" in told
    assert "for 0 s" in told or "for 1 s" in told


def test_words_of_jobs_are_spelt_out(cli, place):
    place.fail("\x1b[31m[bold]x[/bold]\n second line", tags=["[red]"], owner="[x]")
    told = cli("jobs").stdout
    assert "\x1b" not in told
    assert r"ValueError: \x1b[31m[bold]x[/bold]" in told
    assert "second line" not in told


def test_options_belong_behind_the_command_they_are_for(cli, place):
    job = place.submit(queue="mail")
    told = cli("jobs", "--queue", "mail", "cancel", code=2).stderr
    assert "daybreak jobs cancel --queue mail" in told
    assert place.get(job).state == "queued"


# -- one job -----------------------------------------------------------------------------------------------------------


def test_json_has_exactly_the_documented_fields_in_their_order(ask, place):
    job = place.fail("no", queue="mail", tags=["a"], meta={"x": "1"}, owner="ann", key="k", retry=3)
    data = ask("jobs", "show", job, "--json")
    assert list(data) == FIELDS
    assert data["error"] == {
        "kind": "ValueError",
        "message": "no",
        "traceback": data["error"]["traceback"],
        "attempt": 1,
    }
    assert (data["state"], data["reason"], data["attempt"], data["max_attempts"], data["retries"]) == (
        "failed",
        "error",
        1,
        3,
        0,
    )
    assert (data["priority"], data["tags"], data["meta"], data["fence"]) == (5, ["a"], {"x": "1"}, 1)
    assert data["cached_from"] is None
    assert data["resources"] == []
    assert 0 <= data["ran_for"] < 30
    assert 0 <= data["waited_for"] < 30
    created, updated = (datetime.fromisoformat(data[name]) for name in ("created_at", "updated_at"))
    assert timedelta() <= updated - created < timedelta(seconds=30)
    assert data["created_at"].endswith("Z")
    assert ask("jobs", "--json")["jobs"] == [data]


def test_json_of_a_job_that_has_not_run(ask, place):
    data = ask("jobs", "show", place.submit("mail", {"to": "ann"}, delay="1h", expires_in="2h"), "--json")
    assert (data["args"], data["result"], data["error"], data["worker"], data["ran_for"]) == (
        {"to": "ann"},
        None,
        None,
        None,
        None,
    )
    assert data["waited_for"] == 0, "it could not have started yet"
    assert data["run_at"] > datetime.now(UTC).isoformat()
    assert data["expires_at"] is not None


def test_json_of_a_running_job(ask, place):
    data = ask("jobs", "show", place.run(progress=0.25), "--json")
    assert (data["progress"], data["worker"], data["finished_at"]) == (0.25, "w1", None)
    assert data["ran_for"] >= 0


def test_history_comes_with_json_if_asked(ask, place):
    data = ask("jobs", "show", place.fail(), "--json", "--history")
    assert [event["kind"] for event in data["history"]] == ["submitted", "started", "failed"]
    assert data["history"][2]["reason"] == "error"


def test_all_about_a_job_for_people(cli, place):
    job = place.fail("no\x1b[31m", args={"to": "ann"}, queue="mail", owner="bob", tags=["x", "y"], retry=3)
    told = cli("jobs", "show", job).stdout
    for word in (
        "mail  " + job,
        "failed",
        "1 of 3",
        "bob",
        "x, y",
        '{"to": "ann"}',
        "by ann",
        "UTC",
        "Traceback",
        "line 7, in send",
    ):
        assert word in told
    assert r"ValueError: no\x1b[31m" in told
    assert "\x1b" not in told
    assert [line.split()[2] for line in told.splitlines() if line.startswith("20")] == [
        "submitted",
        "started",
        "failed",
    ]
    assert told.splitlines()[-1] == f"Retry with: daybreak jobs retry {job}"


def test_attempts_are_told_one_by_one(cli, place):
    job = place.fail("first", kind="OSError")
    told = cli("jobs", "show", job).stdout
    assert "scheduled" in told
    assert "attempt 1 failed (OSError), and the next one starts" in told
    [row] = [line for line in told.splitlines() if line.strip().startswith("1 ")]
    assert row.split()[-4:] == ["retrying", "w1", "OSError:", "first"]


def test_a_long_value_is_cut_for_people_only(cli, ask, place):
    job = place.complete(values.encode("x" * 100_000))
    told = cli("jobs", "show", job).stdout
    assert len(told) < 10_000
    assert "--json prints all of it" in told
    assert ask("jobs", "show", job, "--json")["result"] == "x" * 100_000


def test_a_job_that_waits_says_where_it_stands(cli, place):
    place.submit(priority="high")
    job = place.submit()
    assert "1 job of its queue is before it" in cli("jobs", "show", job).stdout


@pytest.mark.parametrize("words", [["show"], ["result"], ["show", "--json"]])
def test_a_job_that_is_not_there_is_exit_4(cli, place, words):
    place.submit()
    assert "begins or ends so" in cli("jobs", *words, "0000", code=4).stderr
    assert "never submitted to this store" in cli("jobs", *words, "01a1e293-ba6c-7a1c-8063-f5022d90ca6d", code=4).stderr


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_result_is_json(cli, place):
    assert json.loads(cli("jobs", "result", place.complete(values.encode([1, {"a": None}]))).stdout) == [1, {"a": None}]
    assert cli("jobs", "result", place.complete(None)).stdout == "null\n"
    assert cli("jobs", "result", place.complete(values.encode("hello")), "--raw").stdout == "hello\n"
    assert cli("jobs", "result", place.complete(values.encode([1, 2])), "--raw").stdout == "[1, 2]\n"


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "a\tb\r\n\x07\x00", "Grüße \u202e"])
def test_a_program_gets_a_raw_text_as_it_is(cli, place, text):
    assert cli("jobs", "result", place.complete(values.encode(text)), "--raw").stdout_bytes == f"{text}\n".encode()


def test_a_result_that_is_not_there(cli, place):
    assert "failed (error, attempt 1): ValueError: no" in cli("jobs", "result", place.fail(), code=1).stderr
    job = place.submit()
    assert (
        f"is queued. Wait for it with: daybreak jobs result {job} --wait" in cli("jobs", "result", job, code=5).stderr
    )
    assert "is still queued after" in cli("jobs", "result", job, "--timeout-wait", "1ms", code=5).stderr


# -- a time ------------------------------------------------------------------------------------------------------------


def test_since_and_until_name_jobs_by_when_they_ended_or_were_submitted(ask, cli, place):
    old = place.fail()
    between = (place.get(old).finished_at + timedelta(microseconds=1)).isoformat()
    place.do(lambda client: asyncio.sleep(0.002))
    late, waits = place.fail(), place.submit()

    def found(*words):
        return {job["id"] for job in ask("jobs", "--json", *words)["jobs"]}

    assert found("--since", between) == {late, waits}
    assert found("--until", between) == {old}
    assert found("--since", "1h", "--state", "failed") == {old, late}
    assert found("--until", "1h") == set()
    assert found("--since", between, "--state", "failed", "--reason", "error") == {late}
    assert "No failed jobs until 1h ago." in cli("jobs", "--until", "1h", "--state", "failed").stdout
    assert "2 failed jobs of the last 1h. Retry with: daybreak jobs retry --state failed --since 1h" in (
        cli("jobs", "--since", "1h", "--state", "failed").stdout
    )


@pytest.mark.parametrize("said", ["1", "2026-01-31T18:00", "yesterday", ""])
def test_a_time_that_is_none_is_refused(cli, place, said):
    place.submit()
    cli("jobs", "--since", said, code=2)


def test_pages_of_jobs_of_a_time_lose_none_and_repeat_none(ask, cli, place, monkeypatch):
    from daybreak.api import job_filter

    jobs = [place.fail() for _ in range(7)]
    until = place.get(jobs[4]).finished_at.isoformat()
    for page, looked_at in ((2, 1000), (1000, 1000), (1000, 1), (2, 3)):
        monkeypatch.setattr(job_filter, "PAGE", page)
        monkeypatch.setattr(job_filter, "MAX_SCANNED", looked_at)
        seen, cursor = [], ()
        while True:
            found = ask("jobs", "--json", "--until", until, "--limit", "3", *cursor)
            assert len(found["jobs"]) <= 3
            seen += [job["id"] for job in found["jobs"]]
            if found["cursor"] is None:
                break
            cursor = ("--cursor", found["cursor"])
        assert seen == jobs[3::-1]
    told = cli("jobs", "--until", "2020-01-01T00:00+00:00").stdout
    assert told.startswith("No jobs until 2020-01-01T00:00+00:00 among the jobs checked so far. Next page: ")


def test_only_jobs_of_the_time_are_changed(ask, place):
    old = place.fail()
    between = (place.get(old).finished_at + timedelta(microseconds=1)).isoformat()
    place.do(lambda client: asyncio.sleep(0.002))
    late = place.fail()
    dry = ask("jobs", "retry", "--reason", "error", "--since", between, "--dry-run", "--json")
    assert (dry["matching"], dry["by_state"]) == (1, {"failed": 1})
    done = ask("jobs", "retry", "--reason", "error", "--since", between, "--json")
    assert (done["matching"], done["changed"]) == (1, 1)
    assert (place.get(old).state, place.get(late).state) == ("failed", "queued")
    assert ask("jobs", "cancel", "--since", "1h", "--json")["changed"] == 1
