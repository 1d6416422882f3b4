"""What is needed to start children: where the user's code is, and how many children of which kind."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from daybreak import values
from daybreak.files import Blobs
from daybreak.system.ports import Clock
from daybreak.tasks.registry import Program
from daybreak.worker.launcher import ChildHandle, Launch, launch
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.pool import Pool
from daybreak.worker.supervisor.quarantine import Probation
from daybreak.worker.wire import Hello


class ChildPlan(Struct, frozen=True, kw_only=True):
    """`target` and `imports` tell a child process where the user's code is; a child thread has the code already.
    `launch` starts one child."""

    program: Program
    settings: WorkerSettings
    target: str = ""
    imports: list[str] = []
    url: str = ""
    blobs: Blobs | None = None  # where contents are kept; None if in the store
    launch: Launch = launch

    def pools(self, shared: dict[str, Any], clock: Clock) -> list[Pool]:
        """One pool for sync tasks and one for async tasks, as far as there are any. `shared` is what the lifespan
        returned."""
        probation_ends_at: dict[int, float] = {}
        return [
            Pool(
                is_async=is_async,
                tasks=tasks,
                children=1 if is_async else self.settings.slots,
                slots=self.settings.async_jobs if is_async else 1,
                start=self._starter(is_async, shared),
                settings=self.settings,
                probation=Probation(probation_ends_at),
                clock=clock,
                batches=self.program.batches(is_async=is_async),
            )
            for is_async in (False, True)
            if (tasks := self.program.known(is_async=is_async))
        ]

    def _starter(self, is_async: bool, shared: dict[str, Any]) -> Callable[[int], ChildHandle]:
        encoded = values.encode(shared, "lifespan")

        def start(slots: int) -> ChildHandle:
            hello = Hello(
                target=self.target,
                imports=self.imports,
                path=[path or os.getcwd() for path in sys.path],  # noqa: PTH109
                url=self.url,
                shared=encoded,
                slots=slots,
                is_async=is_async,
                commands=self.settings.allow_commands,
                log_level=logging.getLogger("daybreak.job").getEffectiveLevel(),
                scratch=str(Path(tempfile.gettempdir()) / f"daybreak-{secrets.token_hex(8)}"),
                files="" if self.blobs is None else self.blobs.location,
            )
            return self.launch(hello, self.program, self.settings.isolation)

        return start
