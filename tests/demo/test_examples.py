"""The examples, run as their READMEs say."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from code_sandbox import need_nats, need_sandbox
from daybreak.adapters.plecs.stand_in import StandIn

ROOT = Path(__file__).parents[2]
TIMEOUT = 120


@pytest.fixture
def sweep(tmp_path):
    shutil.copytree(ROOT / "examples" / "sweep", tmp_path / "sweep", ignore=shutil.ignore_patterns("*.db*", "*.csv"))
    return tmp_path / "sweep"


def run(folder, *words, timeout=TIMEOUT, **variables):
    own = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return subprocess.run(
        words,
        cwd=folder,
        env={**own, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_the_sweep_writes_its_table(sweep):
    ran = run(sweep, "python", "-W", "error", "sweep.py")
    assert (ran.returncode, ran.stdout) == (0, "ripple.csv: 36 points, 0 failed\n"), ran.stderr
    with (sweep / "ripple.csv").open(encoding="utf-8") as file:
        rows = {(row["duty"], row["load"]): row for row in csv.DictReader(file)}
    assert len(rows) == 36
    assert float(rows["0.5", "1.0"]["vout"]) == pytest.approx(24 * 0.5 / 1.02, rel=1e-3)
    assert float(rows["0.5", "1.0"]["ripple"]) == pytest.approx(0.075, rel=1e-2)

    again = run(sweep, "python", "sweep.py")
    assert again.returncode == 0
    jobs = run(sweep, "daybreak", "jobs", "--run", "sweep", "--limit", "100")
    assert jobs.stdout.count("completed") == 36, jobs.stdout


def test_a_point_that_fails_is_a_row_of_the_table_and_an_exit_code(sweep):
    model = (sweep / "buck.py").read_text(encoding="utf-8")
    broken = model.replace(
        "    i = v = highest = 0.0\n",
        '    if duty > 0.85:\n        raise ValueError("saturated")\n    i = v = highest = 0.0\n',
    )
    assert broken != model
    (sweep / "buck.py").write_text(broken, encoding="utf-8")
    ran = run(sweep, "python", "sweep.py")
    *named, last = ran.stdout.splitlines()
    assert (ran.returncode, last, len(named)) == (1, "ripple.csv: 36 points, 4 failed", 4)
    assert named[0] == "duty 0.9, load 0.5: ValueError: saturated"
    assert (sweep / "ripple.csv").read_text(encoding="utf-8").count("ValueError: saturated") == 4


def test_the_night_of_simulations_writes_its_table_and_goes_on_where_it_was(tmp_path):
    night = tmp_path / "night"
    shutil.copytree(ROOT / "examples" / "simulation_sweep", night, ignore=shutil.ignore_patterns("*.db*", "*.csv"))
    with StandIn() as plecs:
        own = {"PLECS": plecs.address, "TMPDIR": str(tmp_path)}
        ran = run(night, "python", "-W", "error", "overnight.py", "--points", "12", **own)
        assert (ran.returncode, ran.stdout) == (0, "overnight.csv: 12 points, 0 failed\n"), ran.stderr
        again = run(night, "python", "overnight.py", "--points", "12", **own)
        assert again.returncode == 0
        assert plecs.simulations == 12
    with (night / "overnight.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["vin"], row["duty"]) for row in rows[9:11]] == [("10.0", "0.86"), ("11.0", "0.05")]
    assert float(rows[5]["vout"]) == pytest.approx(10 * 0.5 / 1.02, rel=0.02)


def test_every_report_of_the_stations_is_on_the_server_exactly_once(tmp_path):
    script = ROOT / "examples" / "report_upload" / "run.py"
    ran = run(tmp_path, "python", "-W", "error", script, "--keep", "shift")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(re.findall(r"(?m)^(\w+(?: \w+)*?)  +(.*)$", ran.stdout))
    assert said["dropped"].startswith("90 reports, ")
    assert said["on the server"] == "90 exactly once, 0 missing, 0 unknown"
    assert "answers lost" in said["trouble"]
    assert not said["retries"].startswith("0;")
    assert ran.stdout.endswith("every report is on the server exactly once\n")
    assert len(list((tmp_path / "shift" / "drop" / "done").glob("*.wsjf"))) == 90
    again = run(tmp_path, "python", script, "--keep", "shift")
    assert (again.returncode, again.stdout) == (1, "")
    assert "shift exists" in again.stderr


def test_every_recording_has_exactly_one_transcript(tmp_path):
    if shutil.which("espeak-ng") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("espeak-ng is not installed: apt-get install espeak-ng")
        pytest.skip("espeak-ng is not installed: apt-get install espeak-ng")
    script = ROOT / "examples" / "transcription" / "run.py"
    words = ("--recordings", "6", "--kills", "2", "--keep", "night")
    ran = run(tmp_path, "python", "-W", "error", script, *words, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(re.findall(r"(?m)^(\w+(?: \w+)*?)  +(.*)$", ran.stdout))
    assert said["recordings in"] == "6"
    assert said["transcripts out"] == "6, exactly one accepted for each"
    assert re.match(r"[12]; \d+ attempts died", said["workers killed"])
    assert re.match(r"[1-9]\d* x HTTP 429; meanwhile all 6 recordings were measured", said["busy recogniser"])
    assert re.match(r"\d+ of 54 recognised", said["words"])
    assert ran.stdout.endswith("every recording has exactly one transcript\n")
    again = run(tmp_path, "python", script, "--keep", "night")
    assert (again.returncode, again.stdout) == (1, "")
    assert "night exists" in again.stderr


def test_every_execution_ends_once(tmp_path):
    need_sandbox()
    need_nats()
    script = ROOT / "examples" / "code_execution" / "run.py"
    ran = run(tmp_path, "python", "-W", "error", script, "--executions", "6", "--keep", "evening", timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = dict(re.findall(r"(?m)^(\w+(?: \w+)*?)  +(.*)$", ran.stdout))
    assert said["live output"].startswith("3 messages")
    assert said["executions"] == "21: 1 cancelled, 12 completed, 8 failed"
    assert said["cap"].endswith(" 0 started above the cap")
    assert said["left"] == "0 allocations, 0 pods"
    assert ran.stdout.count("hostile  ") == 8
    assert ran.stdout.endswith("every execution ended once\n")
    again = run(tmp_path, "python", script, "--keep", "evening")
    assert (again.returncode, again.stdout) == (1, "")
    assert "evening exists" in again.stderr
