"""What jobs print and log is kept: per attempt, in order, apart from other jobs, and within its limits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import worker_logs
from worker_processes import until
from worker_stores import meddled

from daybreak import Secret, State
from daybreak.client.job_logs import HEAD_BYTES, KEEP_RUNS, TAIL_BYTES, index_put, log_kind

TARGET = Path(worker_logs.__file__)


@pytest.fixture
def app(stage):
    worker_logs.app.use(stage.url)
    yield worker_logs.app
    worker_logs.app.close()


def test_prints_and_logs_of_jobs_side_by_side_are_not_mixed(app, stage):
    sync = [worker_logs.say.submit(f"word{n}") for n in range(6)]
    loop = [worker_logs.asay.submit(f"word{n}", 20) for n in range(6)]
    with stage.process("--processes", "2", "--until-idle", target=TARGET) as worker:
        assert worker.wait() == 0
    for n, job in enumerate(sync):
        lines = job.logs().text.splitlines()
        assert lines[0] == f"printed word{n}"
        assert lines[1:3] == [f"to stderr word{n}", f"warned word{n}"]
        assert lines[3].endswith(f" INFO logged word{n}")
        assert lines[4:] == [f"from a thread word{n}"]
    for n, job in enumerate(loop):
        lines = job.logs().text.splitlines()
        assert lines[:20] == [f"turn {turn} of word{n}" for turn in range(20)]
        assert lines[20] == f"from a thread word{n}"
        assert lines[21].endswith(f" WARNING logged word{n}")
        assert len(lines) == 22


def test_a_megabyte_is_cut_in_the_middle_and_counted(app, stage):
    job = worker_logs.much.submit(10_000)
    with stage.process("--processes", "1", "--until-idle", target=TARGET) as worker:
        assert worker.wait() == 0
    logs = job.logs()
    first, last = logs.pieces
    assert (len(first.text), len(last.text)) == (HEAD_BYTES, TAIL_BYTES)
    assert first.text.startswith("0000000 ")
    assert last.text.endswith(f"0009999 {'x' * 91}\n")
    assert logs.skipped == last.skipped == 1_000_000 - HEAD_BYTES - TAIL_BYTES
    assert f"\n... {logs.skipped:,} bytes left out ...\n" in logs.text


def test_output_before_a_kill_stays_and_attempts_are_told_apart(app, stage):
    dead, failed = worker_logs.killed.submit(), worker_logs.fail_first.submit()
    with stage.process("--processes", "1", target=TARGET):
        assert dead.wait(timeout="60s").state is State.COMPLETED
        assert failed.wait(timeout="60s").state is State.COMPLETED
    assert [piece.text for piece in dead.logs().pieces] == ["run 1 prints this\n", "run 2 prints this\n"]
    assert failed.logs(attempt=1).text == "attempt 1\n"
    assert failed.logs(2).text == "attempt 2\n"


def test_output_of_a_running_job_can_be_read_and_continued(app, stage, tmp_path):
    job = worker_logs.wait_for.submit(str(tmp_path / "go"))
    with stage.process("--processes", "1", target=TARGET):
        early = until(lambda: found if (found := job.logs()).pieces else None, "its first line is kept while it runs")
        assert early.text == "waiting\n"
        assert job.state() is State.RUNNING
        (tmp_path / "go").touch()
        job.result(timeout="60s")
    later = job.logs(after=early.next)
    assert later.text == "found it\n"
    assert job.logs(after=later.next).pieces == []


def test_secrets_of_the_arguments_are_masked(app, stage):
    job = worker_logs.show_secret.submit(Secret("hunter22"), {"key": Secret("hunter2234")})
    with stage.process("--processes", "1", "--until-idle", target=TARGET) as worker:
        assert worker.wait() == 0
    assert job.logs().text == "token *** and *** but ***\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_what_a_forked_process_prints_breaks_nothing(app, stage):
    job = worker_logs.fork_and_print.submit()
    with stage.process("--processes", "1", "--until-idle", target=TARGET) as worker:
        assert worker.wait() == 0
    assert job.state() is State.COMPLETED
    assert job.logs().text == "in the parent\n"


def test_a_job_that_prints_nothing_writes_no_record(app, stage):
    """The puts are counted; a job that prints shows that they would be seen."""
    kinds: list[str] = []

    async def note(name, *args):
        if name == "put":
            kinds.extend(put.kind for put in args[0])

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = note
        with app.worker(processes=1, async_jobs=1):
            assert worker_logs.quiet.map(range(20), timeout="60s") == list(range(20))
            assert [kind for kind in kinds if kind.startswith("log")] == []
            job = worker_logs.say.submit("word")
            job.result(timeout="60s")
            assert log_kind(job.id) in kinds
            assert index_put(job.id).kind in kinds


def test_the_output_is_stored_before_the_outcome(app, stage):
    """Each job but the first prints in the second during which the worker does not write by itself."""
    with stage.process("--processes", "1", target=TARGET):
        for n in range(4):
            job = worker_logs.say.submit(f"word{n}")
            job.result(timeout="60s")
            assert job.logs().text.endswith(f"from a thread word{n}\n")


def test_only_the_latest_runs_are_kept(app, stage):
    job = worker_logs.say.submit("word")
    with stage.process("--processes", "1", target=TARGET):
        job.wait(timeout="60s")
        for _ in range(KEEP_RUNS + 1):
            job.retry()
            job.wait(timeout="60s")
    fences = [piece.fence for piece in job.logs().pieces]
    assert fences == list(range(3, KEEP_RUNS + 3))


def test_removing_a_job_removes_its_log(app, stage):
    job = worker_logs.say.submit("word")
    with stage.process("--processes", "1", "--until-idle", target=TARGET) as worker:
        assert worker.wait() == 0
    assert job.logs().pieces
    job.remove()
    assert _records(stage, job.id) == []


def _records(stage, job: str) -> list[tuple[str, str]]:
    import apsw

    db = apsw.Connection(str(stage.folder / "jobs.db"))
    found = list(db.execute("SELECT kind, name FROM record WHERE kind = ? OR name = ?", (log_kind(job), job)))
    db.close()
    return found


def test_the_command_shows_control_characters_and_follows_until_the_end(app, stage, tmp_path, cli):
    job, slow = worker_logs.hostile.submit(), worker_logs.wait_for.submit(str(tmp_path / "go"))
    with stage.process("--processes", "2", target=TARGET):
        job.result(timeout="60s")
        (tmp_path / "go").touch()
        followed = cli("jobs", "logs", slow.id, "--follow")
    shown = cli("jobs", "logs", job.id)
    assert shown == "\\x1b]0;title\\x07\\x1b[31mred</pre><script>alert(1)</script>\\u2028\\r\\x00end\n"
    data = json.loads(cli("jobs", "logs", job.id, "--json"))
    assert data["pieces"][0]["text"] == worker_logs.HOSTILE + "\n"
    assert followed == "waiting\nfound it\n"


@pytest.fixture
def cli(stage):
    from click.testing import CliRunner

    from daybreak.cli.root import root

    def run(*words: str) -> str:
        result = CliRunner().invoke(root, [*words, "--url", stage.url])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run
