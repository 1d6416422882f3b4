"""`daybreak runs`: runs listed, shown, waited for, exported and changed."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet as pq
import pytest

from daybreak import Daybreak

TASKS = """
from daybreak import Daybreak

app = Daybreak()

@app.task(retry=1)
def simulate(vin: float, duty: float) -> dict[str, float]:
    if vin == 12:
        raise ValueError("no convergence")
    return {"vout": vin * duty}
"""


@pytest.fixture
def swept(tmp_path):
    """Submits a run of four points, of which two will fail, and runs it if asked to."""
    (tmp_path / "tasks.py").write_text(TASKS)

    def make(name="night", *, work=True):
        app = Daybreak(f"sqlite:///{tmp_path / 'daybreak.db'}")

        @app.task(retry=1)
        def simulate(vin: float, duty: float) -> dict[str, float]:
            if vin == 12:
                raise ValueError("no convergence")
            return {"vout": vin * duty}

        app.sweep(simulate, {"vin": [10, 12], "duty": [0.25, 0.5]}, name=name)
        if work:
            app.work(isolation="thread")
        app.close()

    return make


def test_no_runs_is_a_sentence(cli, ask, place):
    place.submit()
    assert cli("runs").stdout.startswith("No runs yet")
    assert ask("runs", "--json") == {"runs": []}


def test_last_is_the_newest_run_unless_a_run_has_that_name(cli, ask, swept):
    swept("first", work=False)
    swept("second", work=False)
    assert [ask("runs", "show", word, "--json")["name"] for word in ("last", "last~1")] == ["second", "first"]
    assert ask("runs", "cancel", "last", "--dry-run", "--json") == {"run": "second", "changed": 0, "would_change": 4}
    assert "of run first suspended" in cli("runs", "suspend", "last~1").stdout
    assert "no run named 'last~2'" in cli("runs", "show", "last~2", code=4).stderr
    swept("last~1", work=False)
    assert ask("runs", "show", "last~1", "--json")["name"] == "last~1"


def test_runs_are_listed_with_what_is_done_and_failed(cli, ask, swept):
    swept()
    swept("later", work=False)
    lines = cli("runs").stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATE", "DONE", "FAILED", "TASK", "STARTED"] or "ENDED" in lines[0]
    assert lines[1].split()[:3] == ["later", "running", "0/4"]
    assert lines[2].split()[:4] == ["night", "finished", "4/4", "2"]
    assert lines[-1] == "2 runs. 2 points of night failed. Look with: daybreak runs show night"
    assert [run["name"] for run in ask("runs", "--json")["runs"]] == ["later", "night"]


def test_show_says_what_varies_and_why_points_failed(cli, ask, swept):
    swept()
    text = cli("runs", "show", "night").stdout
    assert "2 completed, 2 failed" in text
    assert "varies    vin, duty" in text
    assert "2  ValueError: no convergence" in text
    assert text.endswith("Run the 2 failed points again with: daybreak runs retry night\n")
    assert ask("runs", "show", "night", "--json")["jobs"]["failed"] == 2
    assert "did you mean 'night'?" in cli("runs", "show", "nigth", code=4).stderr


def test_wait_tells_by_its_exit_code_how_the_run_ended(cli, ask, swept):
    swept("later", work=False)
    result = cli("runs", "wait", "later", "--timeout", "0.01s", code=5)
    assert "later" in result.stderr
    cli("runs", "cancel", "later")
    assert "4 cancelled" in cli("runs", "wait", "later", code=1).stdout
    swept()
    assert "2 completed, 2 failed" in cli("runs", "wait", "night", code=1).stdout
    cli("runs", "delete", "night")
    assert "no run named 'night'" in cli("runs", "wait", "night", code=4).stderr


def test_wait_is_a_success_if_every_point_completed(cli, ask, tmp_path):
    cli("sweep", "true {n}", "--grid", "n=1,2", "--name", "fine", "--jobs", "1")
    assert cli("runs", "wait", "fine").stdout.startswith("Run fine is finished")
    assert ask("runs", "wait", "fine", "--json")["jobs"]["completed"] == 2


def test_export_writes_a_row_for_each_point(cli, swept, tmp_path):
    swept()
    rows = list(csv.DictReader(io.StringIO(cli("runs", "export", "night").stdout)))
    assert [(row["vin"], row["duty"], row["vout"]) for row in rows] == [
        ("10.0", "0.25", "2.5"), ("10.0", "0.5", "5.0"), ("12.0", "0.25", ""), ("12.0", "0.5", ""),
    ]  # fmt: skip
    assert rows[2]["error"] == "ValueError: no convergence"
    result = cli("runs", "export", "night", "--csv", "out.csv")
    assert result.stdout == ""
    assert result.stderr == "4 rows of run night written to out.csv.\n"
    assert list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text()))) == rows
    found = json.loads(cli("runs", "export", "night", "--json", "-").stdout)
    assert [row["vout"] for row in found if "vout" in row] == [2.5, 5.0]
    cli("runs", "export", "night", "--json", "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == found
    cli("runs", "export", "night", "--parquet", "out.parquet")
    assert pq.read_table("out.parquet").to_pydict()["vout"] == [2.5, 5.0, None, None]


def test_export_refuses_two_files_and_parquet_on_stdout(cli, swept):
    swept(work=False)
    assert "one file at a time" in cli("runs", "export", "night", "--csv", "a", "--json", "b", code=2).stderr
    assert "name a file" in cli("runs", "export", "night", "--parquet", "-", code=2).stderr
    assert (
        "cannot write no/such/x.csv: No such" in cli("runs", "export", "night", "--csv", "no/such/x.csv", code=2).stderr
    )


def test_changes_say_how_many_jobs_they_changed_and_a_dry_run_changes_none(cli, ask, swept):
    swept(work=False)

    def states():
        return {name: n for name, n in ask("runs", "show", "night", "--json")["jobs"].items() if n}

    assert cli("runs", "suspend", "night", "--dry-run").stdout == "4 jobs of run night would be suspended.\n"
    assert states() == {"queued": 4}
    assert cli("runs", "suspend", "night", "--note", "licence").stdout == "4 jobs of run night suspended.\n"
    assert states() == {"suspended": 4}
    assert "licence" in cli("runs", "show", "night").stdout
    assert ask("runs", "resume", "night", "--json") == {"run": "night", "changed": 4}
    assert states() == {"queued": 4}
    assert cli("runs", "priority", "night", "low").stdout == "4 jobs of run night moved to priority low.\n"
    assert ask("runs", "show", "night", "--json")["priority"] == 7
    assert ask("runs", "cancel", "night", "--json", "--dry-run") == {"run": "night", "changed": 0, "would_change": 4}
    assert cli("runs", "cancel", "night").stdout == "4 jobs of run night cancelled.\n"
    assert cli("runs", "cancel", "night").stdout == "No job of run night to change.\n"
    assert cli("runs", "retry", "night").stdout == "No job of run night to change.\n"
    assert cli("runs", "retry", "night", "--cancelled").stdout == "4 jobs of run night queued again.\n"
    assert "cancel it first" in cli("runs", "delete", "night", code=1).stderr
    assert cli("runs", "delete", "night", "--force").stdout == "4 jobs of run night removed.\n"
    assert "this store has no runs" in cli("runs", "show", "night", code=4).stderr


def test_a_run_that_nobody_works_on_says_how_to_start_a_worker(cli):
    cli("sweep", "true {n}", "--grid", "n=1,2", "--name", "alone", "--no-work")
    start = "no worker is running, so the run waits. Start one with: daybreak worker --allow-commands --queues alone"
    assert f"{start} (or give the same sweep again)" in cli("runs", "show", "alone").stdout
    assert start in cli("runs", "wait", "alone", "--timeout", "0.01s", code=5).stderr
    cli("runs", "suspend", "alone")
    assert start in cli("runs", "resume", "alone").stderr
    assert "daybreak worker --allow-commands --queues alone" in cli("doctor", code=None).stdout


def test_failed_points_are_run_again(cli, swept, ask):
    swept()
    again = cli("runs", "retry", "night")
    assert again.stdout == "2 jobs of run night queued again.\n"
    assert "so the run waits" in again.stderr
    assert ask("runs", "show", "night", "--json")["state"] == "running"
