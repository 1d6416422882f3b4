"""What `make test` runs once more, and what no second run excuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN_AGAIN = Path(__file__).parent.parent / "run_again.py"
ALWAYS = "def test_always(): assert False\n"
WELL = "def test_well(): pass\n"
ONCE = """
from pathlib import Path
def test_once():
    mark = Path("was-here")
    if not mark.exists():
        mark.touch()
        assert False
"""


def env() -> dict[str, str]:
    """Without the plugins that are installed here, which only cost time."""
    return os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(folder: Path, *arguments: str, **files: str) -> tuple[int, list[str]]:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider -p xdist\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, RUN_AGAIN, *arguments]
    ran = subprocess.run(command, cwd=folder, env=env(), capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout.splitlines()


def flaky(lines: list[str]) -> list[str]:
    start = "!! FLAKY: passed only on the second run: "
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def test_what_fails_twice_or_is_skipped_then_fails_and_what_fails_once_is_named(tmp_path):
    skips = ONCE + "    else:\n        import pytest; pytest.skip('not now')\n"
    code, lines = run(tmp_path, always=ALWAYS, once=ONCE, well=WELL, skips=skips.replace("was-here", "skips"))
    assert code == 1
    assert flaky(lines) == ["test_once.py::test_once"]
    assert re.fullmatch(r"2 failed, 2 passed, 3 rerun in [\d.]+s", lines[-1])


def test_what_fails_once_passes_and_is_named_at_the_end_of_all_runs(tmp_path):
    """The last line is a summary in pytest's form, for whoever counts the tests by it."""
    memory = str(tmp_path / "flaky")
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    code, lines = run(one, "--remember", memory, "-n", "1", once=ONCE, well=WELL)
    assert code == 0
    assert lines[-2] == "!! FLAKY: passed only on the second run: test_once.py::test_once"
    assert re.fullmatch(r"2 passed, 1 rerun in [\d.]+s", lines[-1])
    code, lines = run(two, "--remember", memory, well=WELL)
    assert code == 0
    assert flaky(lines) == ["test_once.py::test_once"]
    assert re.fullmatch(r"1 passed in [\d.]+s", lines[-1])


def test_an_error_in_collection_fails(tmp_path):
    broken = "import nowhere_at_all\n"
    code, lines = run(tmp_path, broken=broken, once=ONCE)
    assert code == 2
    code, lines = run(tmp_path, "--continue-on-collection-errors", broken=broken, once=ONCE)
    assert code == 1
    assert "!! not run again: test_broken.py could not be collected" in lines


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_process_that_dies_fails_even_if_it_would_not_die_again(tmp_path, processes):
    once = ONCE.replace("assert False", "import os; os._exit(1)")
    code, lines = run(tmp_path, "-n", processes, once=once, well=WELL)
    assert code == 1
    assert not flaky(lines)


def test_too_many_failures_are_not_run_again(tmp_path):
    many = "import pytest\n@pytest.mark.parametrize('n', range(21))\ndef test_all(n): assert False\n"
    code, lines = run(tmp_path, many=many)
    assert code == 1
    assert "!! not run again: 21 tests failed, and at most 20 are run again" in lines


def test_finding_no_tests_fails(tmp_path):
    assert run(tmp_path)[0] == 5


IGNORE = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""
ASK = """
import signal, subprocess, sys
ASK = "import signal; assert signal.SIG_IGN not in [signal.getsignal(n) for n in (1, 2, 3, 15)]"
def test_here(): exec(ASK)
def test_child(): subprocess.run([sys.executable, "-c", ASK], check=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are not inherited there")
@pytest.mark.parametrize("program", [["-m", "pytest"], [str(RUN_AGAIN)]], ids=["pytest", "run_again"])
def test_under_nohup_and_in_the_background_tests_and_their_children_hear_signals(tmp_path, program):
    (tmp_path / "test_asks.py").write_text(ASK)
    (tmp_path / "conftest.py").write_text("from run_again import default_signals\n\ndefault_signals()\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = -p xdist -n 1\npythonpath = {RUN_AGAIN.parent}\n")
    command = [sys.executable, "-c", IGNORE, sys.executable, *program]
    ran = subprocess.run(command, cwd=tmp_path, env=env(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
