"""`daybreak exec`: a command line as a job."""

from __future__ import annotations

import json

import pytest

from daybreak import values


def test_a_command_line_becomes_a_job(cli, place, tmp_path):
    result = cli("exec", "--env", "A=b=c", "--priority", "low", "--", "make", "-j", "2", "--url", "x")
    job = place.get(result.stdout.strip())
    assert (job.spec.task, job.spec.version, job.spec.priority) == ("exec", 1, 7)
    assert values.decode(job.spec.args) == {
        "argv": ["make", "-j", "2", "--url", "x"], "cwd": str(tmp_path), "env": {"A": "b=c"},
    }  # fmt: skip
    assert "daybreak worker --allow-commands" in result.stderr


def test_options_after_the_command_are_the_commands_own(cli, place):
    job = place.get(cli("exec", "ls", "-la", "--help").stdout.strip())
    assert values.decode(job.spec.args)["argv"] == ["ls", "-la", "--help"]


def test_its_folder(cli, place, tmp_path):
    job = place.get(cli("exec", "--cwd", "below", "ls").stdout.strip())
    assert values.decode(job.spec.args)["cwd"] == str(tmp_path / "below")


def test_a_command_line_is_needed(cli):
    assert "Missing argument" in cli("exec", code=2).stderr
    assert "the command is empty" in cli("exec", "", code=2).stderr


def test_a_folder_that_was_deleted_or_has_no_text_for_a_name_is_told(cli, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder was deleted: change to another folder first" in cli("exec", "ls", code=2).stderr
    monkeypatch.chdir(tmp_path)
    assert r"l\udce9tin: the path is not valid UTF-8" in cli("exec", "--cwd", "l\udce9tin", "ls", code=2).stderr


@pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (3, 1)])
def test_wait_prints_its_output(cli, place, exit_code, code):
    ended = {"exit_code": exit_code, "stdout": "out\x1b[31m\n", "stderr": "err\n"}
    place.complete(values.encode(ended), task="exec", args={"argv": ["x"], "cwd": "/", "env": {}}, key="k")
    result = cli("exec", "--cwd", "/", "--key", "k", "--wait", "x", code=code)
    assert result.stdout == "out\x1b[31m\n", "a program that reads it gets it as it was"
    assert result.stderr.endswith("err\n")


@pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (3, 1)])
def test_wait_with_json_prints_the_job(cli, place, ask, exit_code, code):
    ended = {"exit_code": exit_code, "stdout": "out\n", "stderr": "err\n"}
    job = place.complete(values.encode(ended), task="exec", args={"argv": ["x"], "cwd": "/", "env": {}}, key="k")
    result = cli("exec", "--cwd", "/", "--key", "k", "--wait", "--json", "x", code=code)
    assert json.loads(result.stdout) == ask("jobs", "show", job, "--json")
    assert "err\n" not in result.stderr
