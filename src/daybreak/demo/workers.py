"""The demo's workers: real processes, one of which is killed. They all end with the demo."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from daybreak.demo import tasks

# Runs `daybreak worker`, after asking the system to end this process if the demo itself is killed.
_CODE: Final = "from daybreak.system.platform import die_with_parent as d; d(); from daybreak.cli import main; main()"


STOP_TIMEOUT: Final = 30.0  # seconds


class WorkerGone(Exception):
    """A worker ended that the demo did not kill."""


class DemoWorkers:
    """Workers by name, each a `daybreak worker` on the demo's store."""

    def __init__(self, folder: Path, url: str, *, port: int, lease_for: timedelta) -> None:
        self._folder = folder
        self._port = port
        self._words = [
            sys.executable, "-c", _CODE, "worker", f"{tasks.__name__}:app", "--url", url,
            "--processes", "2", "--lease", f"{lease_for.total_seconds():g}s",
        ]  # fmt: skip
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.wait()

    def start(self, name: str) -> int:
        """Start a worker and return its process id. It gets its own session, so that Ctrl-C reaches only the demo,
        which then ends all workers."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("DAYBREAK_")}
        with self.log(name).open("wb") as log:
            self._workers[name] = subprocess.Popen(  # noqa: S603 - our own program
                [*self._words, "--name", name],
                cwd=self._folder,
                env={**own, tasks.PORT: str(self._port)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._workers[name].pid

    def log(self, name: str) -> Path:
        return self._folder / f"worker-{name}.log"

    def kill(self, name: str) -> datetime:
        """Send SIGKILL, which no process can catch, and return the time."""
        worker = self._workers.pop(name)
        worker.kill()
        at = datetime.now(UTC)
        worker.wait()
        return at

    def check(self) -> None:
        """Raise WorkerGone if a worker has ended."""
        for name, worker in self._workers.items():
            if worker.poll() is not None:
                raise WorkerGone(
                    f"worker {name} exited unexpectedly with code {worker.returncode}: {self._log_tail(name)}"
                )

    async def stop(self, name: str) -> int | None:
        """Send SIGTERM and return the exit code, or None if the worker does not end in time."""
        worker = self._workers[name]
        worker.terminate()
        try:
            return await asyncio.to_thread(worker.wait, STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            return None

    def _log_tail(self, name: str) -> str:
        return self.log(name).read_text(encoding="utf-8", errors="replace").strip()[-500:] or "its log is empty"
