"""Apps on memory, and files of user code that real processes run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from daybreak import Daybreak

SECONDS = 20  # for anything that should take much less


@pytest.fixture
def app():
    """An app whose store lives in this process; its workers' children are threads."""
    with Daybreak("memory://", by="ann") as app:
        yield app


@pytest.fixture
def until() -> Callable[[Callable[[], object]], object]:
    """Wait for a condition, and answer what made it true."""

    def wait(condition: Callable[[], object], seconds: float = SECONDS) -> object:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, "it did not come about in time"
            time.sleep(0.005)
        return found

    return wait


class Script:
    """A file with user code, run by a Python of its own in its folder."""

    def __init__(self, path: Path, code: str) -> None:
        self.path = path
        path.write_text(textwrap.dedent(code), encoding="utf-8")

    def run(self, *before: str) -> subprocess.CompletedProcess[str]:
        """`before` stands before its name: nothing for Python itself, `-m pytest` say for something else."""
        return subprocess.run(
            [sys.executable, "-W", "error", *before, self.path.name],
            cwd=self.path.parent,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")},
        )

    def printed(self) -> str:
        """What it prints; that it ends well and says nothing else is asserted."""
        ran = self.run()
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        return ran.stdout


@pytest.fixture
def script(tmp_path) -> Callable[..., Script]:
    return lambda code, name="script.py": Script(tmp_path / name, code)
