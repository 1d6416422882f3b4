"""`daybreak cache`, and the options of other commands that are about known results."""

from __future__ import annotations

from pathlib import Path

import pytest

APP = """
from daybreak import Daybreak, File

app = Daybreak("jobs.db")

@app.task(cache=True)
def simulate(vin: float, duty: float = 0.5) -> float:
    return vin * duty

@app.task
def mail(to: str) -> None: ...
"""


@pytest.fixture
def known(cli, tmp_path: Path) -> list[str]:
    """A store with two known results of the task simulate; the ids of the jobs that computed them."""
    (tmp_path / "tasks.py").write_text(APP)
    ids = [cli("submit", "simulate", f"vin={vin}", "--app", "tasks.py").stdout.strip() for vin in (24, 25)]
    cli("worker", "tasks.py", "--until-idle", "--isolation", "thread")
    return ids


def submit(cli, *words: str) -> str:
    return str(cli("submit", "simulate", *words, "--app", "tasks.py").stdout.strip())


def test_an_empty_store_teaches(cli):
    cli("submit", "mail", "to=ann", "--url", "jobs.db")
    assert "@app.task(cache=True)" in cli("cache", "--url", "jobs.db").stdout
    assert cli("cache", "list", "--url", "jobs.db").stdout.startswith("No results are known.")


def test_a_submit_of_a_known_result_is_completed_at_once(cli, ask, known):
    hit = submit(cli, "vin=24", "duty=0.5")
    job = ask("jobs", "show", hit, "--json", "--url", "jobs.db")
    assert (job["state"], job["cached_from"], job["result"]) == ("completed", known[0], 12.0)
    assert f"job {known[0]}, which computed the same" in cli("jobs", "show", hit, "--url", "jobs.db").stdout
    for option in ("--no-cache", "--refresh"):
        assert ask("jobs", "show", submit(cli, "vin=24", option), "--json", "--url", "jobs.db")["state"] == "queued"
    assert "not both" in cli("submit", "simulate", "vin=1", "--no-cache", "--refresh", code=2).stderr


def test_statistics_and_the_list(cli, ask, known):
    submit(cli, "vin=25")
    text = cli("cache", "stats", "--url", "jobs.db").stdout
    assert "2 results of 8 bytes; 1 job (33%) did not run" in text
    data = ask("cache", "--json", "--url", "jobs.db")
    assert (data["entries"], data["hits"], data["tasks"][0]["task"], data["is_exact"]) == (2, 1, "simulate", True)
    page = ask("cache", "list", "--task", "simulate", "--limit", "1", "--json", "--url", "jobs.db")
    [latest] = page["entries"]
    assert (latest["job"], latest["hits"]) == (known[1], 1)
    [older] = ask("cache", "list", "--cursor", page["cursor"], "--json", "--url", "jobs.db")["entries"]
    assert older["job"] == known[0]
    assert "did you mean 'simulate'" in cli("cache", "list", "--task", "simulat", "--url", "jobs.db", code=4).stderr


def test_why_names_what_differs(cli, ask, known):
    text = cli("cache", "why", known[1], "--url", "jobs.db").stdout
    assert "the argument 'vin': 24.0 before, 25.0 now" in text
    assert f"jobs show {known[0]}" in text
    data = ask("cache", "why", "last", "--json", "--url", "jobs.db")
    assert data["differences"] == [{"kind": "argument", "name": "vin", "before": "24.0", "now": "25.0"}]
    assert cli("cache", "why", "0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d", "--url", "jobs.db", code=4).stdout == ""


def test_results_are_dropped_by_task_job_and_flight(cli, ask, known):
    [_, entry] = ask("cache", "list", "--json", "--url", "jobs.db")["entries"]
    dry = cli("cache", "invalidate", "--task", "simulate", "--dry-run", "--url", "jobs.db")
    assert dry.stdout == "2 results would be dropped.\n"
    assert cli("cache", "invalidate", entry["flight"][:12], "--url", "jobs.db").stdout == "1 result dropped.\n"
    left = known[1] if entry["job"] == known[0] else known[0]
    assert ask("cache", "invalidate", left, "--json", "--url", "jobs.db") == {"dropped": 1, "dry_run": False}
    assert cli("cache", "clear", "--url", "jobs.db").stdout == "0 results dropped.\n"
    for words in ((), ("--task", "simulate", "last")):
        assert "name a job or a flight" in cli("cache", "invalidate", *words, "--url", "jobs.db", code=2).stderr
    assert "no job" in cli("cache", "invalidate", "zzzz", "--url", "jobs.db", code=4).stderr


