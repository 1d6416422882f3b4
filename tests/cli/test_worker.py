"""`daybreak worker`, `dev` and `demo`: what they hand on, and the whole way with real processes."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import logging
import os
import re
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from daybreak.cli import code_changes, dev, logs
from daybreak.worker.settings import WorkerSettings

TASKS = """
from daybreak import Daybreak
app = Daybreak()

@app.task
def double(n: int) -> int:
    return 2 * n

@app.task(retry=1)
def broken():
    raise OSError("\\x1b[31mno")
"""


SLOW = """
import time
from pathlib import Path
from daybreak import Daybreak
app = Daybreak()

@app.task
def slow() -> None:
    while not Path("gate").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path / "tasks.py"


@pytest.fixture
def handed(monkeypatch) -> list:
    """What the worker command hands on to the app, instead of working."""
    from daybreak.api.app import Daybreak

    seen: list = []

    def run_worker(app, settings, target=None):
        seen.append((app, settings, target))
        return 0

    monkeypatch.setattr(Daybreak, "run_worker", run_worker)
    return seen


def test_without_a_word_the_worker_has_the_defaults(cli, tasks, handed, tmp_path):
    told = cli("worker", "tasks.py").stderr
    [(_, settings, target)] = handed
    assert settings == WorkerSettings()
    assert target == "tasks.py"
    assert told == f"Worker for tasks.py on {tmp_path / 'daybreak.db'} (from the default). Ctrl-C stops it.\n"


def test_every_option_reaches_the_worker(cli, tasks, handed):
    cli(
        "worker", "tasks.py", "--queues", "a,b", "-q", "c", "--processes", "3", "--async-jobs", "9", "--lease", "5s",
        "--grace", "1m", "--recycle-after", "100", "--memory-limit", "512MiB", "--isolation", "thread",
        "--allow-commands", "--name", "w", "--until-idle",
    )  # fmt: skip
    assert handed[0][1] == WorkerSettings(
        queues=("a", "b", "c"), processes=3, async_jobs=9, lease_for=timedelta(seconds=5), grace=timedelta(minutes=1),
        recycle_after=100, memory_limit=512 * 1024**2, isolation="thread", allow_commands=True, name="w",
        until_idle=True,
    )  # fmt: skip


def test_what_is_not_said_comes_from_environment_and_file(cli, tasks, handed, tmp_path, monkeypatch):
    (tmp_path / "daybreak.toml").write_text('app = "tasks.py"\n[worker]\nprocesses = 2\ngrace = "1s"\nqueues = ["a"]')
    monkeypatch.setenv("DAYBREAK_WORKER_GRACE", "2s")
    cli("worker", "--queues", "b")
    settings = handed[0][1]
    assert (settings.processes, settings.grace, settings.queues) == (2, timedelta(seconds=2), ("b",))
    assert handed[0][2] == str(tasks)


def test_the_store_of_the_command_line_goes_before_that_of_the_code(cli, tmp_path, handed):
    (tmp_path / "tasks.py").write_text(TASKS.replace("Daybreak()", "Daybreak('code.db')"))
    told = cli("worker", "tasks.py", "--url", "cli.db").stderr
    assert f"{tmp_path / 'cli.db'} (from the command line)" in told
    assert handed[0][0].settings.path == tmp_path / "cli.db"


def test_the_store_of_the_code_is_told_as_such(cli, tmp_path, handed):
    (tmp_path / "tasks.py").write_text(TASKS.replace("Daybreak()", "Daybreak('code.db')"))
    assert f"{tmp_path / 'code.db'} (from an argument in code)" in cli("worker", "tasks.py").stderr


def test_a_worker_for_command_lines_alone_needs_no_app(cli, handed):
    assert "Worker for command lines" in cli("worker", "--allow-commands").stderr
    assert handed[0][1].allow_commands


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["worker"], "no app is set"),
        (["worker", "missing.py"], "there is no file missing.py"),
        (["worker", "tasks.py", "--processes", "0"], "--processes"),
        (["worker", "tasks.py", "--processes", "20000"], "between 1 and 10,000"),
        (["worker", "tasks.py", "--grace", "10"], "has no unit"),
        (["worker", "tasks.py", "--lease", "1ms"], "between 0.2 s and 1 h"),
        (["worker", "tasks.py", "--memory-limit", "much"], "write a size"),
        (["worker", "tasks.py", "--isolation", "fork"], "no isolation named 'fork'"),
        (["worker", "tasks.py", "--url", "sqs://x"], "write 1 to 30 letters"),
        (["dev"], "no app is set"),
    ],
)
def test_what_cannot_be_right_starts_nothing(cli, tasks, handed, words, told):
    assert told in cli(*words, code=2).stderr
    assert handed == []


