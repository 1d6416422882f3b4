"""Run pytest; run the tests that failed once more, alone; pass only if they pass then.

    python tests/run_again.py [--remember FILE] ARGUMENTS OF PYTEST

The second run is a new process that runs nothing else, so only a test that fails by itself fails both times. Tests that
passed only on the second run are listed at the end; with `--remember` also those that earlier runs wrote to that file.
A second run does not excuse a collection error, a crashed process, an interruption, or more than `MAX_RERUNS` failures.

The last line is always a summary in pytest's form, with the counts of the first run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

MAX_RERUNS = 20  # failed tests that are run again; more than these have a common cause
PASSED, FAILED = 0, 1  # exit codes of pytest; all others are no verdict on single tests
RECORDED_RUN = "--recorded-run"
ENDED = ("setup", "call", "teardown")
COUNTED = ("skipped", "deselected", "xfailed", "xpassed", "warnings")


@dataclass
class Run:
    """What one run of pytest found. `broken` are reasons why a second run would prove nothing."""

    folder: str = "."
    failed: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class Recorder:
    """A pytest plugin that writes what a run found to `path`, in the process that sees all reports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = Run()

    def pytest_configure(self, config: pytest.Config) -> None:
        self.run.folder = str(config.rootpath)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.run.broken.append(f"{report.nodeid or 'the collection'} could not be collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when not in ENDED:  # so pytest-xdist reports the death of a process
            self.run.broken.append(f"a process died while it ran {report.nodeid}")
        elif report.failed and report.nodeid not in self.run.failed:
            self.run.failed.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        stats = terminalreporter.stats
        self.run.passed = [report.nodeid for report in stats.get("passed", ())]
        self.run.counts = {name: len(stats[name]) for name in COUNTED if stats.get(name)}
        self.path.write_text(json.dumps(asdict(self.run)))


def main(arguments: list[str]) -> int:
    default_signals()
    if arguments[:1] == [RECORDED_RUN]:
        import pytest

        sys.path[0] = str(Path.cwd())  # as with python -m pytest
        return int(pytest.main(arguments[2:], plugins=[Recorder(Path(arguments[1]))]))
    memory = None
    if arguments[:1] == ["--remember"]:
        memory, arguments = Path(arguments[1]), arguments[2:]
    began = perf_counter()
    code, first = _pytest(arguments)
    flaky: list[str] = []
    failing = first.failed if first is not None else []
    refusal = None
    if code == FAILED and first is not None:
        if refusal := _refusal(first):
            print(f"!! not run again: {refusal}")
        else:
            flaky, failing = _again(first)
            code = FAILED if failing else PASSED
    listed = _remembered(memory, flaky)
    for test in listed:
        print(f"!! FLAKY: passed only on the second run: {test}")
    if first is not None and (refusal or failing or listed):
        print(_summary(first, failing, [] if refusal else first.failed, perf_counter() - began), flush=True)
    return code


def default_signals() -> None:
    """Undo what nohup, or a shell that starts a background job, has set: ignored signals are inherited by every child,
    and tests send these signals. SIGPIPE stays ignored in Python, which resets it for its own children."""
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


def _pytest(arguments: list[str], folder: str | None = None) -> tuple[int, Run | None]:
    """One run of pytest in a process of its own: its exit code, and what it found unless it died."""
    with tempfile.TemporaryDirectory(prefix="daybreak-tests-") as place:
        path = Path(place) / "run.json"
        command = [sys.executable, str(Path(__file__).resolve()), RECORDED_RUN, str(path), *arguments]
        code = subprocess.run(command, cwd=folder, check=False).returncode
        found = Run(**_read(path)) if path.exists() else None
    return code, found


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _refusal(run: Run) -> str | None:
    """Why a second run would prove nothing, if so."""
    if run.broken:
        return "; ".join(run.broken)
    if not run.failed:
        return "pytest failed, but no test did"
    if len(run.failed) > MAX_RERUNS:
        return f"{len(run.failed)} tests failed, and at most {MAX_RERUNS} are run again"
    return None


def _again(first: Run) -> tuple[list[str], list[str]]:
    """Run the failed tests once more, alone: which of them passed, and which did not."""
    print(f"!! {len(first.failed)} failed; once more, alone:", *first.failed, sep="\n!!   ", flush=True)
    code, second = _pytest(["-n", "0", *first.failed], first.folder)
    if second is None or second.broken or code not in (PASSED, FAILED):
        return [], first.failed
    well = set(second.passed) - set(second.failed)
    return [test for test in first.failed if test in well], [test for test in first.failed if test not in well]


def _remembered(memory: Path | None, flaky: list[str]) -> list[str]:
    if memory is None:
        return flaky
    with contextlib.suppress(FileNotFoundError):
        flaky = [*memory.read_text().splitlines(), *flaky]
    memory.write_text("".join(f"{test}\n" for test in flaky))
    return flaky


def _summary(first: Run, failing: list[str], again: list[str], seconds: float) -> str:
    """The closing line of the first run, with the tests that passed on the second run among those that passed."""
    passed = (set(first.passed) | set(first.failed)) - set(failing)
    counts = {"failed": len(failing), "passed": len(passed), **first.counts, "rerun": len(again)}
    counts["errors"] = len(first.broken)
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n) + f" in {seconds:.2f}s"


if __name__ == "__main__":
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    sys.exit(main(sys.argv[1:]))
