"""`daybreak sweep` and `daybreak runs` on a server's store."""

from __future__ import annotations

import csv
import io
import json

from click.testing import CliRunner

from daybreak.cli.root import root


def cli(url, *words):
    result = CliRunner().invoke(root, [*words, "--url", url])
    assert result.exit_code == 0, (result.stdout, result.stderr)
    return result.stdout


def test_a_shell_sweep_runs_is_exported_and_runs_nothing_a_second_time(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ("sweep", "sh -c 'echo >> ran; echo {v} | tee {v}.csv'", "--grid", "v=1:5", "--name", "on server")
    line = (*line, "--collect", "{v}.csv", "--here", "--jobs", "2")
    assert "5 completed" in cli(url, *line)
    assert "5 completed" in cli(url, *line)
    assert (tmp_path / "ran").read_text() == "\n" * 5
    rows = list(csv.DictReader(io.StringIO(cli(url, "runs", "export", "on server"))))
    assert [row["stdout"] for row in rows] == [f"{v}\n" for v in range(1, 6)]
    assert [json.loads(row["files"]) for row in rows] == [[f"{v}.csv"] for v in range(1, 6)]
    assert json.loads(cli(url, "runs", "--json"))["runs"][0]["done"] == 5
    assert cli(url, "runs", "delete", "on server") == "5 jobs of run on server removed.\n"
