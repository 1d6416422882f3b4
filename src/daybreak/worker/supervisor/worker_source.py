"""What a worker needs of its source beside leases: with it the worker itself needs no store."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Protocol

from daybreak.core.model import Lease
from daybreak.telemetry.attempt_spans import AttemptSpans
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.lease_source import Settled, Source


class RunningWorker(Protocol):
    """What a source may read of the worker that uses it."""

    done: int
    failed: int
    exports_metrics: bool

    @property
    def running(self) -> int:
        """How many leases it holds."""
        ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def spans(self) -> AttemptSpans | None: ...

    def stop(self) -> None:
        """Stop: finish running jobs within the grace time, then hand them back."""
        ...

    def leases(self) -> list[Lease]:
        """The leases that are not settled, by fence."""
        ...

    def children(self) -> list[Child]:
        """All children that may hold leases."""
        ...


class JobOutput(Protocol):
    """Where what jobs print and log goes."""

    def add(self, lease: Lease, data: bytes, skipped: int) -> None: ...


class ContentCopies(Protocol):
    """Copies contents between the cache of this machine and the place where they are kept."""

    async def download(self, digest: str) -> None: ...

    async def upload(self, digest: str) -> None: ...


class WorkerSource(Source, Protocol):
    """A source as a worker uses it.

    Where the store is at hand, the source also publishes the worker's record, learns how long jobs take, and runs the
    services. Where it is not, the source sends heartbeats to those who can reach the store, and they do that."""

    @property
    def output(self) -> JobOutput: ...

    @property
    def contents(self) -> ContentCopies: ...

    def open(self, worker: RunningWorker) -> None:
        """The worker starts, on this event loop."""
        ...

    async def begin(self) -> None:
        """Prepare for the first claim. Raises if the worker could not work at all."""
        ...

    def background(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What must run as long as the worker."""
        ...

    def limit_of(self, lease: Lease) -> timedelta | None:
        """How long this attempt may run."""
        ...

    def settled(self, settled: Settled) -> None:
        """An accepted settlement of this worker."""
        ...

    async def is_idle(self) -> bool:
        """Whether every job that this worker could run has ended; False while that is unknown."""
        ...

    async def close(self) -> None:
        """The worker has stopped, and every outcome is reported. Raises nothing for a place that does not answer."""
        ...