def test_a_job_that_waits_for_an_equal_one_says_so_without_its_key(cli, known):
    first, second = submit(cli, "vin=30"), submit(cli, "vin=30")
    listed = cli("jobs", "--state", "blocked", "--url", "jobs.db").stdout
    assert "waiting for the result of an equal job" in listed
    shown = cli("jobs", "show", second, "--url", "jobs.db").stdout
    assert "the result of an equal job" in shown
    assert "flight" not in listed + shown
    assert first in shown
    cli("jobs", "cancel", first, "--url", "jobs.db")


def test_a_misspelt_command_is_answered(cli):
    assert "did you mean 'invalidate'" in cli("cache", "invalidat", code=2).stderr
    assert (
        "put options after the command: daybreak cache why --json" in cli("cache", "--json", "why", "x", code=2).stderr
    )


def test_a_command_line_is_known_by_its_files(cli, ask, start, tmp_path):
    (tmp_path / "gain.txt").write_text("3")
    words = ("exec", "--cache", "--input", "gain.txt", "--url", "jobs.db", "--", "cat", "gain.txt")
    cli(*words)
    assert start("worker", "--allow-commands", "--until-idle", "--url", "jobs.db").wait(60) == 0
    hit = cli(*words).stdout.strip()
    assert ask("jobs", "show", hit, "--json", "--url", "jobs.db")["result"]["stdout"] == "3"
    (tmp_path / "gain.txt").write_text("4")
    miss = cli(*words).stdout.strip()
    assert ask("jobs", "show", miss, "--json", "--url", "jobs.db")["state"] == "queued"
    [difference] = ask("cache", "why", miss, "--json", "--url", "jobs.db")["differences"]
    assert (difference["kind"], difference["name"]) == ("environment", "file gain.txt")
    assert "no such file" in cli("exec", "--cache", "--input", "x.txt", "--", "true", code=2).stderr
    assert "--input is for --cache" in cli("exec", "--input", "gain.txt", "--", "true", code=2).stderr


def test_a_sweep_of_commands_over_known_points_runs_nothing(cli, ask, start, tmp_path):
    (tmp_path / "sim.py").write_text("import sys\nprint(float(sys.argv[1]) / 2)\n")
    sweep = ("sweep", "python3 sim.py {vin}", "-g", "vin=10,12", "--cache", "--no-work", "--url", "jobs.db", "--name")
    cli(*sweep, "one")
    worker = ("worker", "--allow-commands", "--queues", "one", "--until-idle", "--url", "jobs.db")
    assert start(*worker).wait(60) == 0
    cli(*sweep, "two")
    data = ask("runs", "show", "two", "--json", "--url", "jobs.db")
    assert data["jobs"]["completed"] == 2
    assert "2 had a known result" in cli("runs", "show", "two", "--url", "jobs.db").stdout
    (tmp_path / "sim.py").write_text("import sys\nprint(float(sys.argv[1]) / 3)\n")
    cli(*sweep, "three")
    assert ask("runs", "show", "three", "--json", "--url", "jobs.db")["jobs"]["completed"] == 0


@pytest.mark.parametrize("words", [("exec", "--"), ("sweep", "-g", "vin=10", "--no-work", "--name", "one")])
def test_a_command_whose_input_has_changed_since_it_was_submitted_keeps_no_result(cli, ask, start, tmp_path, words):
    (tmp_path / "sim.py").write_text("print(open('gain').read())\n")
    (tmp_path / "gain").write_text("3")
    line = ["python3", "sim.py", "{vin}"]
    line = [" ".join(line)] if words[0] == "sweep" else line
    cli(words[0], "--cache", "--input", "gain", "--url", "jobs.db", *words[1:], *line)
    (tmp_path / "gain").write_text("4")
    queue = "one" if words[0] == "sweep" else "default"
    start("worker", "--allow-commands", "--queues", queue, "--until-idle", "--url", "jobs.db").wait(60)
    told = cli("jobs", "show", "last", "--url", "jobs.db").stdout
    assert f"{tmp_path / 'gain'} is not as it was when the job was submitted" in told
    assert ask("cache", "--json", "--url", "jobs.db")["entries"] == 0