def test_an_error_in_the_users_module_is_told_with_its_line(cli, tmp_path, handed):
    (tmp_path / "shop.py").write_text("from daybreak import Daybreak\napp = Daybreak()\nPORT = int('80x')\n")
    told = cli("worker", "shop:app", code=2).stderr
    assert "cannot load shop:app: ValueError: invalid literal for int() with base 10: '80x'" in told
    assert f"({tmp_path / 'shop.py'}, line 3)" in told


def test_no_word_of_a_job_passes_for_a_line_of_the_log():
    forged = "2026-11-17 13:00:00 INFO    stopped: 999 completed, 0 failed"
    trouble = RuntimeError(f"oops\n{forged}\r{forged}\x85{forged}\u2028{forged}\n")
    about = {"msg": f"mail failed: {trouble}", "levelname": "ERROR", "exc_info": (RuntimeError, trouble, None)}
    line = logs.SafeFormatter(logs.LINE_FORMAT, logs.TIME_FORMAT, style="{").format(logging.makeLogRecord(about))
    first, *others = line.splitlines()
    assert first.endswith("ERROR   mail failed: oops")
    assert len(others) == 3, "the message and the traceback, each with one line that was forged"
    assert all(line.startswith("    ") for line in others)


def test_the_demo_is_told(cli, monkeypatch):
    story = pytest.importorskip("daybreak.demo.story")
    monkeypatch.setattr(story, "run", lambda *_, **__: 0)
    cli("demo")


# -- real processes ----------------------------------------------------------------------------------------------------


def test_submit_work_and_look(start, cli, ask, tasks, place):
    doubled = cli("submit", "double", "n=21", "--app", "tasks.py").stdout.strip()
    broken = cli("submit", "broken", "--app", "tasks.py").stdout.strip()
    worker = start("worker", "tasks.py", "--processes", "1", "--until-idle")
    _, told = worker.communicate(timeout=60)
    assert worker.returncode == 0, told
    assert cli("jobs", "result", doubled).stdout == "42\n"
    assert ask("jobs", "show", broken, "--json")["error"]["message"] == "\x1b[31mno"
    assert f"broken {broken}" in told
    assert "\x1b" not in told, "what a job says cannot steer the terminal of its worker"


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_wait_for_a_live_worker_and_stop_it(start, cli, tasks, until, place):
    worker = start("worker", "tasks.py", "--processes", "1")
    until(lambda: place.path.exists() and "1 live worker" in cli("workers", code=None).stdout)
    submitted = cli("submit", "double", "n=4", "--app", "tasks.py", "--wait", "--timeout-wait", "30s")
    assert submitted.stdout == "8\n"
    assert "no worker" not in submitted.stderr
    assert "was cancelled" not in submitted.stderr
    assert (
        "failed (exhausted, attempt 1): OSError"
        in cli("submit", "broken", "--app", "tasks.py", "--wait", code=1).stderr
    )
    assert cli("doctor", code=1).stdout.count("problem  ") == 1, "the job that was given up, and nothing else"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "No workers" in cli("workers").stdout


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_command_line_runs_where_it_is_allowed(start, cli):
    command = [sys.executable, "-c", "import os, sys; print(os.environ['A'], os.getcwd()); sys.exit(int(sys.argv[1]))"]
    good = cli("exec", "--env", "A=b", "--", *command, "0").stdout.strip()
    bad = cli("exec", "--env", "A=b", "--retry", "1", "--", *command, "3").stdout.strip()
    worker = start("worker", "--allow-commands", "--until-idle")
    _, told = worker.communicate(timeout=60)
    assert worker.returncode == 0, told
    assert f'"stdout": "b {Path.cwd()}\\n"' in cli("jobs", "result", good).stdout
    cli("jobs", "result", bad, code=1)


# -- dev ---------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_dev_starts_the_worker_again_when_the_code_changes(start, cli, tasks, until, place, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    written = time.time_ns() // 10**9 * 10**9
    os.utime(tasks, ns=(written, written))
    process = start("dev", "tasks.py", "--processes", "1")
    until(lambda: place.path.exists() and "1 live worker" in cli("workers", code=None).stdout)
    tasks.write_text(TASKS.replace("2 * n", "3 * n"))
    os.utime(tasks, ns=(written + 1, written + 1))  # same length, same second: all that Python's cache compares
    assert "Worker for" in process.stderr.readline()
    while "tasks.py changed; restarting the worker" not in (line := process.stderr.readline()):
        assert line
    while "Worker for" not in (line := process.stderr.readline()):
        assert line
    result = cli("submit", "double", "n=2", "--app", "tasks.py", "--wait", "--timeout-wait", "60s")
    assert result.stdout == "6\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_dev_serves_and_starts_worker_and_server_again_when_the_code_changes(start, cli, tasks):
    process = start("dev", "tasks.py", "--serve", "--port", "0", "--processes", "1")
    first = _server_of(process)
    assert httpx.get(f"{first}/health/live").status_code == 200
    tasks.write_text(TASKS.replace("2 * n", "3 * n"))
    second = _server_of(process)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{first}/health/live")
    assert httpx.get(f"{second}/api/v1/queues").status_code == 200
    result = cli("submit", "double", "n=2", "--app", "tasks.py", "--wait", "--timeout-wait", "60s")
    assert result.stdout == "6\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{second}/health/live")


