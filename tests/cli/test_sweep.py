"""`daybreak sweep`: a command line for every combination of values."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import time

import pytest

from daybreak import Daybreak
from daybreak.cli.sweep import _quiet_logs
from daybreak.core.errors import BadInput
from daybreak.tasks.command_tasks import COMMAND_TASKS
from daybreak.tasks.registry import Program
from daybreak.worker.child.command_template import CommandTemplate
from daybreak.worker.child.commands import add_commands
from daybreak.worker.supervisor.exchange_retry import STORE_LOG

HARMLESS = [
    "a b",
    "it's",
    'say "no"',
    "two\nlines",
    "; touch broken",
    "$(touch broken)",
    "`touch broken`",
    "*",
    "-n",
    "",
]


def rows_of(cli, name):
    return list(csv.DictReader(io.StringIO(cli("runs", "export", name).stdout)))


def quoted(values):
    return ",".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)


# -- the template ------------------------------------------------------------------------------------------------------


def test_values_are_put_inside_words():
    template = CommandTemplate("sim --vin={vin} '{duty} of {vin}' {{x}}")
    assert template.names == ("vin", "duty")
    assert template.argv({"vin": "a b;c", "duty": "'"}) == ["sim", "--vin=a b;c", "' of a b;c", "{x}"]


@pytest.mark.parametrize("value", HARMLESS)
@pytest.mark.parametrize("text", ["printf %s {v}", 'printf %s "{v}"', 'printf %s "a"{v}', 'printf %s \\"{v}'])
def test_with_a_shell_a_value_is_never_code(value, text, tmp_path):
    template = CommandTemplate(text, shell=True)  # noqa: S604 - its own parameter
    ran = subprocess.run(
        template.argv({"v": value}), env={**os.environ, **template.variables({"v": value})}, capture_output=True,
        text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert ran.stdout.endswith(value)
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize(
    ("text", "shell", "message"),
    [
        ("", False, "the command is empty"),
        ("sim 'x", False, "cannot be split into words: no closing quotation"),
        ("sim {", False, "a brace as"),
        ("sim {}", False, "{} is not a placeholder"),
        ("sim {v:4}", False, "{v:4} is not a placeholder"),
        ("sim {v!r}", False, "{v!r} is not a placeholder"),
        ("sim {v.x}", False, "{v.x} is not a placeholder"),
        ("sim '{v}'", True, "single quotes"),
    ],
)
def test_a_wrong_command_is_refused(text, shell, message):
    with pytest.raises(BadInput) as refused:
        CommandTemplate(text, shell=shell)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [("sh -c 'echo {v}'", "v"), ("/bin/bash -c {v}", "v"), ("sh -c 'echo $0' {v}", None), ("echo -c {v}", None)],
)
def test_a_value_inside_a_script_of_ones_own_is_noticed(text, name):
    assert CommandTemplate(text).scripted == name


def test_every_task_that_runs_command_lines_is_named_as_one():
    """Who may submit them over HTTP, and which worker to start, is decided by this list."""
    program = Program()
    add_commands(program)
    assert {definition.name for definition in program} == set(COMMAND_TASKS)


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_sweep_runs_every_combination_and_the_same_line_again_runs_nothing(cli, tmp_path):
    line = (
        "sweep",
        "sh -c 'echo x >> ran; echo $0 $1' {vin} {duty}",
        "--grid",
        "vin=10,12",
        "--grid",
        "duty=0.1:0.3:0.1",
    )
    result = cli(*line, "--jobs", "2")
    name = result.stderr.partition("Run ")[2].partition(":")[0]
    assert name.startswith("sh-")
    assert "6 completed" in result.stdout
    assert (tmp_path / "ran").read_text() == "x\n" * 6
    rows = rows_of(cli, name)
    assert [(row["vin"], row["duty"], row["stdout"], row["exit_code"]) for row in rows][1] == (
        "10",
        "0.2",
        "10 0.2\n",
        "0",
    )
    assert rows[1]["command"] == "sh -c 'echo x >> ran; echo $0 $1' 10 0.2"
    assert "6 completed" in cli(*line).stdout
    assert (tmp_path / "ran").read_text() == "x\n" * 6
    plan = json.loads(cli(*line, "--dry-run", "--json").stdout)
    assert (plan["run"], plan["total"], plan["done"], plan["to_run"]) == (name, 6, 6, 0)
    assert "6 completed" in cli(*line, "--fresh").stdout
    assert (tmp_path / "ran").read_text() == "x\n" * 12


def test_values_with_quotes_newlines_and_semicolons_are_plain_text(cli, tmp_path):
    result = cli("sweep", "printf %s {v}", "--grid", f"v={quoted(HARMLESS)}", "--name", "odd", "--jobs", "2")
    assert f"{len(HARMLESS)} completed" in result.stdout
    assert [row["stdout"] for row in rows_of(cli, "odd")] == HARMLESS
    assert not (tmp_path / "broken").exists()


def test_rows_come_from_a_csv_file(cli, tmp_path):
    (tmp_path / "points.csv").write_text('vin,note\n10,"a, b"\n12,c\n')
    cli("sweep", "echo {vin} {note}", "--rows", "points.csv", "--name", "rows", "--jobs", "1")
    assert [row["stdout"] for row in rows_of(cli, "rows")] == ["10 a, b\n", "12 c\n"]


def test_each_point_has_a_folder_of_its_own_and_its_files_are_listed(cli, tmp_path):
    (tmp_path / "sim.py").write_text("import sys; open('out.csv', 'w').write(sys.argv[1]); open('log', 'w')")
    cli("sweep", "python3 sim.py {v}", "--grid", "v=7,8", "--collect", "*.csv", "--name", "own", "--jobs", "1")
    assert (tmp_path / "own" / "0002" / "out.csv").read_text() == "8"
    assert [json.loads(row["files"]) for row in rows_of(cli, "own")] == [["own/0001/out.csv"], ["own/0002/out.csv"]]
    cli("sweep", "touch {v}.csv", "--grid", "v=7,8", "--collect", "{v}.csv", "--here", "--name", "one", "--jobs", "1")
    assert [json.loads(row["files"]) for row in rows_of(cli, "one")] == [["7.csv"], ["8.csv"]]


def test_the_files_of_a_point_are_kept_with_its_result(cli, tmp_path):
    line = (
        "sweep",
        "sh -c 'echo {v} > out.csv'",
        "--grid",
        "v=7",
        "--collect",
        "*.csv",
        "--name",
        "kept",
        "--jobs",
        "1",
    )
    cli(*line)
    shutil.rmtree(tmp_path / "kept")
    app = Daybreak(str(tmp_path / "daybreak.db"))
    [row] = app.find_run("kept").rows()
    assert row["files"]["kept/0001/out.csv"].path.read_text() == "7\n"
    app.close()
    assert json.loads(rows_of(cli, "kept")[0]["sha256"]) == [hashlib.sha256(b"7\n").hexdigest()]


def test_a_folder_that_no_sweep_made_is_left_alone(cli, tmp_path):
    (tmp_path / "mine" / "0001").mkdir(parents=True)
    (tmp_path / "mine" / "0001" / "thesis.txt").write_text("years of work")
    line = ("sweep", "true {v}", "--grid", "v=1", "--collect", "*", "--name", "mine")
    assert "no sweep made it" in cli(*line, code=2).stderr
    assert (tmp_path / "mine" / "0001" / "thesis.txt").exists()


def test_a_file_with_the_name_of_the_run_is_named(cli, tmp_path):
    (tmp_path / "night").write_text("precious")
    told = cli("sweep", "true {v}", "--grid", "v=1", "--collect", "*", "--name", "night", code=2).stderr
    assert "night is a file, and the folder of the points is named like the run" in told


def test_points_that_were_replaced_do_not_hide_a_failure(cli, ask):
    line = ["sweep", "test {v} -gt 0", "--name", "night", "--retry", "1"]
    cli(*line, "--grid", "v=1,2,3")
    cli(*line, "--grid", "v=0,3", "--accept-changes", code=1)
    assert "4/4" in cli("runs").stdout
    assert "100 %, 4 of 4 points, 2 of them no longer in the sweep" in cli("runs", "show", "night").stdout


def test_failed_points_have_their_exit_code_and_output(cli):
    result = cli(
        "sweep", "sh -c 'echo no licence >&2; exit {code}'", "--grid", "code=0,3", "--name", "bad", "--retry", "1",
        "--jobs", "1", code=1,
    )  # fmt: skip
    assert "1 completed, 1 failed" in result.stdout
    good, bad = rows_of(cli, "bad")
    assert (good["exit_code"], good["stderr"]) == ("0", "no licence\n")
    assert (bad["exit_code"], bad["state"]) == ("3", "failed")
    assert "no licence" in bad["error"]


def test_no_work_leaves_the_points_to_workers(cli, ask, place):
    result = cli("sweep", "true {v}", "--grid", "v=1:3", "--name", "later", "--no-work", "--priority", "low")
    assert "Start a worker with: daybreak worker --allow-commands --queues later" in result.stdout
    info = ask("runs", "show", "later", "--json")
    assert (info["jobs"]["queued"], info["priority"], info["queue"]) == (3, 7, "later")


def test_why_names_a_worker_that_can_run_the_points(cli, ask):
    cli("sweep", "true {v}", "--grid", "v=1", "--name", "later", "--no-work")
    cause = ask("why", "last", "--json")["causes"][0]
    assert cause["command"] == "daybreak worker --allow-commands --queues later"
    assert cause["command"] in cli("why", "--summary").stdout
    cli(*cause["command"].split()[1:], "--until-idle")
    assert "1 completed" in cli("runs", "wait", "later").stdout


def test_the_store_is_the_one_that_is_named(cli, tmp_path):
    cli("sweep", "true {v}", "--grid", "v=1", "--name", "there", "--jobs", "1", "--url", "jobs.db")
    assert "1 completed" in cli("runs", "show", "there", "--url", "jobs.db").stdout
    assert not (tmp_path / "daybreak.db").exists()


def test_a_dry_run_shows_commands_and_changes_nothing(cli, tmp_path):
    text = cli("sweep", "sim --vin {vin}", "--grid", "vin=1:100", "--name", "dry", "--dry-run").stdout
    assert text.startswith("sim --vin 1\nsim --vin 2\nsim --vin 3\n... and 97 more commands\n")
    assert "Run dry: 100 points, 0 done, 100 to run." in text
    assert not (tmp_path / "daybreak.db").exists()


def test_changed_points_are_told_and_need_a_word(cli):
    line = ("sweep", "true {v}", "--name", "grows", "--jobs", "1")
    cli(*line, "--grid", "v=1,2")
    refused = cli(*line, "--grid", "v=1,2,3", code=2).stderr
    assert "not the same any more" in refused
    assert "--accept-changes" in refused
    assert "accept_changes" not in refused
    assert "--accept-changes or --fresh" in cli(*line, "--grid", "v=1,2,3", "--dry-run").stdout
    assert "3 completed" in cli(*line, "--grid", "v=1,2,3", "--accept-changes").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["true {v}"], "no values are given"),
        (["true {v}", "--grid", "w=1"], "the placeholder {v}"),
        (["true", "--grid", "w=1"], "'w' has values, and the command does not use them"),
        (["true {v}", "--grid", "v="], "'v' has no values"),
        (["true {v}", "--grid", "v=1:2:0"], "is 0"),
        (["true {v}", "--grid", "v=1:99999999"], "more than 10,000,000"),
        (["true {v} {w}", "--grid", "v=1:9999", "--grid", "w=1:9999"], "99,980,001 points"),
        (["true {v}", "--grid", "v=1", "--grid", "v=2"], "given twice"),
        (["true {v}", "--grid", "v=1", "--rows", "x.csv"], "not both"),
        (["true {v}", "--rows", "none.csv"], "No such file"),
        (["true {command}", "--grid", "command=1"], "no values can be named 'command'"),
        (["true {v}", "--grid", "v=1", "--here"], "--here is for --collect"),
        (["true {v}", "--grid", "v=1", "--url", "memory://"], "name another store"),
        (["true {v}", "--grid", "v=a\0b"], "NUL"),
        (["true {v}", "--grid", "v=1", "--collect", "{w}.csv"], "there are no values for {w}"),
        (["true {v}", "--grid", "v=1", "--collect", "../*.csv"], "inside the folder of the point"),
        (["true {v}", "--grid", "v=1", "--collect", ""], "inside the folder of the point"),
        (["true {v}", "--grid", "v=1", "--collect", "*", "--name", "../x"], "not inside the current folder"),
        (["true {v}", "--grid", "v=1", "--collect", "*", "--name", "."], "not inside the current folder"),
        (["true {v}", "--grid", "v=1", "--collect", "*", "--name", "/x"], "not inside the current folder"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(cli, tmp_path, words, message):
    assert message in cli("sweep", *words, code=2).stderr
    assert not (tmp_path / "daybreak.db").exists()


def test_a_row_without_a_column_is_named(cli, tmp_path):
    (tmp_path / "points.csv").write_text("vin,duty\n1,2\n3\n")
    assert (
        "line 3: the row has no value for the column 'duty'"
        in cli("sweep", "true {vin} {duty}", "--rows", "points.csv", code=2).stderr
    )


# -- processes ---------------------------------------------------------------------------------------------------------


def wait_until(is_true, timeout=60):
    until = time.monotonic() + timeout
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_killed_sweep_is_continued_by_the_same_line(cli, start, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYBREAK_WORKER_LEASE", "1s")
    line = (
        "sweep", "sh -c 'sleep 0.2; mktemp ../../effects/{v}.XXXXXX; echo > done.txt'", "--grid", "v=1:12", "--collect",
        "*.txt", "--name", "kill", "--jobs", "2",
    )  # fmt: skip
    effects = tmp_path / "effects"
    effects.mkdir()
    first = start(*line)
    wait_until(lambda: len(list(effects.iterdir())) >= 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    time.sleep(0.5)  # what it started dies with it
    before = len(list(effects.iterdir()))
    assert before < 12, "a command outlived the sweep that was killed"
    result = cli(*line)
    assert "12 completed" in result.stdout
    assert len(list((tmp_path / "kill").glob("*/done.txt"))) == 12
    # A point that was killed between its effect and its end runs again; no point that was reported does.
    assert 12 <= len(list(effects.iterdir())) <= 14
    assert len({path.name.partition(".")[0] for path in effects.iterdir()}) == 12


def test_ctrl_c_stops_and_says_how_to_continue(start, cli, tmp_path):
    line = ("sweep", "sh -c 'echo >> ran; sleep 0.3' {v}", "--grid", "v=1:40", "--name", "stop", "--jobs", "2")
    process = start(*line)
    wait_until((tmp_path / "ran").exists)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 40 points have ended. Nothing is lost. Continue with:" in told
    assert "daybreak sweep 'sh -c " in told
    states = json.loads(cli("runs", "show", "stop", "--json").stdout)["jobs"]
    assert states["failed"] == 0
    assert states["completed"] < 40


def test_two_processes_that_submit_one_run_submit_it_once(start, ask):
    line = ("sweep", "true {v}", "--grid", "v=1:50", "--name", "both", "--no-work")
    processes = [start(*line), start(*line)]
    assert [process.wait(60) for process in processes] == [0, 0]
    info = ask("runs", "show", "both", "--json")
    assert (info["total"], info["jobs"]["queued"]) == (50, 50)


def test_only_trouble_of_the_store_is_said_while_a_sweep_runs(capsys):
    with _quiet_logs():
        for _ in range(3):
            logging.getLogger(STORE_LOG).warning("store: %s; trying again in %.1f s", "the disk is full", 1.0)
        logging.getLogger("daybreak.worker").warning("job %s failed", "1")
    assert capsys.readouterr().err == "The sweep waits: the disk is full\n"
