"""`daybreak watch` and `daybreak watches`: real files, a real worker, and what people see."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

TASKS = """
from daybreak import Daybreak, File

app = Daybreak()

@app.task
def upload(report: File) -> int:
    text = report.path.read_text()
    if "bad" in text:
        raise ValueError("bad report")
    return len(text)

@app.task
def nothing() -> None: ...
"""


@pytest.fixture
def folder():
    Path("tasks.py").write_text(TASKS)
    Path("drop").mkdir()
    return Path("drop")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_files_are_run_and_moved_and_the_watch_is_shown(start, cli, until, folder):
    process = start("watch", "drop", "--app", "tasks.py", "--task", "upload", "--worker")
    (folder / "a.json").write_text("good")
    (folder / "b.json").write_text("bad")
    (folder / "link").symlink_to("/etc/passwd")
    until(lambda: (folder / "done/a.json").exists() and (folder / "failed/b.json").exists())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    shown = cli("watches").stdout
    assert "drop" in shown
    assert "link: it is a symbolic link" in shown
    [watch] = json.loads(cli("watches", "--json").stdout)["watches"]
    assert (watch["state"], watch["done"], watch["failed"], watch["left_alone"]) == ("stopped", 1, 1, 1)
    assert "left alone 1 entry" in cli("doctor", code=1).stdout


def test_a_watch_until_idle_ends_and_a_paused_one_takes_nothing(cli, folder):
    cli("watch", "drop", "--app", "tasks.py", "--task", "upload", "--until-idle")
    assert cli("watches", "pause", "drop").stdout == "drop is paused.\n"
    assert "paused" in cli("doctor", code=None).stdout
    assert cli("watches", "resume", "drop").stdout == "drop is resumed.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--task", "upload"), "there is no folder nowhere"),
        (("drop",), "which task gets the files of drop?"),
        (("drop", "--task", "uplod"), "did you mean 'upload'?"),
        (("drop", "--task", "nothing"), "takes no argument"),
        (("drop", "--task", "upload", "--settle", "5"), "no unit"),
        (("drop", "--task", "upload", "--worker", "--until-idle"), "without --worker"),
    ],
)
def test_wrong_words_are_answered_with_the_right_ones(cli, folder, words, message):
    assert message in cli("watch", *words, "--app", "tasks.py", code=2).stderr


def test_a_watch_that_nobody_ran_cannot_be_paused(cli, folder):
    cli("watch", "drop", "--app", "tasks.py", "--task", "upload", "--until-idle")
    assert "no watch named 'other'" in cli("watches", "pause", "other", code=4).stderr