def _server_of(process) -> str:
    """The address of the server, once it and the worker beside it say that they are there."""
    told: dict[str, str] = {}
    while len(told) < 2:
        line = process.stderr.readline()
        assert line, told
        if line.startswith("Worker for"):
            told["worker"] = line
        elif line.startswith("Server on"):
            told["server"] = re.search(r"(http://\S+?)\. ", line)[1]
    return told["server"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_dev_lets_its_worker_drain_when_the_terminal_closes(start, cli, tasks, until, place):
    tasks.write_text(SLOW)
    job = cli("submit", "slow", "--app", "tasks.py").stdout.strip()
    process = start("dev", "tasks.py", "--processes", "1", "--grace", "30s")
    until(lambda: place.get(job).state == "running")
    for _ in range(2):  # a shell passes it on, and the system says it too
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
    Path("gate").touch()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped: 1 completed, 0 failed" in told


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_dev_waits_for_broken_code_to_be_mended(start, cli, tasks):
    tasks.write_text("def x(:")
    process = start("dev", "tasks.py", "--processes", "1")
    assert "SyntaxError" in process.stderr.readline()
    assert "it will be restarted when a file changes" in process.stderr.readline()
    tasks.write_text(TASKS)
    assert "tasks.py changed" in process.stderr.readline()
    assert "Worker for" in process.stderr.readline()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_dev_sees_files_that_are_written_made_and_deleted(tmp_path):
    (tmp_path / "a.py").touch()
    (tmp_path / ".venv").mkdir()
    before = code_changes.stamps(tmp_path)
    assert code_changes.changed(before, code_changes.stamps(tmp_path)) == []
    (tmp_path / ".venv" / "x.py").touch()
    (tmp_path / "daybreak.db").touch()
    assert code_changes.changed(before, code_changes.stamps(tmp_path)) == []
    (tmp_path / "b.py").touch()
    assert code_changes.changed(before, code_changes.stamps(tmp_path)) == [str(tmp_path / "b.py")]
    (tmp_path / "b.py").unlink()
    os.utime(tmp_path / "a.py", ns=(1, 1))
    assert code_changes.changed(before, code_changes.stamps(tmp_path)) == [str(tmp_path / "a.py")]


def test_dev_is_told_of_changes_in_folders_old_and_new(tmp_path):
    (tmp_path / "a.py").touch()
    look = code_changes.looks(tmp_path)
    assert next(look)  # what happened before it was there
    (tmp_path / "notes.txt").touch()
    assert not next(look)
    for path in (tmp_path / "a.py", tmp_path / "new" / "b.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("n = 1")
        assert any(next(look) for _ in range(120))


def test_dev_compiles_anew_what_was_written_while_the_worker_ended(monkeypatch, tmp_path):
    """Two files: the second is saved after the first was seen to have changed, while the old worker still runs."""
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    starts: list = []

    @contextlib.contextmanager
    def running(words):
        ends = len(starts) == 2
        starts.append(compiled(second).exists())
        first.write_text(f"n = {len(starts)}")
        yield SimpleNamespace(poll=lambda: 0 if ends else None, returncode=0)
        second.write_text(f"n = {len(starts)}")
        compiled(second).touch()

    def compiled(path):
        return Path(importlib.util.cache_from_source(str(path)))

    for path in (first, second):
        path.write_text("n = 0")
        compiled(path).parent.mkdir(exist_ok=True)
        compiled(path).touch()
    monkeypatch.setattr(dev, "_running", running)
    monkeypatch.setattr(dev, "looks", lambda folder: itertools.repeat(True))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert dev._serve([], None, tmp_path) == 0
    assert starts == [True, False, False]


def test_dev_hands_on_what_was_said(monkeypatch, cli, tasks, tmp_path):
    seen: list = []
    monkeypatch.setattr(dev, "_serve", lambda words, server, folder: seen.append((words, folder)) or 0)
    cli(
        "dev",
        "tasks.py",
        "--queues",
        "a,b",
        "--grace",
        "1m",
        "--allow-commands",
        "--url",
        "x.db",
        "--memory-limit",
        "1GB",
    )
    [(words, folder)] = seen
    assert folder == tmp_path
    assert words[2:] == [
        "daybreak.cli", "worker", "--queues", "a,b", "--grace", "60.000000s", "--memory-limit", "1000000000",
        "--allow-commands", "--url", "x.db", "--app", "tasks.py",
    ]  # fmt: skip
