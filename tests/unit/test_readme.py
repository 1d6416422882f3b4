"""What README shows is run as a reader would run it, with a quicker model."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TIMEOUT = 120


@pytest.fixture
def script(tmp_path):
    """The one Python script in README, saved as it says; computed in a hundredth of the time."""
    [text] = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert "2_000_000" in text
    assert "1e-9" in text
    (tmp_path / "sweep.py").write_text(text.replace("2_000_000", "20_000").replace("1e-9", "1e-7"), encoding="utf-8")
    return tmp_path


def run(folder, *words):
    own = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return subprocess.run(
        words, cwd=folder, env={**own, "PATH": path}, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def rows_of(folder, ran):
    """The rows of the table that it wrote."""
    assert ran.returncode == 0, ran.stderr
    with (folder / "overnight.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_script_in_readme_works_and_the_second_time_finds_everything_done(script):
    rows = rows_of(script, run(script, "python", "-W", "error", "sweep.py"))
    assert [float(row["duty"]) for row in rows] == [n / 100 for n in range(1, 100)]
    assert [float(row["vout"]) for row in rows] == pytest.approx([0.24 * n for n in range(1, 100)], rel=0.05, abs=0.02)
    assert (script / "daybreak.db").stat().st_size > 0
    assert rows_of(script, run(script, "python", "-W", "error", "sweep.py")) == rows

    jobs = run(script, "daybreak", "jobs", "--state", "completed", "--limit", "1")
    assert (jobs.returncode, jobs.stderr) == (0, "")
    assert "1 of 99 completed jobs" in jobs.stdout
    [job] = re.findall(r"^[0-9a-f-]{36}", jobs.stdout, re.MULTILINE)
    shown = run(script, "daybreak", "jobs", "show", job)
    assert shown.returncode == 0
    assert re.search(r"^attempt +1 of 3$", shown.stdout, re.MULTILINE)
    for command in ("doctor", "runs", "report"):
        looked = run(script, "daybreak", command)
        assert looked.returncode == 0, looked.stdout


def test_one_bad_point_of_99_is_a_row_like_any_other(script):
    """The script goes on to the end; the row says what was wrong with the point."""
    text = (script / "sweep.py").read_text(encoding="utf-8")
    broken = text.replace(
        "    i = v = 0.0", "    if duty == 0.07: raise ValueError('no model for 7 %')\n    i = v = 0.0"
    )
    assert broken != text
    (script / "sweep.py").write_text(broken, encoding="utf-8")
    rows = rows_of(script, run(script, "python", "-W", "error", "sweep.py"))
    assert len(rows) == 99
    [bad] = [row for row in rows if row["state"] != "completed"]
    assert (bad["duty"], bad["state"], bad["error"]) == ("0.07", "failed", "ValueError: no model for 7 %")


def test_the_commands_in_readme_are_there():
    commands = re.findall(r"^daybreak (\w+)", README, re.MULTILINE)
    assert {"runs", "jobs", "why", "report", "doctor", "serve", "submit", "sweep"} <= set(commands)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target} is not there"


def test_the_picture_is_of_a_run_in_which_nothing_was_lost():
    picture = (ROOT / "docs/pictures/demo.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    told = re.sub(r"<[^>]+>", "", picture)
    [accepted] = re.findall(r"^ +accepted +(\d+)", told, re.MULTILINE)
    assert re.search(rf"^ +completed +{accepted}\b", told, re.MULTILINE)
    assert re.search(r"^ +lost +0\b", told, re.MULTILINE)
    assert int(accepted) >= 190


def test_the_picture_loads_nothing_from_elsewhere():
    picture = (ROOT / "docs/pictures/demo.svg").read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|href=|@import", picture)
