"""Every job starts in the directory in which its worker was started, even if the job before changed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import worker_odd as odd

from daybreak import Daybreak, JobFailed
from daybreak.testing import inline
from daybreak.worker.child.working_directory import WorkingDirectory

FAR = "/"


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    odd.app.use(f"sqlite:///{tmp_path}/odd.db")
    yield str(folder)
    odd.app.close()


@pytest.fixture
def worker(home):
    with odd.app.worker(processes=1) as worker:
        yield worker


def test_the_working_directory_is_restored_after_a_sync_task(worker, home):
    assert odd.go.submit(FAR).result(timeout="20s") == FAR
    assert odd.where.submit().result(timeout="20s") == home
    with pytest.raises(JobFailed, match="far from home"):
        odd.go_and_fail.submit(FAR).result(timeout="20s")
    assert odd.where.submit().result(timeout="20s") == home


def test_a_task_may_end_in_a_directory_that_is_deleted_afterwards(worker, home):
    assert odd.go.submit().result(timeout="20s") != home  # into its scratch
    assert odd.where.submit().result(timeout="20s") == home


def test_if_the_directory_was_deleted_the_next_job_does_not_start_where_the_last_one_ended(worker, home):
    odd.go_and_remove.submit(home, FAR).result(timeout="20s")
    assert odd.where.submit().result(timeout="20s") == ""


def test_the_working_directory_is_restored_after_an_async_task(worker, home):
    assert odd.ago.submit(FAR).result(timeout="20s") == FAR
    assert odd.awhere.submit().result(timeout="20s") == home


def test_inline_mode_restores_the_working_directory_after_each_job(home, tmp_path, monkeypatch):
    app = Daybreak("memory://")
    go, ago = app.task(odd.go.definition.function), app.task(odd.ago.definition.function)
    with inline(app):
        go.submit(FAR)
        assert str(Path.cwd()) == home
        monkeypatch.chdir(tmp_path)  # a test may change the directory between jobs
        ago.submit(FAR)
        assert Path.cwd() == tmp_path


def test_the_directory_is_found_by_its_path_if_a_task_closed_its_file_descriptor(home, caplog):
    here = WorkingDirectory()
    os.close(here._fd)
    os.chdir(FAR)
    here.restore()
    assert str(Path.cwd()) == home
    Path(home).rmdir()
    os.chdir(FAR)
    here.restore()
    assert str(Path.cwd()) == FAR
    assert f"cannot return to {home}" in caplog.text
