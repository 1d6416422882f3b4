"""Workers."""

from __future__ import annotations

from typing import Literal

from daybreak.server.bodies.base import Answer, Request


class TaskVersion(Answer, frozen=True):
    task: str
    version: int


class ChildBody(Answer, frozen=True):
    """A process that runs jobs, and its resident memory in bytes."""

    pid: int
    memory: int | None


class WorkerBody(Answer, frozen=True):
    """A worker: the fields of `daybreak workers --json`. `memory` is that of the worker and its children."""

    id: str
    name: str
    state: Literal["live", "stopping", "stopped", "gone"]
    host: str
    pid: int
    app: str | None
    queues: list[str]
    tasks: list[TaskVersion]
    processes: int | None
    async_jobs: int | None
    lease_for: float
    running: int
    done: int
    failed: int
    memory: int | None
    children: list[ChildBody]
    started_at: str | None
    seen_at: str | None


class WorkerQuery(Request, frozen=True):
    live: bool = False


class WorkerList(Answer, frozen=True):
    workers: list[WorkerBody]
