"""`doctor` reports a task that waits for a job which only its own slot could run."""

from __future__ import annotations

import json
import subprocess
import sys

from worker_processes import ask, until
from worker_tasks import app

from daybreak import State
from daybreak.client.waits import KIND, all_waits

TASKS = """
from daybreak import Daybreak
app = Daybreak()
@app.task
def inner() -> int:
    return 1
@app.task
def outer() -> int:
    return inner.submit().result() + 1
"""


def findings(url: str) -> list[str]:
    command = [sys.executable, "-m", "daybreak.cli", "doctor", "--json", "--url", url]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return [one["what"] for one in json.loads(ran.stdout)["findings"] if not one["well"]]


def test_doctor_reports_jobs_stuck_in_waits_and_another_worker_resolves_them(stage):
    tasks = stage.folder / "nested.py"
    tasks.write_text(TASKS)
    with stage.process("--processes", "1", target=tasks):
        job = ask(app, lambda client: client.submit("outer"))
        until(lambda: ask(app, lambda client: all_waits(client.store)), "the wait is shown")
        [what] = findings(stage.url)
        assert what.startswith(f"the job {job} of 'outer' waits for the job ")
        with stage.process("--processes", "1", target=tasks):
            until(lambda: ask(app, lambda client: client.get(job)).state is State.COMPLETED, "it goes on")
            assert ask(app, lambda client: client.store.records(KIND)) == []
            assert findings(stage.url) == []
