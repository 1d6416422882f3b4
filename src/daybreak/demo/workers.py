"""The demo's workers: real processes, of which one is killed. None outlives the demo."""

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

# `daybreak worker`, with one line before it: should the demo itself be killed, its workers go with it.
_CODE: Final = "from daybreak.system.platform import die_with_parent as d; d(); from daybreak.cli import main; main()"


STOP_WITHIN: Final = 30.0


class WorkerGone(Exception):
    """A worker that nobody killed has ended."""


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
        """The worker's process id. In a session of its own, so that Ctrl-C reaches the demo, which ends them all."""
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
        """SIGKILL, which no process can catch; answers when that was."""
        worker = self._workers.pop(name)
        worker.kill()
        at = datetime.now(UTC)
        worker.wait()
        return at

    def check(self) -> None:
        for name, worker in self._workers.items():
            if worker.poll() is not None:
                raise WorkerGone(
                    f"worker {name} ended by itself with code {worker.returncode}: {self._last_words(name)}"
                )

    async def stop(self, name: str) -> int | None:
        """SIGTERM, and its exit code once it has let go of everything; None if that takes too long."""
        worker = self._workers[name]
        worker.terminate()
        try:
            return await asyncio.to_thread(worker.wait, STOP_WITHIN)
        except subprocess.TimeoutExpired:
            return None

    def _last_words(self, name: str) -> str:
        return self.log(name).read_text(encoding="utf-8", errors="replace").strip()[-500:] or "it said nothing"
