"""A watched folder on a SQLite store, driven step by step on a clock that the test moves. Jobs are run by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Self

from daybreak import Daybreak, File
from daybreak.core.model import Done, Failed, Failure, Job, State
from daybreak.feeds.drop_folder.declaration import add_watch
from daybreak.feeds.drop_folder.watcher import FolderWatcher
from daybreak.testing.clock import HandClock
from daybreak.testing.contract.builders import claim_jobs, settle

LOCK = ".lock"


class DropRig:
    """One folder, one store, any number of watchers."""

    def __init__(self, path: Path, url: str = "", *, cache: bool = False, **options) -> None:
        self.path = path
        self.folder = path / "drop"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = HandClock()
        self.app = Daybreak(url or f"sqlite:///{path}/jobs.db", world=self.clock)

        @self.app.task(cache=cache)
        def upload(report: File) -> int:
            return len(report.path.read_bytes())

        self.watch = add_watch(self.app, self.folder, upload, polling=True, **options)

    async def __aenter__(self) -> Self:
        self.client = await self.app.client()
        self.store = self.client.store
        return self

    async def __aexit__(self, *_) -> None:
        await self.app.aclose()

    # -- the folder ----------------------------------------------------------------------------------------------------

    def drop(self, name: str, content: str = "", **sidecar) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        if sidecar:
            path.with_name(path.name + ".meta.json").write_text(json.dumps(sidecar))
        path.write_text(content or f"content of {name}")
        return path

    def files(self) -> list[str]:
        """Every file below the folder, but for the lock and empty folders."""
        found = (path for path in self.folder.rglob("*") if not path.is_dir() or path.is_symlink())
        return sorted(str(path.relative_to(self.folder)) for path in found if not path.name.endswith(LOCK))

    def note(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text())

    # -- watching ------------------------------------------------------------------------------------------------------

    def watcher(self) -> FolderWatcher:
        return FolderWatcher(self.app, self.client, self.watch)

    async def start(self) -> FolderWatcher:
        """A watcher as it is after its start."""
        watcher = self.watcher()
        await watcher.begin()
        return watcher

    async def steps(self, watcher: FolderWatcher, count: int = 3) -> None:
        """Let a watcher look often enough that settled files are taken and ended ones moved."""
        for _ in range(count):
            await watcher.step()
            self.clock.advance("3s")

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def jobs(self) -> list[Job]:
        return [job async for job in self.client.find_all()]

    async def names(self, state: State | None = None) -> list[str]:
        return sorted(job.spec.meta["file"] for job in await self.jobs() if state in (None, job.state))

    async def run_jobs(self, limit: int = 1000) -> list[str]:
        """Run what is queued, in order. A job whose file is named `bad...` fails. Returns the files' names."""
        ran = []
        for lease in await claim_jobs(self.store, limit, queues=(self.watch.queue,), now=None):
            name = lease.spec.meta["file"]
            bad = name.rpartition("/")[2].startswith("bad")
            failure = Failed(Failure(message="bad report", kinds=("ValueError",), verdict="permanent"))
            assert await settle(self.store, lease, failure if bad else Done(b"1"), now=None)
            ran.append(name)
        return ran

    async def handle_all(self, watcher: FolderWatcher) -> None:
        """Take what is there, run the jobs, and move the files."""
        await self.steps(watcher)
        await self.run_jobs()
        await self.steps(watcher, 2)


def digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
