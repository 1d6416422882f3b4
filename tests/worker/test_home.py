"""Every job begins in the directory in which its worker was started, wherever the one before has gone."""

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


def test_a_sync_task_leaves_the_next_job_at_home(worker, home):
    assert odd.go.submit(FAR).result(timeout="20s") == FAR
    assert odd.where.submit().result(timeout="20s") == home
    with pytest.raises(JobFailed, match="far from home"):
        odd.go_and_fail.submit(FAR).result(timeout="20s")
    assert odd.where.submit().result(timeout="20s") == home


def test_a_task_may_end_in_a_folder_that_is_gone_then(worker, home):
    assert odd.go.submit().result(timeout="20s") != home  # into its scratch
    assert odd.where.submit().result(timeout="20s") == home


def test_if_home_was_deleted_the_next_job_is_not_where_the_last_one_went(worker, home):
    odd.go_and_remove.submit(home, FAR).result(timeout="20s")
    assert odd.where.submit().result(timeout="20s") == ""


def test_an_async_task_leaves_the_next_job_at_home(worker, home):
    assert odd.ago.submit(FAR).result(timeout="20s") == FAR
    assert odd.awhere.submit().result(timeout="20s") == home


def test_inline_a_job_leaves_the_test_and_the_next_job_where_they_were(home, tmp_path, monkeypatch):
    app = Daybreak("memory://")
    go, ago = app.task(odd.go.definition.function), app.task(odd.ago.definition.function)
    with inline(app):
        go.submit(FAR)
        assert str(Path.cwd()) == home
        monkeypatch.chdir(tmp_path)  # a test may go where it likes
        ago.submit(FAR)
        assert Path.cwd() == tmp_path


def test_home_is_found_by_its_path_where_a_task_has_closed_what_it_did_not_open(home, caplog):
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
