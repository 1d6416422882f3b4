"""A newcomer's first ten minutes: install into a fresh environment, paste the script from README, kill it, run it
again, and look."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL_WITHIN = 300
RUN_WITHIN = 180


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """The folder with `python` and `daybreak`: of a fresh environment into which the working tree was installed. Where
    nothing can be installed (no network, no pip), that of this one; in CI that is a failure."""
    fresh = tmp_path_factory.mktemp("environment") / "venv"
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], capture_output=True, check=False)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        _bin(fresh) / "python",
        "install",
        "--quiet",
        "-c",
        "constraints.txt",
    ]
    try:
        installed = made.returncode == 0 and _succeeds([*pip, "."])
    except subprocess.TimeoutExpired:
        installed = False
    if not installed:
        assert os.environ.get("CI") != "true", "Daybreak could not be installed into a fresh environment"
        print("!! not installed anew: the environment of the tests is used", file=sys.__stderr__)
    return _bin(fresh) if installed else Path(sys.executable).parent


def _bin(environment):
    return environment / ("Scripts" if sys.platform == "win32" else "bin")


def _succeeds(words):
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_WITHIN, check=False)
    if ran.returncode:
        print(ran.stderr[-2000:], file=sys.__stderr__)
    return ran.returncode == 0


@pytest.fixture
def type_(commands, tmp_path):
    """Types a command line in an empty folder, as README has it, and answers its exit code and what it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DAYBREAK_", "PYTHON"))}
    environment = {**own, "PATH": f"{commands}{os.pathsep}{own['PATH']}", "COLUMNS": "120"}

    def start(line):
        return subprocess.Popen(
            line.split(), executable=commands / line.split()[0], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def type_(line):
        with start(line) as process:
            try:
                printed, complained = process.communicate(timeout=RUN_WITHIN)
            finally:
                process.kill()
        return process.returncode, printed, complained

    type_.start = start
    return type_


@pytest.fixture
def sweep(tmp_path):
    [script] = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert "`sweep.py`" in README
    (tmp_path / "sweep.py").write_text(script, encoding="utf-8")
    for line in ("python sweep.py", "daybreak runs ", "daybreak jobs ", "daybreak doctor "):
        assert re.search(rf"^{line}", README, re.MULTILINE), f"README does not say {line}"
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_the_first_ten_minutes(sweep, type_):
    _killed_midway(type_.start("python sweep.py"), type_)

    code, printed, complained = type_("daybreak jobs --state completed --limit 200 --json")
    assert (code, complained) == (0, "")
    before = {job["id"]: job for job in _jobs(printed)}
    assert 10 <= len(before) < 99

    code, printed, complained = type_("python sweep.py")
    assert code == 0, complained
    assert len((sweep / "overnight.csv").read_text(encoding="utf-8").splitlines()) == 100, "a header and 99 rows"

    code, printed, _ = type_("daybreak jobs --limit 200 --json")
    after = {job["id"]: job for job in _jobs(printed)}
    assert len(after) == 99, "every point is one job, however often the script was run"
    assert {job["state"] for job in after.values()} == {"completed"}
    assert all(after[one]["finished_at"] == job["finished_at"] for one, job in before.items()), "done twice"
    again = [job for job in after.values() if job["attempt"] > 1]
    assert 1 <= len(again) <= (os.cpu_count() or 1) + 1, "only what ran when it was killed runs again"
    _check_looking(type_, again[0]["id"])
    _check_a_worker_of_its_own(type_)


def _killed_midway(script, type_):
    """Let it get on, then kill it as a crash would."""
    try:
        done = 0
        while done < 10:
            assert script.poll() is None, f"it ended by itself after {done}: {script.communicate()}"
            code, printed, _ = type_("daybreak runs show overnight --json")
            done = json.loads(printed)["done"] if code == 0 else 0
        script.send_signal(signal.SIGKILL)
        script.communicate(timeout=RUN_WITHIN)
    finally:
        script.kill()
        script.wait()
    assert script.returncode == -signal.SIGKILL


def _jobs(printed):
    said = json.loads(printed)
    return said["jobs"] if isinstance(said, dict) else said


def _check_looking(type_, recovered):
    """What README says to look with answers, and answers sensibly."""
    code, printed, _ = type_("daybreak jobs")
    assert code == 0
    assert printed.count("completed") >= 50
    assert "99 jobs" in printed

    code, printed, _ = type_(f"daybreak jobs show {recovered}")
    assert code == 0
    for word in ("submitted", "lease.expired", "retrying", "attempt 2", "completed"):
        assert re.search(word, printed), f"{word} is not told:\n{printed}"

    # The killed worker is the one thing that the doctor has to complain of.
    code, printed, complained = type_("daybreak doctor")
    assert code in (0, 1), complained
    assert re.search(r"^ok +store .*daybreak\.db", printed, re.MULTILINE)
    wrong = re.findall(r"^wrong (.*)$", printed, re.MULTILINE)
    assert all("gone" in line for line in wrong), printed


def _check_a_worker_of_its_own(type_):
    [line] = re.findall(r"^(daybreak submit .*)$", README, re.MULTILINE)
    with type_.start("daybreak worker sweep.py") as worker:
        try:
            code, printed, complained = type_(line)
            worker.send_signal(signal.SIGTERM)
            said = worker.communicate(timeout=RUN_WITHIN)[1]
        finally:
            worker.kill()
    assert code == 0, complained
    assert re.search(r"\b1[12]\.\d+", printed), printed
    assert worker.returncode == 0, said
