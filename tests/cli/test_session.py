"""What all commands share: the command to type next, and what is said of a store that cannot be accessed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from daybreak.cli.session import Session


def here(url: str | None = None, app: str | None = None) -> Session:
    session = Session()
    session.url, session.app = url, app
    return session


# -- what to type next -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://boss:hunter2@db/jobs", "postgresql://boss:***@db/jobs"),
        ("postgresql://boss@db/jobs?password=hunter2", "postgresql://boss@db/jobs?password=***"),
        ("redis://:hunter2@db", "redis://:***@db"),
    ],
)
def test_a_password_that_was_typed_is_not_repeated(url, told):
    for hint in (here(url).command("jobs"), here(url).start_worker()):
        assert "hunter2" not in hint
        assert shlex.split(hint)[-2:] == ["--url", told]


def test_a_password_of_the_environment_is_left_to_the_shell(monkeypatch):
    monkeypatch.setenv("DAYBREAK_URL", "redis://:hunter2@db")
    assert here("redis://:hunter2@db").command("jobs") == 'daybreak jobs --url "$DAYBREAK_URL"'
    assert here().command("jobs") == "daybreak jobs"


@pytest.mark.parametrize("url", ["my jobs.db", "a:b@c.db", "sqlite:///a:b@c.db", "postgresql://db/jobs"])
def test_a_store_without_a_password_is_named_as_it_was_typed(url):
    assert shlex.split(here(url, "my tasks.py").command("jobs", "show", "x")) == [
        "daybreak", "jobs", "show", "x", "--url", url, "--app", "my tasks.py",
    ]  # fmt: skip


def test_options_stand_before_what_belongs_to_another_program():
    hint = here("a.db", "t.py").command("lock", "NAME", "--", "COMMAND")
    assert hint == "daybreak lock NAME --url a.db --app t.py -- COMMAND"


# -- a folder that may not be entered ----------------------------------------------------------------------------------


def locked_out(*words: str, **how) -> subprocess.CompletedProcess[str]:
    """Runs the program as one for whom permissions hold: root gives up its right to pass over them."""
    gives_up: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may enter every folder, and there is no setpriv")
        rights = "-dac_override,-dac_read_search"
        gives_up = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}"]
    command = [*gives_up, sys.executable, "-m", "daybreak.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **how)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX")
@pytest.mark.parametrize(
    "words",
    [
        ["jobs"],
        ["submit", "mail"],
        ["doctor"],
        ["backup", "x.db"],
        ["worker", "--allow-commands", "--until-idle"],
        ["lock", "prod", "--", "true"],
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_may_not_be_entered_is_told_with_its_cure(tmp_path, words):
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0)
    try:
        ran = locked_out(*words, cwd=tmp_path, env={**os.environ, "DAYBREAK_URL": "closed/jobs.db"})
    finally:
        folder.chmod(0o700)
    assert ran.returncode == 3, ran.stderr
    assert f"cannot access {folder / 'jobs.db'} (from DAYBREAK_URL): Permission denied" in ran.stdout + ran.stderr
