"""Files as arguments and results, through real workers, on every store."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import files_tasks as tasks
import numpy as np
import pandas as pd
import polars as pl
import pytest

from daybreak import File, JobFailed
from daybreak.errors import StoreFull
from daybreak.files.folder import FolderBlobs
from daybreak.testing import inline

WAIT = "60s"


def test_a_job_sees_the_submitted_bytes_whatever_happens_to_the_original(app, tmp_path):
    original = tmp_path / "buck.plecs"
    original.write_text("version one")
    before = original.stat()
    pinned = File(original)
    jobs = [tasks.read.submit(pinned), tasks.read.submit(File("buck.plecs"))]
    as_async = tasks.read_async.submit(pinned)
    case = tasks.Case(pinned, 24.0)
    nested = tasks.read_nested.submit(case, {"files": [pinned, File(original)]}, {"here": pinned})
    many = tasks.read.submit_many([{"model": pinned}] * 3)
    original.write_text("version two")  # the same size
    os.utime(original, ns=(before.st_atime_ns, before.st_mtime_ns))
    original.unlink()
    app.work(until="idle")
    for job in [*jobs, *many]:
        seen = job.result(WAIT)
        assert seen["text"] == "version one"
        assert (seen["name"], seen["file"], seen["is_read_only"]) == ("buck.plecs", "buck.plecs", True)
        assert seen["digest"] == hashlib.sha256(b"version one").hexdigest()
        assert seen["path"] != str(original)
    assert as_async.result(WAIT) == "version one"
    assert nested.result(WAIT) == ["version one"] * 4


def test_a_returned_file_is_kept(app, tmp_path):
    kept = tasks.write.submit("a,b\n", "out.csv")
    kept_async = tasks.write_async.submit("c,d\n", "out2.csv")
    app.work(until="idle")
    for name in ("out.csv", "out2.csv"):
        (tmp_path / name).unlink(missing_ok=True)
    waves = kept.result(WAIT)["waves"]
    assert (waves.name, waves.size, waves.path.name) == ("out.csv", 4, "out.csv")
    assert waves.path.read_text() == "a,b\n"
    assert kept_async.result(WAIT).path.read_text() == "c,d\n"


async def test_it_works_from_async_code(app, tmp_path):
    (tmp_path / "in.txt").write_text("async")
    job = await tasks.read.asubmit(File("in.txt"))
    again = await tasks.pass_on.asubmit(File("in.txt"))
    await app.awork(until="idle")
    assert (await job)["text"] == "async"
    assert (await again).path.read_text() == "async"
    assert (await again.ainfo()).args["model"].path.read_text() == "async"
    await app.aclose()


def test_a_large_result_comes_back_whole(app):
    jobs = [tasks.large.submit(size) for size in (60_000, 70_000, 3_000_000)]
    in_list = tasks.large_async.submit(200_000)
    app.work(until="idle")
    assert [len(job.result(WAIT)) for job in jobs] == [60_000, 70_000, 3_000_000]
    assert in_list.result(WAIT) == ["y" * 200_000]
    assert len(jobs[0].wait().result) > 60_000
    assert max(len(job.wait().result) for job in (*jobs[1:], in_list)) < 200  # the rows of the store stay small
    assert {len(info.result) for info in app.find(task="large")} == {60_000, 70_000, 3_000_000}


@pytest.mark.parametrize(("task", "says"), [("vanish", "there is no file"), ("folder", "is a folder")])
def test_an_output_that_cannot_be_read_fails_for_good_and_shows_its_repr(local, task, says):
    job = getattr(tasks, task).submit()
    local.work(until="idle")
    with pytest.raises(JobFailed, match=says) as failed:
        job.result(WAIT)
    assert "repr of the result: File(" in str(failed.value)
    assert job.wait().failure.verdict == "permanent"


def test_a_job_can_pass_its_file_on(local, tmp_path):
    (tmp_path / "in.txt").write_text("passed on")
    first = tasks.submit_again.submit(File("in.txt"))
    local.work(until="idle")
    assert local.job(first.result(WAIT)).result(WAIT)["text"] == "passed on"


def test_a_plain_call_uses_the_file_itself(tmp_path):
    (tmp_path / "in.txt").write_text("here and now")
    assert tasks.read(File(tmp_path / "in.txt"))["path"] == str(tmp_path / "in.txt")


def test_the_command_line_passes_files_and_prints_large_results(local, tmp_path):
    def daybreak(*words: str) -> str:
        command = [sys.executable, "-m", "daybreak.cli", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    where = ("--url", local.settings.url, "--app", f"{tasks.__file__}:app")
    (tmp_path / "in.txt").write_text("from the shell")
    job = daybreak("submit", "read", "model=in.txt", *where)
    large = daybreak("submit", "large", "size=100000", *where)
    (tmp_path / "in.txt").unlink()
    local.work(until="idle")
    assert local.job(job).result(WAIT)["text"] == "from the shell"
    assert len(daybreak("jobs", "result", large, "--raw", *where)) == 100_000
    shown = daybreak("jobs", "show", large, *where)
    assert "sha256" in shown
    assert len(shown) < 10_000


def test_a_sweep_pins_its_files_and_reads_large_results(app, tmp_path):
    (tmp_path / "m.txt").write_text("model")
    model = File("m.txt")
    run = app.sweep(tasks.read_at, {"model": model, "vin": [10.0, 12.0, 24.0]}, name="files")
    (tmp_path / "m.txt").write_text("other")
    app.work(until="idle")
    rows = list(run.rows())
    assert [row["text"] for row in rows] == ["model"] * 3
    assert {len(row["wave"]) for row in rows} == {100_000}
    again = app.sweep(tasks.read_at, {"model": model, "vin": [10.0, 12.0, 24.0]}, name="files")
    assert len(list(again.rows())) == 3


def test_arrays_and_data_frames_go_through_jobs(app):
    array = tasks.double.submit(np.arange(100_000.0))
    frame = tasks.describe.submit(pd.DataFrame({"a": [1, 2], "b": ["x", None]}), pl.DataFrame({"c": [1.5]}))
    app.work(until="idle")
    np.testing.assert_array_equal(array.result(WAIT), np.arange(100_000.0) * 2)
    found = frame.result(WAIT)
    assert (found["rows"], found["polars"]["c"].to_list()) == (2, [3.0])
    np.testing.assert_array_equal(array.info().args["a"], np.arange(100_000.0))


def test_a_content_is_stored_once_however_many_jobs_use_it(local, tmp_path, monkeypatch):
    """The same File object is read and stored once; another object that brings the same bytes adds nothing."""
    puts: list[str] = []
    put = FolderBlobs.put
    monkeypatch.setattr(FolderBlobs, "put", lambda self, content: (puts.append(content.digest), put(self, content))[1])
    (tmp_path / "m.txt").write_text("model")
    model = File("m.txt")
    tasks.read.submit_many([{"model": model}] * 1000)
    tasks.read.submit(model)
    assert len(puts) == 1
    (tmp_path / "m.txt").unlink()  # nobody reads it again
    tasks.read.submit_many([{"model": model}] * 10)
    (tmp_path / "m.txt").write_text("model")
    tasks.read.submit(File("m.txt"))
    assert len(list((tmp_path / "jobs.db-files").rglob("content"))) == 1
    assert local.count() == 1012


def test_a_full_disk_loses_neither_job_nor_output(local, tmp_path, monkeypatch):
    fails = [StoreFull("no space left for files in here"), None]
    put = FolderBlobs.put

    def full_once(self, content):
        error = fails.pop(0) if fails else None
        if error is not None:
            raise error
        put(self, content)

    (tmp_path / "m.txt").write_text("model")
    monkeypatch.setattr(FolderBlobs, "put", full_once)
    with pytest.raises(StoreFull, match="no space left"):
        tasks.read.submit(File("m.txt"))
    assert local.count() == 0  # nothing was submitted
    tasks.read.submit(File("m.txt"))
    assert local.count() == 1
    fails[:] = [StoreFull("no space left for files in here")]
    with inline(local):
        kept = tasks.write.submit("a,b\n", "out.csv")  # the first attempt cannot store its output, the second can
        assert kept.result()["waves"].path.read_text() == "a,b\n"
        assert kept.info().attempt == 2
