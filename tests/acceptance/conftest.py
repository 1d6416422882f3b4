"""The acceptance cases run on SQLite with real processes, through what a user has: the app, its tasks, the program."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what stands beside these tests, and for the children they start

import acceptance_tasks
from worker_processes import LINES, WorkerProcess, nobody_left, read_lines, until

from daybreak import Daybreak, JobHandle

TARGET = Path(acceptance_tasks.__file__)


@dataclass
class Place:
    """A folder with a store in it."""

    folder: Path
    app: Daybreak

    def worker(self, *words: str) -> WorkerProcess:
        """`daybreak worker` with leases of a second."""
        return WorkerProcess(TARGET, self.app.settings.url, self.folder, "--lease", "1s", *words)

    def file(self) -> Path:
        return self.folder / uuid.uuid4().hex


def _place(folder: Path) -> Iterator[Place]:
    app = acceptance_tasks.app
    os.environ[LINES] = str(folder / "lines")
    with nobody_left():
        app.use(f"sqlite:///{folder}/jobs.db")
        try:
            yield Place(folder, app)
        finally:
            app.close()
    del os.environ[LINES]


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    """A store of the test's own."""
    yield from _place(tmp_path)


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory) -> Iterator[Place]:
    yield from _place(tmp_path_factory.mktemp("acceptance"))


@pytest.fixture
def began() -> Callable[..., dict[str, Any]]:
    def wait(job: JobHandle[Any], times: int = 1) -> dict[str, Any]:
        return until(
            lambda: found if len(found := read_lines(job=job.id, word="began")) >= times else None,
            f"{job} has begun {times} times",
        )[-1]

    return wait
