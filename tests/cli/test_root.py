"""The program as a whole: its overview, its guesses, its exit codes, and that it never shows a traceback."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from daybreak.cli import errors
from daybreak.cli.root import COMMANDS, root
from daybreak.core.errors import (
    BadInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    QueueFull,
    ResultTimeout,
    RunNotFound,
    RunTimeout,
    StoreCorrupt,
    StoreUnavailable,
)
from daybreak.core.units import ZERO


def every_command() -> list[tuple[str, click.Command]]:
    found = []
    for name, (module, _) in COMMANDS.items():
        command = importlib.import_module(module).command
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", made) for sub, made in command.commands.items()]
    return found


EVERY = every_command()
ids = [name for name, _ in EVERY]


def test_without_a_command_it_says_which_there_are(cli):
    told = cli().stdout
    assert all(f"  {name} " in told for name in COMMANDS)
    assert told == cli("--help").stdout == cli("-h").stdout


def test_the_overview_says_of_each_command_what_the_command_says_of_itself():
    for name, (module, about) in COMMANDS.items():
        command = importlib.import_module(module).command
        assert (command.name, command.short_help) == (name, about)


@pytest.mark.parametrize(("name", "command"), EVERY, ids=ids)
def test_every_command_has_help_with_an_example_and_takes_url_and_app(cli, name, command):
    told = cli(*name.split(), "--help").stdout
    assert "Example" in told
    assert f"  daybreak {name.split()[0]}" in told or f"$(daybreak {name}" in told, "the example is of this command"
    assert "--url" in told
    assert "--app" in told
    assert all(len(line) <= 100 for line in told.splitlines())


def test_the_overview_loads_no_command():
    code = (
        "import sys\nfrom daybreak.cli.root import root\n"
        "try:\n    root.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('daybreak.cli.') or m.startswith('rich')], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(ran.stderr)) <= {"daybreak.cli.root", "daybreak.cli.errors", "daybreak.core.text"}


def test_its_version(cli):
    assert cli("--version").stdout == "daybreak 0.1.0\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["jbos"], "no command 'jbos'; did you mean 'jobs'?"),
        (["SUBMIT"], "did you mean 'submit'?"),
        (["frobnicate"], "the commands are submit, exec, sweep, lock, jobs"),
        (["jobs", "cancle"], "no command 'cancle'; did you mean 'cancel'?"),
        (["jobs", "01a1e293-ba6c-7a1c-8063-f5022d90ca6d"], "daybreak jobs show 01a1e293-ba6c-7a1c-8063-f5022d90ca6d"),
        (["queues", "pasue"], "did you mean 'pause'?"),
        (["jobs", "--state", "faild"], "no state named 'faild'; did you mean failed?"),
        (["jobs", "--state", "queued,zzz"], "no state named 'zzz'; write one of scheduled, blocked"),
        (["jobs", "--reason", "exausted"], "did you mean exhausted?"),
        (["jobs", "--priority", "hihg"], "did you mean high?"),
        (["jobs", "--priority", "11"], "integer from 0 to 10"),
        (["jobs", "--limit", "0"], "--limit"),
        (["jobs", "--quue", "x"], "--quue"),
        (["jobs", "show"], "Missing argument"),
    ],
)
def test_what_is_misspelt_is_guessed_at_and_is_a_usage_error(cli, words, told):
    result = cli(*words, code=2)
    assert told in result.stderr
    assert result.stdout == ""
    assert "--help" in result.stderr


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (BadInput("x"), 2),
        (click.UsageError("x"), 2),
        (click.FileError("x"), 2),
        (StoreUnavailable("x"), 3),
        (StoreCorrupt("x"), 3),
        (JobNotFound("x"), 4),
        (RunNotFound("x"), 4),
        (RunTimeout("x", 3, ZERO), 5),
        (errors.NotFound("x"), 4),
        (ResultTimeout("x", "running", ZERO), 5),
        (errors.NotYet("x"), 5),
        (JobFailed("x", "mail", "error", "no", 1), 1),
        (JobCancelled("x", "mail"), 1),
        (QueueFull("mail"), 1),
        (ZeroDivisionError("x"), 70),
    ],
)
def test_each_trouble_has_its_exit_code_and_one_sentence(monkeypatch, cli, place, trouble, code):
    def broken(*_: object, **__: object) -> None:
        raise trouble

    monkeypatch.setattr(importlib.import_module("daybreak.cli.workers"), "_list", broken)
    place.submit()
    result = cli("workers", code=code)
    assert result.stderr.startswith("Error: ")
    assert result.stdout == ""


def test_a_fault_of_ours_shows_its_place_only_when_asked(monkeypatch, cli):
    monkeypatch.setattr(importlib.import_module("daybreak.cli.workers").command, "callback", lambda **_: 1 / 0)
    told = cli("workers", code=70).stderr
    assert told == (
        "Error: internal error (ZeroDivisionError: division by zero). Set DAYBREAK_DEBUG=1 to see the traceback.\n"
    )
    from click.testing import CliRunner

    shown = CliRunner().invoke(root, ["workers"], env={"DAYBREAK_DEBUG": "1"})
    assert (shown.exit_code, "Traceback" in shown.stderr) == (70, True)


def test_words_of_the_command_line_cannot_steer_the_terminal_either(cli):
    for words in (
        ["\x1b[31m"],
        ["jobs", "--state", "\x1b[31m"],
        ["submit", "x", "\x1b]0;x\x07"],
        ["jobs", "show", "\x1b[2J"],
    ):
        Path("daybreak.db").unlink(missing_ok=True)
        assert "\x1b" not in cli(*words, code=None).stderr


@pytest.mark.parametrize(
    "words", [["--url", "a.db", "jobs"], ["jobs", "--url", "a.db"], ["--url", "b.db", "jobs", "--url", "a.db"]]
)
def test_the_store_may_be_named_before_and_after_the_command(cli, words):
    cli("submit", "mail", "--url", "a.db")
    assert "mail" in cli(*words).stdout


def test_the_store_may_be_named_at_every_height(cli, place):
    cli("submit", "mail", "--url", "a.db")
    job = cli("--url", "a.db", "jobs", "--json").stdout.split('"id": "')[1][:36]
    for words in (
        ["--url", "a.db", "jobs", "show"],
        ["jobs", "--url", "a.db", "show"],
        ["jobs", "show", "--url", "a.db"],
    ):
        assert "mail" in cli(*words, job).stdout
    assert "--url a.db" in cli("jobs", "--url", "a.db").stdout, "what is told next is for the same store"


# -- stores that are not -----------------------------------------------------------------------------------------------

LOOKING = [
    ["jobs"],
    ["queues"],
    ["workers"],
    ["top", "--once"],
    ["backup", "x.db"],
    ["jobs", "show", "x"],
    ["queues", "resume", "x"],
]


def test_who_only_looks_leaves_an_empty_file_empty(cli, tmp_path):
    (tmp_path / "daybreak.db").touch()
    assert "there is no store at" in cli("jobs", code=3).stderr
    assert (tmp_path / "daybreak.db").stat().st_size == 0


@pytest.mark.parametrize("words", LOOKING, ids=lambda words: words[0])
def test_who_only_looks_makes_no_store(cli, words, tmp_path):
    told = cli(*words, code=3).stderr
    assert f"there is no store at {tmp_path / 'daybreak.db'} (from the default)" in told
    assert list(tmp_path.iterdir()) == []


def test_a_store_beside_us_is_not_the_one_of_the_project(cli, tmp_path, monkeypatch):
    (tmp_path / "daybreak.toml").write_text("")
    below = tmp_path / "a"
    below.mkdir()
    (below / "daybreak.db").touch()
    monkeypatch.chdir(below)
    assert f"did you mean {below / 'daybreak.db'}?" in cli("jobs", code=3).stderr


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("sqs://queue", 2, "sqs:// is not a store"),
        ("postgresql://ann:p@ss@db:port/x", 2, "its port is not a number"),
        ("ftp://x", 2, "not a store that Daybreak knows"),
        ("jobs", 2, "write a path that ends in .db"),
        ("memory://", 2, "is in the memory of one process"),
        ("missing/x.db", 3, "there is no store at"),
        ("folder.db", 3, "is a folder"),
        ("text.db", 3, "is not a SQLite file"),
        ("other.db", 3, "SQLite file with tables of another program"),
    ],
)
def test_what_is_no_store_is_said_plainly(cli, tmp_path, url, code, told):
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "text.db").write_text("no database, " * 1000)
    import sqlite3

    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE x (y)")
    other.commit()
    other.close()
    result = cli("jobs", "--url", url, code=code)
    assert told in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(cli, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "cannot be written" in cli("submit", "mail", code=3).stderr
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are text there")
def test_a_folder_whose_name_is_no_text_is_told_and_a_store_elsewhere_serves(cli, tmp_path, monkeypatch):
    place = tmp_path / "l\udce9tin"
    place.mkdir()
    monkeypatch.chdir(place)
    for words in (["jobs"], ["submit", "mail"], ["doctor"], ["lock", "x", "--", "true"]):
        assert r"l\udce9tin/daybreak.db (from the default) cannot be used" in cli(*words, code=2).stderr
    elsewhere = str(tmp_path / "jobs.db")
    cli("submit", "mail", "--url", elsewhere)
    assert "1 job." in cli("jobs", "--url", elsewhere).stdout
    cli("doctor", "--url", elsewhere, code=1)
    assert r"\udcff.db" in cli("jobs", "--url", "\udcff.db", code=2).stderr
    assert r"\udcff.db cannot be used" in cli("backup", "\udcff.db", "--url", elsewhere, code=2).stderr


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("~nobody-of-this-name/x.db", 2, "the home folder of"),
        ("x" * 300 + ".db", 2, "longer than this system allows"),
        ("loop.db", 3, "leads back to itself"),
        ("sqlite:jobs.db", 2, "write sqlite:///jobs.db"),
    ],
)
def test_where_no_store_can_be_none_is_made(cli, tmp_path, url, code, told):
    (tmp_path / "loop.db").symlink_to("loop.db")
    for words in (["submit", "mail"], ["jobs"], ["doctor"]):
        assert told in cli(*words, "--url", url, code=code).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["loop.db"]


def test_a_copy_needs_a_name_that_a_file_can_have(cli, tmp_path):
    cli("submit", "mail")
    assert "longer than this system allows" in cli("backup", "x" * 300 + ".db", code=2).stderr


# -- what is empty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["--url", "", "submit", "mail"],
        ["submit", "mail", "--url", ""],
        ["jobs", "--app", ""],
        ["jobs", "--queue", ""],
        ["jobs", "--task", ""],
        ["jobs", "--owner", ""],
        ["jobs", "--key", ""],
        ["jobs", "--run", ""],
        ["jobs", "--tag", ""],
        ["jobs", "--cursor", ""],
        ["jobs", "cancel", "--queue", ""],
        ["exec", "--cwd", "", "ls"],
        ["backup", ""],
        ["init", ""],
        ["demo", "--folder", ""],
        ["dev", ""],
        ["stats", ""],
        ["lock", "", "--", "true"],
        ["lock", "x", "--also", "", "--", "true"],
        ["resources", "set", "", "slots=1"],
    ],
    ids=" ".join,
)
def test_an_empty_value_is_taken_for_a_variable_that_is_not_set(cli, tmp_path, words):
    assert "the value is empty (is a shell variable not set?); give a value" in cli(*words, code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_of_the_environment_is_one_that_is_not_set(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYBREAK_URL", "")
    assert f"created the store {tmp_path / 'daybreak.db'} (from the default)" in cli("submit", "mail").stderr


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lock", "x", "--lease", "0s", "--", "true"], "--lease: the shortest lease is 200 ms"),
        (["queues", "set", "mail", "patience=10"], "patience: '10' is not a duration; write '90s', '10m', '1h30m'\n"),
        (["resources", "set", "x", "breaker=on", "open_for=soon"], "is not a duration; write '90s', '10m', '1h30m'\n"),
        (["resources", "set", "x", "slots=" + "9" * 20], "write a whole number from 0 to 1,000,000,000, or none"),
        (["resources", "set", "x", "breaker=on", "failures=none"], "write a whole number from 1 to 1,000,000,000\n"),
        (["submit", "mail", "--delay", "soon"], "is not a duration; write '90s', '10m', '1h30m'\n"),
    ],
)
def test_errors_speak_the_language_of_the_shell(cli, words, told):
    assert told in cli(*words, code=2).stderr


def test_settings_that_cannot_be_right_are_a_usage_error(cli, tmp_path):
    (tmp_path / "daybreak.toml").write_text("urll = 'x.db'")
    assert "no setting named urll; did you mean url?" in cli("jobs", code=2).stderr
