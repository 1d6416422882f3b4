"""Fixtures for tests with real workers: one store per test or module, and no process left behind.

Tasks write lines to a file; the tests find theirs by the id of the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside these tests, here and in children

import worker_tasks
from worker_processes import LINES, WorkerProcess, nobody_left, read_lines, until

from daybreak import Daybreak, JobHandle

LEASE = "1s"


@dataclass
class Stage:
    """A folder with a store, and the app that uses it."""

    folder: Path
    app: Daybreak

    @property
    def url(self) -> str:
        return self.app.settings.url

    def process(self, *words: str, target: Path = Path(worker_tasks.__file__), **env: str) -> WorkerProcess:
        """Start a worker process, with leases of one second unless the words say otherwise."""
        lease = () if "--lease" in words else ("--lease", LEASE)
        return WorkerProcess(target, self.url, self.folder, *lease, *words, env=env)

    def file(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture
def stage(tmp_path) -> Iterator[Stage]:
    yield from _stage(tmp_path, worker_tasks.app)


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory) -> Iterator[Stage]:
    yield from _stage(tmp_path_factory.mktemp("shared"), worker_tasks.app)


def _stage(folder: Path, app: Daybreak) -> Iterator[Stage]:
    before = os.environ.get(LINES)
    os.environ[LINES] = str(folder / "lines")
    with nobody_left():
        app.use(f"sqlite:///{folder}/jobs.db")
        try:
            yield Stage(folder, app)
        finally:
            app.close()
    os.environ.pop(LINES) if before is None else os.environ.update({LINES: before})


@pytest.fixture
def began() -> Callable[[JobHandle[Any]], dict[str, Any]]:
    """Waits until a job has written a line."""

    def wait(job: JobHandle[Any], *, times: int = 1, word: str = "began") -> dict[str, Any]:
        lines = until(
            lambda: found if len(found := read_lines(job=job.id, word=word)) >= times else None,
            f"{job} has said {word!r} {times} times",
        )
        return lines[-1]

    return wait
